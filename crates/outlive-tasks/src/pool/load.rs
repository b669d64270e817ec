//! The load of a pool, and the change that follows (MODC §3.1): more workers, fewer, or
//! replacements for dead ones.
//!
//! A pool's *own* workers count toward the number that it wants. *Guests* are additional workers,
//! and replace none.

use crate::engine::slot::Occupant;
use crate::store::band::{Band, Elastic};
use crate::store::jobs::Root;
use crate::store::layout::Layout;
use crate::store::trigger::Trigger;
use crate::{JobState, PoolError};
use outlive::membership::Generations;
use outlive::memory::Memory;

/// Advice for a launcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// The number of workers need not change.
    Stay,
    /// This many workers should be started, because too many of the original ones have failed.
    Replace(u32),
    /// This many workers should be started, because each worker has too many ready tasks.
    Grow(u32),
    /// This many workers can leave, because there are too few ready tasks: call
    /// [`WorkerPool::resize`](crate::WorkerPool::resize).
    Shrink(u32),
}

/// The number of ready tasks, and of workers for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// The number of live workers.
    pub living: u32,
    /// The number of guests among them.
    pub guests: u32,
    /// The number of own workers that died, and were not replaced in their slots.
    pub dead: u32,
    /// The number of ready tasks in all deques.
    pub ready: u64,
    /// The number of workers that wait at the barrier.
    pub waiting: u32,
    /// Whether a job is open.
    pub is_open: bool,
}

/// Returns the number of live workers.
pub fn living<M: Memory>(layout: Layout<M>, generations: Generations<M>) -> u32 {
    census(layout, generations).0
}

/// Returns the number of live own workers.
pub fn own<M: Memory>(layout: Layout<M>, generations: Generations<M>) -> u32 {
    let (living, guests, _) = census(layout, generations);
    living - guests
}

/// Returns whether the own worker of slot `number` is surplus. Of the own workers, those in the
/// last slots are surplus first.
#[inline]
pub fn is_surplus<M: Memory>(layout: Layout<M>, generations: Generations<M>, number: u32) -> bool {
    let wanted = layout.wanted();
    if number < wanted {
        return false;
    }
    let counts = |before: &u32| {
        let occupant = layout.slots.slot(*before).occupant();
        occupant.is_some_and(|one| !one.is_guest && !generations.is_gone(one.worker))
    };
    (0..number).filter(counts).count() as u64 >= u64::from(wanted)
}

/// Returns whether the pool needs a spare to start working.
pub fn wants_a_spare<M: Memory>(
    layout: Layout<M>,
    generations: Generations<M>,
) -> Result<bool, PoolError> {
    let load = Load::of(layout, generations)?;
    Ok(load.wants_a_spare(layout.wanted(), layout.original(), layout.elastic()))
}

/// Returns the reason why an own worker that claimed the slot of `before` has started. The previous
/// occupant of the slot determines the reason, and not the number of workers that were missing. So
/// if workers have died and more workers are requested at the same time, the number of workers that
/// start to replace dead ones is the number that died.
pub fn why_came<M: Memory>(
    layout: Layout<M>,
    generations: Generations<M>,
    before: Option<Occupant>,
) -> Trigger {
    let (wanted, said) = layout.wanted_by();
    if wanted > layout.slots.settings().capacity {
        // Every worker is wanted, and would be if none had died.
        return said;
    }
    if is_of_the_pool(before) {
        return Trigger::Failures;
    }
    let (living, guests, dead) = census(layout, generations);
    // The new worker is among the living.
    let others = living.saturating_sub(guests + 1);
    // Live and dead own workers make up the wanted number: this worker replaces a dead one, of a
    // slot that was not the first, or was not available.
    match dead > 0 && others + dead >= wanted {
        true => Trigger::Failures,
        false => said,
    }
}

/// Returns whether `occupant` is an own worker.
fn is_of_the_pool(occupant: Option<Occupant>) -> bool {
    occupant.is_some_and(|one| !one.is_guest)
}

/// Returns the numbers of live workers, of guests among them, and of dead own workers in slots
/// without a successor.
fn census<M: Memory>(layout: Layout<M>, generations: Generations<M>) -> (u32, u32, u32) {
    let slots = (0..layout.slots.used()).filter_map(|number| layout.slots.slot(number).occupant());
    slots.fold((0, 0, 0), |(living, guests, dead), occupant| {
        match (generations.is_gone(occupant.worker), occupant.is_guest) {
            (false, is_guest) => (living + 1, guests + u32::from(is_guest), dead),
            (true, false) => (living, guests, dead + 1),
            (true, true) => (living, guests, dead),
        }
    })
}

impl Load {
    /// Returns the current load. The slots are read one after another.
    pub fn of<M: Memory>(
        layout: Layout<M>,
        generations: Generations<M>,
    ) -> Result<Self, PoolError> {
        let (living, guests, dead) = census(layout, generations);
        let queued = |number| layout.slots.slot(number).queued();
        let is_open = |number: u32| {
            let job = Root::of(layout, number).job();
            job.is_some_and(|job| job.state() == JobState::Open)
        };
        Ok(Self {
            living,
            guests,
            dead,
            ready: (0..layout.slots.used()).map(queued).sum(),
            waiting: layout.barrier.view()?.waiting,
            is_open: (0..layout.roots).any(is_open),
        })
    }

    /// Returns the number of live own workers.
    pub fn own(&self) -> u32 {
        // The two numbers are read separately.
        self.living.saturating_sub(self.guests)
    }

    /// Returns whether more of the `original` workers are missing than `band` allows, so that they
    /// should be replaced.
    pub fn has_lost(&self, original: u32, band: Band) -> bool {
        original != u32::MAX && f64::from(self.own()) < f64::from(original) * (1.0 - band.failed)
    }

    /// Returns the advice that follows from the number of ready tasks per worker, guests included,
    /// for a pool that can have `room` more workers. Guests are never surplus.
    pub fn advice(&self, band: Band, room: u32) -> Advice {
        if self.living == 0 {
            return Advice::Stay;
        }
        let each = self.ready as f64 / f64::from(self.living);
        if each > band.most && room > 0 {
            return Advice::Grow(self.living.min(room));
        }
        // At least this many of the waiting workers are not guests.
        let waiting = self.waiting.saturating_sub(self.guests);
        let waiting = waiting.min(self.own().saturating_sub(1));
        if each < band.fewest && waiting > 0 && self.is_open {
            return Advice::Shrink(waiting);
        }
        Advice::Stay
    }

    /// Returns whether a pool that began with `original` workers and wants `wanted` needs a spare.
    /// A pool that does not resize itself replaces all its dead workers.
    pub fn wants_a_spare(&self, wanted: u32, original: u32, elastic: Option<Elastic>) -> bool {
        let accepted = elastic.map_or(0, |Elastic { band, .. }| {
            // `u32::MAX` is not a number of workers, so no part of it is accepted.
            let original = if original == u32::MAX { 0 } else { original };
            (f64::from(original) * band.failed) as u32
        });
        // At least one worker is replaced: with none alive, none would check again.
        let accepted = accepted.min(wanted.saturating_sub(1));
        self.own() + self.dead.min(accepted) < wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOAD: Load = Load {
        living: 4,
        guests: 0,
        dead: 0,
        ready: 0,
        waiting: 0,
        is_open: true,
    };

    fn band(failed: f64, fewest: f64, most: f64) -> Band {
        Band {
            failed,
            fewest,
            most,
        }
    }

    #[test]
    fn ready_tasks_outside_of_the_band_ask_for_others() {
        let band = band(0.0, 1.0, 8.0);
        let with = |ready, waiting| Load {
            ready,
            waiting,
            ..LOAD
        };
        assert_eq!(with(32, 0).advice(band, 60), Advice::Stay);
        assert_eq!(with(33, 0).advice(band, 60), Advice::Grow(4));
        assert_eq!(with(33, 0).advice(band, 1), Advice::Grow(1));
        assert_eq!(with(33, 0).advice(band, 0), Advice::Stay);
        assert_eq!(with(3, 2).advice(band, 60), Advice::Shrink(2));
        assert_eq!(with(3, 4).advice(band, 60), Advice::Shrink(3));
        assert_eq!(with(3, 0).advice(band, 60), Advice::Stay);
        let idle = Load {
            is_open: false,
            ..with(0, 3)
        };
        assert_eq!(idle.advice(band, 60), Advice::Stay);
    }

    #[test]
    fn as_many_of_the_dead_as_the_band_says_are_not_replaced() {
        let elastic = |failed| {
            Some(Elastic {
                least: 1,
                most: 8,
                band: band(failed, 0.0, 64.0),
            })
        };
        let lost = |dead| Load {
            living: 4 - dead,
            dead,
            ..LOAD
        };
        for dead in 0..=4 {
            assert_eq!(lost(dead).wants_a_spare(4, 4, None), dead > 0);
            assert_eq!(lost(dead).wants_a_spare(4, 4, elastic(0.5)), dead > 2);
            assert_eq!(lost(dead).wants_a_spare(4, 4, elastic(0.0)), dead > 0);
        }
        // The last worker: of a pool that has become smaller, and of one that accepts all deaths.
        let nobody = Load {
            living: 0,
            dead: 1,
            ..LOAD
        };
        assert!(nobody.wants_a_spare(1, 4, elastic(0.25)));
        assert!(
            lost(4).wants_a_spare(4, 4, elastic(1.0)) && !lost(3).wants_a_spare(4, 4, elastic(1.0))
        );
        // Guests replace no own worker, neither for spares nor for launchers.
        let visited = |guests, dead| Load {
            living: 4 - dead + guests,
            guests,
            ..lost(dead)
        };
        assert!(!visited(3, 0).wants_a_spare(4, 4, None));
        assert!(visited(1, 1).wants_a_spare(4, 4, None));
        assert!(visited(3, 3).wants_a_spare(4, 4, elastic(0.5)));
        assert!(visited(3, 3).has_lost(4, band(0.5, 0.0, 64.0)));
        // More are wanted than exist, regardless of deaths.
        assert!(lost(1).wants_a_spare(5, 4, elastic(0.5)));
        assert!(!lost(4).has_lost(u32::MAX, band(0.5, 0.0, 64.0)));
        assert!(lost(3).has_lost(4, band(0.5, 0.0, 64.0)));
        assert!(!lost(2).has_lost(4, band(0.5, 0.0, 64.0)));
    }
}
