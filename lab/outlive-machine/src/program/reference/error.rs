//! Errors of a program on the machine without time.

use thiserror::Error;

use super::super::{Op, Waits};

/// The reason why a program did not end.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ReferenceError {
    /// All threads that have not ended wait for one another.
    #[error("deadlock: {0}")]
    Deadlock(Waits),
    /// A word beyond the memory of the workload.
    #[error(
        "thread {thread} does {op:?}, but the workload has words 0 to {words} (exclusive) only"
    )]
    Outside {
        /// The thread.
        thread: usize,
        /// The operation.
        op: Op,
        /// The number of words.
        words: u64,
    },
    /// A lock, barrier, condition or event count that the workload does not have.
    #[error("thread {thread} does {op:?}, but the workload has no such object")]
    NoSuchObject {
        /// The thread.
        thread: usize,
        /// The operation.
        op: Op,
    },
    /// A thread releases a lock, or waits with a lock, that it does not hold.
    #[error("thread {thread} does {op:?} without holding the lock")]
    NotOwner {
        /// The thread.
        thread: usize,
        /// The operation.
        op: Op,
    },
    /// A thread waits for a value, but all its loads have been answered.
    #[error("thread {thread} waits for a value, but all its loads have been answered")]
    Mute {
        /// The thread.
        thread: usize,
    },
    /// The limit of operations has been reached.
    #[error("not ended after {limit} operations; does a thread spin?")]
    Limit {
        /// The limit.
        limit: u64,
    },
}
