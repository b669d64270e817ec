//! Why workers come and go while an application runs: the two triggers of MODC §3.1, and whoever asks for it.

use crate::PoolError;
use crate::layout::Layout;
use core::ops::RangeInclusive;
use outlive::membership::{Instance, Member};
use outlive::memory::Memory;

/// Why a worker comes to a pool, or goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Trigger {
    /// The pool has wanted as many since it was made.
    Beginning,
    /// The number of ready tasks for each worker has left the [band](super::Band), and the pool has resized itself.
    Tasks,
    /// A worker has died, and more have than may; or it has died, and whoever comes has its place.
    Failures,
    /// Somebody has [said](super::WorkerPool::resize) how many are wanted.
    Request,
}

impl Trigger {
    /// As it stands beside the number of workers that are wanted. (Of failures nobody says a number.)
    pub(crate) fn to_bits(self) -> u32 {
        match self {
            Self::Beginning | Self::Failures => 0,
            Self::Tasks => 1,
            Self::Request => 2,
        }
    }

    pub(crate) fn from_bits(bits: u32) -> Self {
        match bits {
            1 => Self::Tasks,
            2 => Self::Request,
            _ => Self::Beginning,
        }
    }
}

/// What becomes of one who [stands by](super::WorkerPool::stand_by).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It has a place, and works.
    Comes {
        /// Why.
        why: Trigger,
        /// Who died in that place, if that was one of those whom the pool wants.
        after: Option<Instance>,
    },
    /// It is one too many, and stands by again.
    Goes(Trigger),
}

outlive::memory::crash_points! {
    /// Where it may be cut short that somebody asks for another number of workers.
    pub enum AskPoint for "tasks.ask" {
        /// It is said how many are wanted, and who said so; those who sleep have not been told.
        Said,
        /// They have.
        Told,
    }
}

/// Says for somebody else than the pool that it wants so many workers, and tells those who wait. How many were wanted; `None`
/// if none, and then nothing is said.
///
/// # Crash
/// It is said or not, and by whom with it; those who sleep look by themselves.
pub(crate) fn ask<M: Memory>(
    layout: Layout<M>,
    member: &Member<M>,
    workers: u32,
) -> Result<Option<u32>, PoolError> {
    let before = layout.ask_for(workers);
    if before.is_some() {
        layout.memory.crash_point(AskPoint::Said);
        layout.barrier.interrupt(member)?;
        layout.memory.crash_point(AskPoint::Told);
    }
    Ok(before)
}

/// Within what the number of workers of a pool can be changed from outside: its capacity, or what it resizes itself within.
pub(super) fn room(layout: Layout) -> RangeInclusive<u32> {
    let capacity = layout.slots.settings().capacity;
    match layout.elastic() {
        Some(elastic) => elastic.least.min(capacity)..=elastic.most.min(capacity),
        None => 1..=capacity,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_said_a_number_is_told_apart() {
        for said in [Trigger::Beginning, Trigger::Tasks, Trigger::Request] {
            assert_eq!(Trigger::from_bits(said.to_bits()), said);
        }
    }
}
