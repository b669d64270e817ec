//! Why a program did not end on the machine without time.

use thiserror::Error;

use super::super::{Op, Waits};

/// Why a program did not end.
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
        /// Who.
        thread: usize,
        /// What it did.
        op: Op,
        /// How many words there are.
        words: u64,
    },
    /// A lock, barrier, condition or event count that the workload does not have.
    #[error("thread {thread} does {op:?}, but the workload has no such object")]
    NoSuchObject {
        /// Who.
        thread: usize,
        /// What it did.
        op: Op,
    },
    /// A lock was given back or waited with by a thread that does not have it.
    #[error("thread {thread} does {op:?} without having the lock")]
    NotOwner {
        /// Who.
        thread: usize,
        /// What it did.
        op: Op,
    },
    /// A thread waits for a value, but all its loads have been answered.
    #[error("thread {thread} waits for a value, but all its loads have been answered")]
    Mute {
        /// Who.
        thread: usize,
    },
    /// As many operations as were allowed.
    #[error("not ended after {limit} operations; does a thread spin?")]
    Limit {
        /// How many.
        limit: u64,
    },
}
