//! The errors of transactions.

use crate::tables::{ObjectId, TransactionId};
use crate::verbs::VerbError;

/// The reason for which an attempt of a transaction ends without commit. The body of a transaction
/// passes it on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Abort {
    /// The attempt conflicts with another transaction, and is retried.
    #[error("the transaction conflicts with another one: {0}")]
    Conflict(Conflict),
    /// The body has aborted the transaction.
    #[error("the transaction was aborted by its program")]
    User,
    /// The table has no free bucket for an insertion.
    #[error("table {table} is full; create a table for more keys, or delete keys")]
    TableFull {
        /// The number of the table.
        table: u8,
    },
    /// The write set does not fit into the coordinator's log slot.
    #[error(
        "the transaction writes {words} words with their addresses, and its log slot has {most}; \
         write less in one transaction, or create the store with larger log slots"
    )]
    WriteSetTooLarge {
        /// The number of words of the log entry.
        words: usize,
        /// The number of words of a slot.
        most: usize,
    },
    /// A verb failed.
    #[error(transparent)]
    Verb(#[from] VerbError),
    /// All memory servers with replicas of an object are lost, and with them its contents.
    #[error(
        "all memory servers with partition {} of table {} are lost, and with them its keys; load a \
         dump into a new store",
        .object.partition(), .object.table()
    )]
    Lost {
        /// The object.
        object: ObjectId,
    },
    /// All memory servers that could hold the log are lost.
    #[error(
        "no memory server is live, so the data of the store is lost; create a new store, and start \
         its servers with `outlive store memory`"
    )]
    NoMemory,
    /// A table's words contradict each other.
    #[error(
        "table {} is damaged: {what} at {:#x} of partition {}; run `outlive store check`",
        .object.table(), .object.offset(), .object.partition()
    )]
    Damaged {
        /// The object.
        object: ObjectId,
        /// The contradiction.
        what: &'static str,
    },
}

/// The kind of a conflict between transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conflict {
    /// An object was latched by another transaction.
    Latched(TransactionId),
    /// An object changed between its read and the validation.
    Changed,
    /// An object changed while it was read.
    Torn,
    /// A memory server was lost during the attempt, or replaced, or a connection broke. The next
    /// attempt uses the current replicas and a new connection.
    Interrupted,
}

impl core::fmt::Display for Conflict {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Latched(holder) => write!(f, "{holder} holds a latch"),
            Self::Changed => f.write_str("an object that was read has changed"),
            Self::Torn => f.write_str("an object changed while it was read"),
            Self::Interrupted => {
                f.write_str("a memory server was lost or replaced, or a connection broke")
            }
        }
    }
}

/// The reason why a recovery of logs failed. It must be executed again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecoverLogsError {
    /// A verb failed on a live memory server.
    #[error(transparent)]
    Verb(#[from] VerbError),
    /// A log entry names an object that does not exist.
    #[error(
        "{transaction} has logged an object of table {}, partition {}, at {:#x}, which does not \
         exist; the store is damaged: run `outlive store check`",
        .object.table(), .object.partition(), .object.offset()
    )]
    NoSuchObject {
        /// The transaction.
        transaction: TransactionId,
        /// The object.
        object: ObjectId,
    },
}

/// The reason why a transaction was not committed, or why its outcome is unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TransactionError {
    /// No attempt succeeded.
    #[error(
        "all {attempts} attempts of the transaction failed, the last one because {last}; it had no \
         effect and can be executed again"
    )]
    TooManyConflicts {
        /// The number of attempts.
        attempts: u32,
        /// The reason for which the last one ended.
        last: Conflict,
    },
    /// The deadline passed before an attempt succeeded ([`Retry::deadline`](super::Retry)).
    #[error(
        "no attempt succeeded before the transaction's deadline; it had no effect and can be \
         executed again"
    )]
    DeadlineExceeded,
    /// All compute servers of the store are being stopped, so no attempt begins.
    #[error(
        "the compute servers of the store are being stopped; the transaction had no effect and can \
         be executed again when the stop has ended"
    )]
    Stopping,
    /// An attempt ended for a reason that a retry does not change.
    #[error(transparent)]
    Aborted(Abort),
    /// An earlier transaction of the coordinator, or of its compute server, failed and is not
    /// resolved. Recovery needs its log entry, so the coordinator executes no other transaction.
    #[error(
        "an earlier transaction is not resolved, because its end failed; drop the compute server, \
         which resolves it, and join again"
    )]
    Unresolved,
    /// A verb failed after the transaction was logged. Recovery decides whether it is committed.
    #[error(
        "it is not known whether {transaction} was committed ({source}); read its outcome by \
         `Store::outcome`"
    )]
    Unknown {
        /// The attempt.
        transaction: TransactionId,
        /// The error of the verb.
        source: VerbError,
    },
}
