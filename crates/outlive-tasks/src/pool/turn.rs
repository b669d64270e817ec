//! The reasons why workers join and leave while an application runs: the two triggers of MODC
//! §3.1, and requests.

use crate::PoolError;
use crate::store::layout::Layout;
use crate::store::trigger::Trigger;
use core::ops::RangeInclusive;
use outlive::membership::{Instance, Member};
use outlive::memory::Memory;

/// A change in the state of a worker that [stands by](crate::WorkerPool::stand_by).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The worker has got a slot, and works.
    Comes {
        /// The reason.
        why: Trigger,
        /// The dead worker that it replaces, if that was an own worker of the pool.
        after: Option<Instance>,
    },
    /// The worker has become surplus, and is on standby again.
    Goes(Trigger),
}

outlive::memory::crash_points! {
    /// The crash points of a request for another number of workers.
    pub enum AskPoint for "tasks.ask" {
        /// The number and its origin are stored; sleepers are not yet notified.
        Said,
        /// Sleepers are notified.
        Told,
    }
}

/// Requests `workers` workers, on behalf of a caller outside the pool, and notifies sleepers.
/// Returns the number that was wanted before; `None` if that was 0, and then nothing is changed.
///
/// # Crash
/// The number is stored with its origin, or not. Sleepers check by themselves.
pub fn ask<M: Memory>(
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

/// Returns the range in which the pool's number of workers can be changed from outside: up to its
/// capacity, or the range in which it resizes itself.
pub fn room(layout: Layout) -> RangeInclusive<u32> {
    let capacity = layout.slots.settings().capacity;
    match layout.elastic() {
        Some(elastic) => elastic.least.min(capacity)..=elastic.most.min(capacity),
        None => 1..=capacity,
    }
}
