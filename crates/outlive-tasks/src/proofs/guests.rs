//! Who works besides those whom a pool wants, killed at every instruction of his coming, working and going.
//!
//! The pool wants two workers, and accepts that one is dead. Number 3 works; the other never came. So a spare is wanted, whatever
//! becomes of a guest: one that counted for one of the two would keep it away, alive in the other's place, or dead as the one who
//! need not be replaced.

use super::case::{Case, OfPool};
use super::world::{LEAF, SHAPE, Way, World};
use crate::PoolError;
use crate::crew::Crew;
use crate::engine::ClaimPoint;
use crate::jobs::JobState;
use crate::layout::{Hand, Shape};
use crate::pool::{Band, Elastic, Load, Trigger, wants_a_spare};
use outlive_prove::kill::{Crash, Marked, Suite, Sweep};

/// Adds the sweeps of this file.
pub fn add_to(suite: &mut Suite) {
    suite.add(OfPool(Guest::Comes)).add(OfPool(Guest::Follows));
    suite.declare::<ClaimPoint>();
}

/// Ways to get it wrong: they must fail, each with a part of what must be said.
pub fn broken() -> Vec<(Box<dyn Sweep>, &'static str)> {
    vec![(
        Box::new(OfPool(Guest::SaysItThen)),
        "a guest counts for one whom the pool wants",
    )]
}

/// What the victim is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Guest {
    /// Comes as a guest, works, and goes.
    Comes,
    /// The same, to the slot of a guest who died there.
    Follows,
    /// Broken: has a slot, and says then that it is a guest.
    SaysItThen,
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
        if self == Self::Follows {
            come(0, true);
            world.declare_dead(0);
            let member = world.act_as(3);
            world.recoverers.recover_all(&member).expect("it can be");
            drop(world.join(0));
        }
        come(3, false);
        let member = world.act_as(3);
        let local = world.local(&member);
        world.submit(world.hand(&local), LEAF);
        demand_one(world);
    }

    fn operate(self, world: &World<Marked>, hand: Hand<'_, Marked>) -> Result<(), PoolError> {
        let way = Way {
            by_victim: true,
            ..Way::default()
        };
        let mut crew = match self {
            Self::SaysItThen => {
                let crew = Crew::claim(world.layout, hand)?;
                crew.engine.slot().say_guest(hand.me());
                crew
            }
            _ => Crew::claim_as_guest(world.layout, hand)?,
        };
        if self != Self::SaysItThen {
            // The first place beyond those of the pool's own, where in one case a guest has died.
            assert_eq!(crew.engine.number(), 2, "a place is lost");
        }
        let seat = world.layout.barrier.join(hand.heap.member())?;
        while let Some(run) = crew.find()? {
            world.run(&mut crew, run, way)?;
        }
        seat.leave()?;
        crew.engine.give_up()?;
        Ok(())
    }

    fn look(self, world: &World<Marked>) {
        demand_one(world);
    }

    fn survive(self, world: &World<Marked>, hand: Hand<'_, Marked>, _: &Crash) {
        demand_one(world);
        world.work(hand, Way::default()).expect("it can be done");
    }

    fn check(self, world: &World<Marked>, hand: Hand<'_, Marked>, _: &Crash) -> Result<(), String> {
        let state = world.job(hand).map(|job| job.state());
        if state != Some(JobState::Complete) {
            return Err(format!("the job is {state:?}"));
        }
        Ok(())
    }
}

/// One works of those whom the pool wants, nobody of them has died, and a spare is wanted.
fn demand_one(world: &World<Marked>) {
    let (layout, generations) = (world.layout, world.generations);
    let load = Load::of(layout, generations).expect("a barrier");
    // A survivor who dies while he works is one of those whom the pool wants.
    let survivor = |load: &Load| load.dead == 1 && !world.status(1).may_write();
    let is_one = load.own() == 1 && (load.dead == 0 || survivor(&load));
    let why = wants_a_spare(layout, generations).expect("a barrier");
    let is_wanted = why == Some(Trigger::Beginning) || survivor(&load);
    assert!(
        is_one && is_wanted,
        "a guest counts for one whom the pool wants: {load:?}, a spare is wanted: {why:?}"
    );
}
