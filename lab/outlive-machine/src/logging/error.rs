//! The errors of logs.

use crate::program::Word;
use crate::protocol::NodeId;

use super::entry::Requester;

/// An impossible request to a logging unit, or to a log in a memory node. Except for
/// [`Damaged`](Self::Damaged), the protocol or its driver is wrong; the unit is as it was before.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoggingError {
    /// A REPL without words.
    #[error("a REPL of {requester} names no word: set a bit of its mask")]
    NoWords {
        /// The sender.
        requester: Requester,
    },
    /// A log cannot represent the number of this word or core.
    #[error(
        "a log cannot name word {} of {requester}: words are below 2^48, cores below those of a node", word.0
    )]
    OutOfRange {
        /// The sender.
        requester: Requester,
        /// The word.
        word: Word,
    },
    /// A REPL with the sequence of another one that is not validated.
    #[error("{requester} has an unvalidated REPL {sequence} already: give each its own sequence")]
    Twice {
        /// The sender.
        requester: Requester,
        /// The sequence.
        sequence: u32,
    },
    /// A VAL whose REPL is not here.
    #[error(
        "{requester} validates REPL {sequence}, which this unit has not received: it must wait for \
         the acknowledgement"
    )]
    Unknown {
        /// The sender.
        requester: Requester,
        /// The sequence.
        sequence: u32,
    },
    /// A VAL with a timestamp that another one had.
    #[error("{requester} sends timestamp {timestamp} a second time")]
    TimestampTwice {
        /// The sender.
        requester: Requester,
        /// The timestamp.
        timestamp: u32,
    },
    /// The VALs of a node that is to be forgotten have a gap: the fabric must drain first.
    #[error(
        "timestamp {missing} of {node} has not arrived, and a later one has: drain the fabric \
         before the node is forgotten"
    )]
    Gap {
        /// The node.
        node: NodeId,
        /// The timestamp that is missing.
        missing: u32,
    },
    /// A message of a dump that does not fit the state of its receiver.
    #[error("{receiver} received {message} of round {round} while it is {doing}")]
    OutOfTurn {
        /// The receiver.
        receiver: &'static str,
        /// The kind of message.
        message: &'static str,
        /// The number of the round.
        round: u32,
        /// The receiver's present activity.
        doing: &'static str,
    },
    /// A dump in a memory node cannot be read.
    #[error("the dump of {node} in round {round} cannot be read: {why}; recovery cannot trust it")]
    Damaged {
        /// The node that saved it.
        node: NodeId,
        /// The number of the round.
        round: u32,
        /// The defect.
        why: FormError,
    },
}

/// Bytes that are not a dump.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FormError {
    /// Not the output of gzip, or damaged, or truncated.
    #[error("gzip reports: {0}")]
    Gzip(String),
    /// Bytes after the end.
    #[error("{0} bytes follow its end")]
    Trailing(usize),
    /// It does not begin as a dump does.
    #[error("it does not begin with the header of a dump of version 1")]
    Header,
    /// Its bytes do not match its number of entries.
    #[error("it names {entries} entries and has {bytes} bytes for them")]
    Length {
        /// The number of entries in its header.
        entries: u64,
        /// The number of bytes after its header.
        bytes: usize,
    },
    /// An entry that no machine can have.
    #[error("entry {0} names a node or core that cannot exist")]
    Entry(u64),
    /// It is a different dump than recorded.
    #[error("its header names node {node}, round {round}")]
    Mislaid {
        /// The node that it names.
        node: u16,
        /// The round that it names.
        round: u32,
    },
}
