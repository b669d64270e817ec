//! What goes wrong in and with logs.

use crate::program::Word;
use crate::protocol::NodeId;

use super::entry::Requester;

/// A logging unit, or a log in a memory node, was asked for what cannot be. But for [`Damaged`](Self::Damaged), the
/// protocol or who drives it is in error; the unit is as it was before.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoggingError {
    /// A REPL without words.
    #[error("a REPL of {requester} names no word: set a bit of its mask")]
    NoWords {
        /// Who sent it.
        requester: Requester,
    },
    /// A log has no room for the number of this word or core.
    #[error(
        "a log cannot name word {} of {requester}: words are below 2^48, cores below those of a node", word.0
    )]
    OutOfRange {
        /// Who sent it.
        requester: Requester,
        /// Where to.
        word: Word,
    },
    /// A REPL with the sequence of another one that is not validated.
    #[error("{requester} has an unvalidated REPL {sequence} already: give each its own sequence")]
    Twice {
        /// Who sent it.
        requester: Requester,
        /// Which.
        sequence: u32,
    },
    /// A VAL whose REPL is not here.
    #[error(
        "{requester} validates REPL {sequence}, which is not here: it is to wait for the acknowledgement"
    )]
    Unknown {
        /// Who sent it.
        requester: Requester,
        /// Which.
        sequence: u32,
    },
    /// A VAL with a timestamp that another one had.
    #[error("{requester} sends timestamp {timestamp} a second time")]
    TimestampTwice {
        /// Who sent it.
        requester: Requester,
        /// Which.
        timestamp: u32,
    },
    /// The VALs of a dead node have a gap: let the fabric drain first.
    #[error(
        "timestamp {missing} of {node} has not come, and a later one has: drain the fabric before it is forgotten"
    )]
    Gap {
        /// The dead node.
        node: NodeId,
        /// The timestamp that is missing.
        missing: u32,
    },
    /// A message of a dump that does not belong to what its receiver is doing.
    #[error("{receiver} gets {message} of round {round} and is {doing}")]
    OutOfTurn {
        /// Who got it.
        receiver: &'static str,
        /// Which message.
        message: &'static str,
        /// Of which round.
        round: u32,
        /// What the receiver is doing.
        doing: &'static str,
    },
    /// A dump in a memory node cannot be read.
    #[error("the dump of {node} in round {round} cannot be read: {why}; recovery cannot trust it")]
    Damaged {
        /// Who saved it.
        node: NodeId,
        /// In which round.
        round: u32,
        /// What is wrong with it.
        why: FormError,
    },
}

/// Bytes that are no dump.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FormError {
    /// Not what gzip writes, or damaged, or cut short.
    #[error("gzip finds {0}")]
    Gzip(String),
    /// Bytes after the end.
    #[error("{0} bytes follow its end")]
    Trailing(usize),
    /// It does not begin as a dump does.
    #[error("it does not begin as a dump of version 1 does")]
    Header,
    /// It has more or fewer bytes than its entries take.
    #[error("it names {entries} entries and has {bytes} bytes for them")]
    Length {
        /// What its header says.
        entries: u64,
        /// What there is.
        bytes: usize,
    },
    /// No machine has such an entry.
    #[error("entry {0} names a node or core that no machine has")]
    Entry(u64),
    /// It is another dump than it is kept as.
    #[error("it says that it is of node {node}, round {round}")]
    Mislaid {
        /// The node that it names.
        node: u16,
        /// The round that it names.
        round: u32,
    },
}
