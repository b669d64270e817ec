//! Guests (workers in addition to those that a pool wants), and workers that come where a guest is
//! or was, killed at every instruction as they come, work and leave.
//!
//! The pool wants two workers, and accepts that one is dead. Number 3 works. The other worker never
//! came, so a spare is wanted, whatever happens to a guest: a guest that counted as one of the two
//! would keep the spare away, alive in the other's place, or dead as the one that need not be
//! replaced. Or the other worker has died, and no spare is wanted: that remains so until an own
//! worker of the pool has that place.

use super::case::{Case, OfPool};
use super::world::{LEAF, SHAPE, Way, World};
use outlive_prove::kill::{Crash, Marked, Suite, Sweep};
use outlive_tasks::engine::ClaimPoint;
use outlive_tasks::engine::slot::Occupant;
use outlive_tasks::internals::{
    Band, Crew, Elastic, Hand, JobState, Load, Shape, is_surplus, wants_a_spare,
};
use outlive_tasks::{EngineError, PoolError};

/// Adds the sweeps of this file.
pub fn add_to(suite: &mut Suite) {
    for case in Guest::SOUND {
        suite.add(OfPool(case));
    }
    suite.declare::<ClaimPoint>();
}

/// Returns the broken variants. They must fail, each with a part of the expected message.
pub fn broken() -> Vec<(Box<dyn Sweep>, &'static str)> {
    vec![
        (
            Box::new(OfPool(Guest::SaysItThen)),
            "a guest counts as a worker of the pool's own",
        ),
        (
            Box::new(OfPool(Guest::TakesTheFirst)),
            "a dead worker is forgotten",
        ),
    ]
}

/// The flag of a survivor that has worked and left.
const SURVIVED: u64 = 0;

crate::cases! {
    /// The operation of the victim.
    enum Guest {
        /// Comes as a guest, works, and leaves.
        Comes,
        /// The same, in the slot of a guest that died there.
        Follows,
        /// The same, past the slot of an own worker that died there.
        PassesBy,
        /// Finds no other slot than that, and is refused as a guest.
        IsRefused,
        /// Comes as an own worker to the slot of a guest that died there.
        Succeeds,
        /// Comes as an own worker to a slot behind that of a live guest.
        ComesBehind,
    }
    broken {
        /// Claims a slot, and then records that it is a guest.
        SaysItThen,
        /// Claims the first available slot, that of an own worker that died there.
        TakesTheFirst,
    }
}

impl Guest {
    /// Returns whether an own worker has died before, which the pool accepts.
    fn has_lost_one(self) -> bool {
        matches!(self, Self::PassesBy | Self::IsRefused | Self::TakesTheFirst)
    }

    /// Returns whether the victim is an own worker.
    fn is_own(self) -> bool {
        matches!(self, Self::Succeeds | Self::ComesBehind)
    }

    /// Returns the slot that the victim must get.
    fn slot(self) -> u32 {
        match self {
            Self::Succeeds => 1,
            _ => 2,
        }
    }
}

impl Case for Guest {
    const WHAT: &'static str = "pool guest";

    fn shape(self) -> Shape {
        let band = Band {
            failed: 0.5,
            ..Band::default()
        };
        Shape {
            original: 2,
            elastic: Some(Elastic {
                least: 1,
                most: 4,
                band,
            }),
            ..SHAPE
        }
    }

    fn prepare(self, world: &World<Marked>) {
        let come = |id: u32, is_guest: bool| {
            let member = world.act_as(id);
            let local = world.local(&member);
            let hand = world.hand(&local);
            let crew = match is_guest {
                true => Crew::claim_as_guest(world.layout, hand),
                false => Crew::claim(world.layout, hand),
            };
            // It stays.
            drop(crew.expect("a slot"));
        };
        let fall = |id: u32| {
            world.declare_dead(id);
            let member = world.act_as(3);
            world
                .recoverers
                .recover_all(&member)
                .expect("the operation succeeds");
            drop(world.join(id));
        };
        come(3, false);
        match self {
            Self::Comes | Self::SaysItThen => {}
            Self::Follows => {
                come(0, true);
                fall(0);
            }
            Self::PassesBy | Self::TakesTheFirst => {
                come(0, false);
                fall(0);
                // So that a guest tries that slot first.
                world.layout.want(1);
            }
            Self::IsRefused => {
                come(0, false);
                fall(0);
                come(1, true);
                come(2, true);
            }
            Self::Succeeds => {
                world.layout.want(1);
                come(0, true);
                fall(0);
                world.layout.want(2);
            }
            Self::ComesBehind => {
                world.layout.want(1);
                come(1, true);
                world.layout.want(2);
            }
        }
        let member = world.act_as(3);
        let local = world.local(&member);
        world.submit(world.hand(&local), LEAF);
        self.demand(world);
    }

    fn operate(self, world: &World<Marked>, hand: Hand<'_, Marked>) -> Result<(), PoolError> {
        let way = Way {
            by_victim: true,
            ..Way::default()
        };
        let layout = world.layout;
        let mut crew = match self {
            Self::SaysItThen | Self::TakesTheFirst => {
                let crew = Crew::claim(layout, hand)?;
                let slot = crew.engine.slot();
                let guest = Occupant {
                    worker: hand.me(),
                    is_guest: true,
                };
                assert!(
                    slot.claim(slot.occupant(), guest),
                    "the slot can be claimed"
                );
                crew
            }
            Self::Succeeds | Self::ComesBehind => Crew::claim(layout, hand)?,
            Self::IsRefused => {
                let refused = Crew::claim_as_guest(layout, hand).map(drop);
                let is_kept = matches!(
                    refused,
                    Err(PoolError::Engine(EngineError::NoGuestSlot {
                        capacity: 4,
                        kept: 1
                    }))
                );
                assert!(is_kept, "a slot is not kept: {refused:?}");
                return Ok(());
            }
            _ => Crew::claim_as_guest(layout, hand)?,
        };
        if Self::SOUND.contains(&self) {
            // The first slot that it may have: otherwise a place would be lost.
            assert_eq!(crew.engine.number(), self.slot(), "a slot is lost");
        }
        let seat = layout.barrier.join(hand.heap.member())?;
        while let Some(run) = crew.find()? {
            world.run(&mut crew, run, way)?;
        }
        seat.leave()?;
        crew.engine.give_up()?;
        Ok(())
    }

    fn look(self, world: &World<Marked>, _: &Crash) {
        self.demand(world);
    }

    fn survive(self, world: &World<Marked>, hand: Hand<'_, Marked>, _: &Crash) {
        if self.has_lost_one() {
            // As many as before: the pool still accepts that one is dead.
            world.layout.want(2);
        }
        self.demand(world);
        world
            .work(hand, Way::default())
            .expect("the operation succeeds");
        world.raise(SURVIVED);
    }

    fn check(self, world: &World<Marked>, hand: Hand<'_, Marked>, _: &Crash) -> Result<(), String> {
        let state = world.job(hand).map(|job| job.state());
        if state != Some(JobState::Complete) {
            return Err(format!("the job is {state:?}"));
        }
        Ok(())
    }
}

impl Guest {
    /// Asserts the conditions that always hold.
    fn demand(self, world: &World<Marked>) {
        let (layout, generations) = (world.layout, world.generations);
        let load = Load::of(layout, generations).expect("a barrier");
        let is_wanted = wants_a_spare(layout, generations).expect("a barrier");
        let in_slot = |number| layout.slots.slot(number).occupant();
        let lives = |one: &Occupant| !generations.is_gone(one.worker);
        // The victim, if it is an own worker and has its slot.
        let victim = in_slot(self.slot()).filter(|one| self.is_own() && one.worker.id == 0);
        if let Some(one) = victim.filter(lives) {
            assert!(!one.is_guest, "a worker of the pool's own is a guest");
            let is_surplus = is_surplus(layout, generations, self.slot());
            assert!(!is_surplus, "a guest in a lower slot makes it surplus");
            assert_eq!((load.own(), is_wanted), (2, false), "{load:?}");
            return;
        }
        // A survivor is an own worker. It may have had the place of a dead one, and have died there
        // or given it up again.
        let worked = !world.status(1).may_write() || world.is_raised(SURVIVED);
        let has_died = victim.is_some_and(|one| !one.is_guest);
        let may_have_died = worked || has_died;
        assert!(
            load.dead == 1 || !has_died,
            "a worker that died in its slot is not counted: {load:?}"
        );
        assert!(
            load.dead == 1 || !self.has_lost_one() || worked,
            "a dead worker is forgotten: {load:?}"
        );
        assert_eq!(
            load.own(),
            1,
            "a guest counts as a worker of the pool's own: {load:?}"
        );
        assert!(
            load.dead == 0 || load.dead == 1 && (self.has_lost_one() || may_have_died),
            "a guest counts as a dead worker: {load:?}"
        );
        let is_missing = layout.wanted() > 1 + load.dead;
        assert_eq!(is_wanted, is_missing, "a spare is wanted: {load:?}");
    }
}
