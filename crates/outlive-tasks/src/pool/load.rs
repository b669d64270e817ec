//! How much a pool has to do, and what should come of that (MODC §3.1): more workers, fewer, or others for the dead.

use super::Trigger;
use crate::jobs::Root;
use crate::layout::Layout;
use crate::slot::Occupant;
use crate::{JobState, PoolError};
use outlive::membership::Generations;
use outlive::memory::Memory;

/// When a pool should be resized by itself (MODC §3.1).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Band {
    /// Which part of the original workers may fail, from 0 to 1.
    pub failed: f64,
    /// How few tasks may be ready for each worker.
    pub fewest: f64,
    /// How many may.
    pub most: f64,
}

impl Default for Band {
    /// A quarter of the workers may fail; 64 tasks may be ready for each, and none need be.
    fn default() -> Self {
        Self {
            failed: 0.25,
            fewest: 0.0,
            most: 64.0,
        }
    }
}

/// What a launcher should do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Nothing.
    Stay,
    /// So many of the original workers have failed that as many should be started.
    Replace(u32),
    /// Each worker has more to do than it should: start so many.
    Grow(u32),
    /// There is so little to do that so many can go: [`WorkerPool::resize`](super::WorkerPool::resize).
    Shrink(u32),
}

/// Within what a pool resizes itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Elastic {
    /// How few workers it may want.
    pub least: u32,
    /// How many.
    pub most: u32,
    /// When it wants others.
    pub band: Band,
}

/// How much there is to do, and for how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Load {
    /// Workers that live.
    pub living: u32,
    /// How many of them work besides those whom the pool wants, and replace nobody.
    pub guests: u32,
    /// Workers that died, and whose places nobody has taken; but for guests.
    pub dead: u32,
    /// Tasks that are ready, in all deques.
    pub ready: u64,
    /// Workers that wait at the barrier.
    pub waiting: u32,
    /// Whether a job is open.
    pub is_open: bool,
}

/// How many workers live.
pub(crate) fn living<M: Memory>(layout: Layout<M>, generations: Generations<M>) -> u32 {
    census(layout, generations).0
}

/// How many of them are of those whom the pool wants.
pub(crate) fn own<M: Memory>(layout: Layout<M>, generations: Generations<M>) -> u32 {
    let (living, guests, _) = census(layout, generations);
    living - guests
}

/// Whether the worker of slot `number`, who is not a guest, is one too many: of those that are, the last slots' are.
#[inline]
pub(crate) fn is_surplus<M: Memory>(
    layout: Layout<M>,
    generations: Generations<M>,
    number: u32,
) -> bool {
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

/// Whether a spare is wanted.
pub(crate) fn wants_a_spare<M: Memory>(
    layout: Layout<M>,
    generations: Generations<M>,
) -> Result<bool, PoolError> {
    let load = Load::of(layout, generations)?;
    Ok(load.wants_a_spare(layout.wanted(), layout.original(), layout.elastic()))
}

/// Why one of those whom the pool wants is there, who has claimed a place where `before` was. The place decides, not how many
/// were missing before he had it: when some have died and more are wanted at the same time, as many come for the dead as have
/// died.
pub(crate) fn why_came<M: Memory>(
    layout: Layout<M>,
    generations: Generations<M>,
    before: Option<Occupant>,
) -> Trigger {
    let (wanted, said) = layout.wanted_by();
    if wanted > layout.slots.settings().capacity {
        // Whoever comes is welcome, and would have been if nobody had died.
        return said;
    }
    if is_of_the_pool(before) {
        return Trigger::Failures;
    }
    let (living, guests, dead) = census(layout, generations);
    // He is among the living.
    let others = living.saturating_sub(guests + 1);
    // As many had come as are wanted: a dead one is missing, whose place was not the first, or could not be had.
    match dead > 0 && others + dead >= wanted {
        true => Trigger::Failures,
        false => said,
    }
}

/// Whether somebody is there who is one of those whom the pool wants.
fn is_of_the_pool(occupant: Option<Occupant>) -> bool {
    occupant.is_some_and(|one| !one.is_guest)
}

/// How many workers live; how many of them are guests; and how many others died whose places nobody has taken.
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
    /// The present one, one slot after another as they are read.
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

    /// Workers that live and are of those whom the pool wants.
    pub fn own(&self) -> u32 {
        // Each is read by itself.
        self.living.saturating_sub(self.guests)
    }

    /// Whether so many of `original` workers are missing that they should be replaced.
    pub fn has_lost(&self, original: u32, band: Band) -> bool {
        original != u32::MAX && f64::from(self.own()) < f64::from(original) * (1.0 - band.failed)
    }

    /// What the number of ready tasks for each worker says, guests too; there is room for so many more. Guests are not sent away.
    pub fn advice(&self, band: Band, room: u32) -> Advice {
        if self.living == 0 {
            return Advice::Stay;
        }
        let each = self.ready as f64 / f64::from(self.living);
        if each > band.most && room > 0 {
            return Advice::Grow(self.living.min(room));
        }
        // At least so many of those who wait are none.
        let waiting = self.waiting.saturating_sub(self.guests);
        let waiting = waiting.min(self.own().saturating_sub(1));
        if each < band.fewest && waiting > 0 && self.is_open {
            return Advice::Shrink(waiting);
        }
        Advice::Stay
    }

    /// Whether a spare is wanted in a pool that began with `original` workers and wants `wanted`. One that does not resize
    /// itself replaces all its dead.
    pub fn wants_a_spare(&self, wanted: u32, original: u32, elastic: Option<Elastic>) -> bool {
        let accepted = elastic.map_or(0, |Elastic { band, .. }| {
            // Of a part of what is not a number of workers, nothing.
            let original = if original == u32::MAX { 0 } else { original };
            (f64::from(original) * band.failed) as u32
        });
        // One at least is replaced in any event: nobody would ever look again.
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
        // The last one: of a pool that has become smaller, and of one that accepts all deaths.
        let nobody = Load {
            living: 0,
            dead: 1,
            ..LOAD
        };
        assert!(nobody.wants_a_spare(1, 4, elastic(0.25)));
        assert!(
            lost(4).wants_a_spare(4, 4, elastic(1.0)) && !lost(3).wants_a_spare(4, 4, elastic(1.0))
        );
        // Guests replace nobody: neither for spares nor for who starts workers.
        let visited = |guests, dead| Load {
            living: 4 - dead + guests,
            guests,
            ..lost(dead)
        };
        assert!(!visited(3, 0).wants_a_spare(4, 4, None));
        assert!(visited(1, 1).wants_a_spare(4, 4, None));
        assert!(visited(3, 3).wants_a_spare(4, 4, elastic(0.5)));
        assert!(visited(3, 3).has_lost(4, band(0.5, 0.0, 64.0)));
        // More are wanted than there are, whoever died.
        assert!(lost(1).wants_a_spare(5, 4, elastic(0.5)));
        assert!(!lost(4).has_lost(u32::MAX, band(0.5, 0.0, 64.0)));
        assert!(lost(3).has_lost(4, band(0.5, 0.0, 64.0)));
        assert!(!lost(2).has_lost(4, band(0.5, 0.0, 64.0)));
    }
}
