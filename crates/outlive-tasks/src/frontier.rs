//! Who is not heard of: heartbeats against a global frontier (MODC §4), beside the pod's membership.
//!
//! Each worker has a heartbeat in its slot, which says how far it has come: at every beat it goes one beyond the global
//! *frontier*, if it is not there yet. The frontier follows when more than half of the workers have gone beyond it,
//! by one compare-and-swap that anybody makes. So a heart that stands still falls behind the others, and a pool in which all
//! sleep does not move at all, and nobody in it is suspected.
//!
//! Whoever looks sees hearts that lag behind the frontier, and notes since when. One that has not moved for the configured
//! time is *frozen*: that is a suspicion, for people and launchers, and no more. A frozen worker may be in a long task. Death
//! is what the pod's generations say: the kernel tells it of threads and processes, a fence of hosts, and this
//! file raises nothing.
//!
//! The heartbeat is a plain store to the worker's own line. The frontier only grows, so a worker that beats by an old
//! one falls one behind and no more.

use crate::Slots;
use core::time::Duration;
use outlive::membership::{Generations, Instance};
use outlive::memory::{Memory, Native, Offset, Ordering};
use std::time::Instant;

outlive::memory::crash_points! {
    /// Where a heartbeat may be cut short.
    pub enum FrontierPoint for "tasks.frontier" {
        /// The heart has beaten.
        Beaten,
        /// The frontier has moved.
        Advanced,
    }
}

/// The frontier of a pool's workers.
#[derive(Clone, Copy, Debug)]
pub struct Frontier<M: Memory = Native> {
    memory: M,
    at: Offset,
    slots: Slots<M>,
}

/// A worker whose heart stands still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frozen {
    /// Its slot.
    pub slot: u32,
    /// Who it is.
    pub worker: Instance,
    /// How far it has come.
    pub heartbeat: u64,
    /// Since when that has not changed, as far as the one who looks knows.
    pub since: Duration,
}

impl<M: Memory> Frontier<M> {
    /// The frontier at `at`, zero at first, of the workers in `slots`.
    pub(crate) fn new(memory: M, at: Offset, slots: Slots<M>) -> Self {
        Self { memory, at, slots }
    }

    /// How far more than half of the workers have come.
    pub fn get(self) -> u64 {
        // Relaxed: a number that only grows; nothing is read that rests on it.
        self.memory.load(self.at, Ordering::Relaxed)
    }

    /// The heart of slot `number`, the caller's, beats; the frontier follows if it can. Wait-free but for one look at all
    /// slots, when this worker goes beyond the frontier.
    ///
    /// # Crash
    /// The heart has beaten or not; the frontier is moved by another's beat.
    pub fn beat(self, generations: Generations<M>, number: u32) {
        let (slot, frontier) = (self.slots.slot(number), self.get());
        // The owner's own word.
        if slot.heartbeat() > frontier {
            return;
        }
        self.memory
            .store(slot.heartbeat_at(), frontier + 1, Ordering::Relaxed);
        self.memory.crash_point(FrontierPoint::Beaten);
        self.advance(generations, frontier);
    }

    /// Moves the frontier on from `from`, if more than half of the living workers have gone beyond it.
    fn advance(self, generations: Generations<M>, from: u64) -> bool {
        let (mut living, mut beyond) = (0u32, 0u32);
        for number in 0..self.slots.used() {
            let slot = self.slots.slot(number);
            let Some(owner) = slot.owner() else { continue };
            if !generations.is_gone(owner) {
                living += 1;
                beyond += u32::from(slot.heartbeat() > from);
            }
        }
        let moved = beyond * 2 > living
            && self
                .memory
                .compare_exchange(
                    self.at,
                    from,
                    from + 1,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                )
                .is_ok();
        if moved {
            self.memory.crash_point(FrontierPoint::Advanced);
        }
        moved
    }
}

/// One observer's notes of who has not moved, and since when.
#[derive(Debug, Default)]
pub struct Watch {
    seen: Vec<Option<(Instance, u64, Instant)>>,
}

impl Watch {
    /// Looks at all workers: those that lag behind the frontier, and have not moved for `freeze`.
    pub fn look<M: Memory>(
        &mut self,
        frontier: Frontier<M>,
        generations: Generations<M>,
        freeze: Duration,
    ) -> Vec<Frozen> {
        let (now, front) = (Instant::now(), frontier.get());
        let used = frontier.slots.used();
        self.seen.resize(used as usize, None);
        let mut frozen = Vec::new();
        for (number, seen) in (0..used).zip(&mut self.seen) {
            let slot = frontier.slots.slot(number);
            let (owner, heartbeat) = (slot.owner(), slot.heartbeat());
            let Some(worker) = owner.filter(|owner| !generations.is_gone(*owner)) else {
                *seen = None;
                continue;
            };
            let since = match *seen {
                Some((who, at, since)) if (who, at) == (worker, heartbeat) => since,
                _ => now,
            };
            *seen = Some((worker, heartbeat, since));
            let since = now - since;
            // One behind is who has not beaten since the frontier moved.
            if since >= freeze && heartbeat + 1 < front {
                frozen.push(Frozen {
                    slot: number,
                    worker,
                    heartbeat,
                    since,
                });
            }
        }
        frozen
    }
}
