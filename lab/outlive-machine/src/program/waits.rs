//! The objects that threads wait for when no thread can go on.

use std::fmt;

use super::{BarrierId, ConditionId, EventCountId, LockId};

/// The object that a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// A lock.
    Lock {
        /// The lock.
        lock: LockId,
        /// The thread that holds it, and whether that thread has ended.
        owner: Option<(usize, bool)>,
    },
    /// The other threads at a barrier.
    Barrier {
        /// The barrier.
        barrier: BarrierId,
        /// The number of threads that have arrived.
        arrived: usize,
        /// The number of threads that take part.
        threads: usize,
    },
    /// A signal.
    Condition {
        /// The condition variable.
        condition: ConditionId,
    },
    /// Other threads, to advance an event count.
    EventCount {
        /// The count.
        count: EventCountId,
        /// How often the count has been advanced.
        is: u64,
        /// How often it must be advanced.
        wanted: u64,
    },
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lock { lock, owner } => {
                write!(f, "waits for lock {}", lock.0)?;
                match owner {
                    None => Ok(()),
                    Some((thread, false)) => write!(f, ", which thread {thread} has"),
                    Some((thread, true)) => {
                        write!(f, ", which thread {thread} has, but that thread has ended")
                    }
                }
            }
            Self::Barrier {
                barrier,
                arrived,
                threads,
            } => write!(
                f,
                "waits at barrier {}, where {arrived} of {threads} have arrived",
                barrier.0
            ),
            Self::Condition { condition } => {
                write!(f, "waits for a signal of condition {}", condition.0)
            }
            Self::EventCount { count, is, wanted } => {
                write!(
                    f,
                    "waits for event count {} to be {wanted}, which is {is}",
                    count.0
                )
            }
        }
    }
}

/// Each waiting thread, and the object that it waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waits(pub Vec<(usize, Wait)>);

impl fmt::Display for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (thread, wait)) in self.0.iter().enumerate() {
            let comma = if place == 0 { "" } else { "; " };
            write!(f, "{comma}thread {thread} {wait}")?;
        }
        Ok(())
    }
}
