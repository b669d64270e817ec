//! Who waits for what, when nobody can go on.

use std::fmt;

use super::{BarrierId, ConditionId, EventCountId, LockId};

/// What a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// A lock.
    Lock {
        /// Which.
        lock: LockId,
        /// Who has it, and whether that thread has ended.
        owner: Option<(usize, bool)>,
    },
    /// The others at a barrier.
    Barrier {
        /// Which.
        barrier: BarrierId,
        /// How many have arrived.
        arrived: usize,
        /// How many take part.
        threads: usize,
    },
    /// A signal.
    Condition {
        /// Of which condition variable.
        condition: ConditionId,
    },
    /// Others to advance an event count.
    EventCount {
        /// Which.
        count: EventCountId,
        /// How often it has been advanced.
        is: u64,
        /// How often it must have been.
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
                        write!(f, ", which thread {thread} has, which has ended")
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

/// Each thread that waits, and for what.
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
