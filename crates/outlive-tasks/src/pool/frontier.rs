//! Detection of silent workers: heartbeats against a global frontier (MODC §4), in addition to the
//! pod's membership.
//!
//! Each worker has a heartbeat in its slot, a counter of its progress. Every beat moves the
//! heartbeat to one beyond the global *frontier*. The frontier advances when more than half of the
//! workers have gone beyond it, by one compare-and-swap that any worker makes. So a heartbeat that
//! does not advance falls behind the others. In a pool in which all workers sleep no heartbeat
//! advances, and no worker is suspected.
//!
//! An observer notes which heartbeats lag behind the frontier, and since when. A worker that has
//! not moved for the configured time is *frozen*. That is only a suspicion, for people and
//! launchers: a frozen worker may be in a long task. Deaths are recorded in the pod's generations,
//! as proved by the kernel for threads and processes and by a fence for hosts. This module raises
//! no generation.
//!
//! The heartbeat is a plain store to the worker's own line. The frontier only grows, so a worker
//! that beats on a stale frontier falls behind by one and no more.

use crate::Slots;
use core::time::Duration;
use outlive::membership::{Generations, Instance};
use outlive::memory::{Memory, Native, Offset, Ordering};
use std::time::Instant;

outlive::memory::crash_points! {
    /// The crash points of a heartbeat.
    pub enum FrontierPoint for "tasks.frontier" {
        /// The worker has stored its heartbeat.
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

/// A worker with a heartbeat that stands still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frozen {
    /// The number of the worker's slot.
    pub slot: u32,
    /// The worker's instance.
    pub worker: Instance,
    /// The number of heartbeats at which the worker stands still.
    pub heartbeat: u64,
    /// The time for which the observer has not seen the heartbeat change.
    pub since: Duration,
}

impl<M: Memory> Frontier<M> {
    /// Returns the frontier at `at`, zero at first, of the workers in `slots`.
    #[doc(hidden)]
    pub fn new(memory: M, at: Offset, slots: Slots<M>) -> Self {
        Self { memory, at, slots }
    }

    /// Returns the heartbeat that more than half of the workers have reached.
    pub fn get(self) -> u64 {
        // Relaxed: the number only grows, and no other read depends on it.
        self.memory.load(self.at, Ordering::Relaxed)
    }

    /// Beats for slot `number`, which is the caller's, and advances the frontier if possible.
    /// Wait-free except for one scan of all slots, when this worker goes beyond the frontier.
    ///
    /// # Crash
    /// The heartbeat is stored or not. Another worker's beat advances the frontier.
    pub fn beat(self, generations: Generations<M>, number: u32) {
        let (slot, frontier) = (self.slots.slot(number), self.get());
        // Only the owner writes this word.
        if slot.heartbeat() > frontier {
            return;
        }
        self.memory
            .store(slot.heartbeat_at(), frontier + 1, Ordering::Relaxed);
        self.memory.crash_point(FrontierPoint::Beaten);
        self.advance(generations, frontier);
    }

    /// Advances the frontier from `from`, if more than half of the living workers have gone beyond
    /// it.
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

/// One observer's record of the workers' heartbeats, and since when each is unchanged.
#[derive(Debug, Default)]
pub struct Watch {
    seen: Vec<Option<(Instance, u64, Instant)>>,
}

impl Watch {
    /// Returns the workers that lag behind the frontier and have not moved for `freeze`.
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
            // A worker that has not beaten since the frontier last moved is behind by one.
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
