//! Who works besides those whom a pool wants, and who comes where such a guest is or was, killed at every instruction of his
//! coming, working and going.
//!
//! The pool wants two workers, and accepts that one is dead. Number 3 works. The other never came, so a spare is wanted, whatever
//! becomes of a guest: one that counted for one of the two would keep it away, alive in the other's place, or dead as the one who
//! need not be replaced. Or the other has died, and none is wanted: so it stays until one of the pool's own has that place.

use super::case::{Case, OfPool};
use super::world::{LEAF, SHAPE, Way, World};
use crate::crew::Crew;
use crate::engine::ClaimPoint;
use crate::jobs::JobState;
use crate::layout::{Hand, Shape};
use crate::pool::{Band, Elastic, Load, is_surplus, wants_a_spare};
use crate::slot::Occupant;
use crate::{EngineError, PoolError};
use outlive_prove::kill::{Crash, Marked, Suite, Sweep};

/// Adds the sweeps of this file.
pub fn add_to(suite: &mut Suite) {
    for case in Guest::SOUND {
        suite.add(OfPool(case));
    }
    suite.declare::<ClaimPoint>();
}

/// Ways to get it wrong: they must fail, each with a part of what must be said.
pub fn broken() -> Vec<(Box<dyn Sweep>, &'static str)> {
    vec![
        (
            Box::new(OfPool(Guest::SaysItThen)),
            "a guest counts for one whom the pool wants",
        ),
        (
            Box::new(OfPool(Guest::TakesTheFirst)),
            "a dead one is forgotten",
        ),
    ]
}

/// The flag of a survivor who has worked, and gone.
const SURVIVED: u64 = 0;

/// What the victim is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Guest {
    /// Comes as a guest, works, and goes.
    Comes,
    /// The same, to the slot of a guest who died there.
    Follows,
    /// The same, past the slot of one of the pool's own who died there.
    PassesBy,
    /// Finds no other slot than that, and is not a guest.
    IsRefused,
    /// Is no guest, and comes to the slot of one who died there.
    Succeeds,
    /// Is no guest, and comes to a slot behind that of one who lives.
    ComesBehind,
    /// Broken: has a slot, and says then that it is a guest.
    SaysItThen,
    /// Broken: has the first slot that can be had, that of one of the pool's own who died there.
    TakesTheFirst,
}

impl Guest {
    const SOUND: [Self; 6] = [
        Self::Comes,
        Self::Follows,
        Self::PassesBy,
        Self::IsRefused,
        Self::Succeeds,
        Self::ComesBehind,
    ];

    /// Whether one of the pool's own has died before, which it accepts.
    fn has_lost_one(self) -> bool {
        matches!(self, Self::PassesBy | Self::IsRefused | Self::TakesTheFirst)
    }

    /// Whether the victim is one of the pool's own.
    fn is_own(self) -> bool {
        matches!(self, Self::Succeeds | Self::ComesBehind)
    }

    /// Which slot it is to have.
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
            // He stays.
            drop(crew.expect("a slot"));
        };
        let fall = |id: u32| {
            world.declare_dead(id);
            let member = world.act_as(3);
            world.recoverers.recover_all(&member).expect("it can be");
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
                // So that a guest looks there first.
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
                crew.engine.slot().say_guest(hand.me());
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
            // The first that it may have: a place would be lost otherwise.
            assert_eq!(crew.engine.number(), self.slot(), "a place is lost");
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
            // As many as before: it is accepted still that one is dead.
            world.layout.want(2);
        }
        self.demand(world);
        world.work(hand, Way::default()).expect("it can be done");
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
    /// What must hold whenever somebody looks.
    fn demand(self, world: &World<Marked>) {
        let (layout, generations) = (world.layout, world.generations);
        let load = Load::of(layout, generations).expect("a barrier");
        let is_wanted = wants_a_spare(layout, generations).expect("a barrier");
        let in_slot = |number| layout.slots.slot(number).occupant();
        let lives = |one: &Occupant| !generations.is_gone(one.worker);
        // The victim, if it is one of the pool's own and has its slot.
        let victim = in_slot(self.slot()).filter(|one| self.is_own() && one.worker.id == 0);
        if let Some(one) = victim.filter(lives) {
            assert!(!one.is_guest, "one of the pool's own is a guest");
            let is_surplus = is_surplus(layout, generations, self.slot());
            assert!(!is_surplus, "a guest before him sends him away");
            assert_eq!((load.own(), is_wanted), (2, false), "{load:?}");
            return;
        }
        // A survivor is one of those whom the pool wants. He may have had the place of one who was dead, and have died there or
        // given it up again.
        let worked = !world.status(1).may_write() || world.is_raised(SURVIVED);
        let has_died = victim.is_some_and(|one| !one.is_guest);
        let may_have_died = worked || has_died;
        assert!(
            load.dead == 1 || !has_died,
            "one who died in his slot is not counted: {load:?}"
        );
        assert!(
            load.dead == 1 || !self.has_lost_one() || worked,
            "a dead one is forgotten: {load:?}"
        );
        assert_eq!(
            load.own(),
            1,
            "a guest counts for one whom the pool wants: {load:?}"
        );
        assert!(
            load.dead == 0 || load.dead == 1 && (self.has_lost_one() || may_have_died),
            "a guest counts for one of the dead: {load:?}"
        );
        let is_missing = layout.wanted() > 1 + load.dead;
        assert_eq!(is_wanted, is_missing, "a spare is wanted: {load:?}");
    }
}
