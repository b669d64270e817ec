//! Who asks for another number of workers, and who comes or goes because of it, killed at every instruction.
//!
//! Numbers 3 and 1 have slots 0 and 1 of a pool that wants two. Whatever becomes of the victim, the number that is wanted stands
//! beside the word of him who said it, wholly the one before or wholly the one asked for; as many come or are too many as that
//! says; and of those who come, those who have the places of the dead say that they came for these, the others what was said.

use super::case::{Case, OfPool};
use super::world::{LEAF, SHAPE, Way, World};
use crate::PoolError;
use crate::crew::Crew;
use crate::engine::ClaimPoint;
use crate::jobs::JobState;
use crate::layout::{Hand, Shape};
use crate::pool::{AskPoint, Load, Trigger, ask, is_surplus, wants_a_spare, why_came};
use outlive_prove::kill::{Crash, Marked, Suite, Sweep};

/// Adds the sweeps of this file.
pub fn add_to(suite: &mut Suite) {
    for case in Request::SOUND {
        suite.add(OfPool(case));
    }
    suite.declare::<AskPoint>();
}

/// Ways to get it wrong: they must fail, each with a part of what must be said.
pub fn broken() -> Vec<(Box<dyn Sweep>, &'static str)> {
    vec![
        (
            Box::new(OfPool(Request::AsksInTwoSteps)),
            "nobody has said that",
        ),
        (
            Box::new(OfPool(Request::CountsWhoIsMissing)),
            "why a spare comes",
        ),
    ]
}

/// What the victim is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    /// Asks for one more.
    AsksForMore,
    /// Asks for one fewer.
    AsksForFewer,
    /// Asks for one more, and then for as many as before.
    TakesItBack,
    /// Asks when none are wanted any more.
    AsksTooLate,
    /// Comes since one more is asked for, works, is one too many since one fewer is, and goes.
    ComesAndGoes,
    /// Comes since one more is asked for, asks for one more still, and goes.
    AsksAsItWorks,
    /// Broken: says how many, and then whose word it is.
    AsksInTwoSteps,
    /// Broken: as the last but one; and why a spare comes is said by how many are missing before it has a place.
    CountsWhoIsMissing,
}

const BEFORE: (u32, Trigger) = (2, Trigger::Beginning);

const ASKED: [(u32, Trigger); 5] = [
    (0, Trigger::Request),
    (1, Trigger::Request),
    (2, Trigger::Request),
    (3, Trigger::Request),
    (4, Trigger::Request),
];

impl Request {
    const SOUND: [Self; 6] = [
        Self::AsksForMore,
        Self::AsksForFewer,
        Self::TakesItBack,
        Self::AsksTooLate,
        Self::ComesAndGoes,
        Self::AsksAsItWorks,
    ];

    /// What is said, one after another.
    fn said(self) -> &'static [(u32, Trigger)] {
        match self {
            Self::AsksForMore | Self::AsksInTwoSteps => &[BEFORE, ASKED[3]],
            Self::AsksForFewer => &[BEFORE, ASKED[1]],
            Self::TakesItBack => &[BEFORE, ASKED[3], ASKED[2]],
            Self::AsksTooLate => &[ASKED[0]],
            Self::ComesAndGoes => &[ASKED[3], ASKED[2]],
            Self::AsksAsItWorks | Self::CountsWhoIsMissing => &[ASKED[3], ASKED[4]],
        }
    }
}

impl Case for Request {
    const WHAT: &'static str = "pool request";

    fn shape(self) -> Shape {
        Shape {
            original: BEFORE.0,
            ..SHAPE
        }
    }

    fn prepare(self, world: &World<Marked>) {
        for id in [3, 1] {
            let member = world.act_as(id);
            let local = world.local(&member);
            // He stays.
            drop(Crew::claim(world.layout, world.hand(&local)).expect("a slot"));
        }
        let member = world.act_as(3);
        let local = world.local(&member);
        match self {
            Self::AsksTooLate => world.layout.want(0),
            Self::ComesAndGoes => {
                ask(world.layout, &member, 3).expect("a barrier");
                world.submit(world.hand(&local), LEAF);
            }
            Self::AsksAsItWorks | Self::CountsWhoIsMissing => {
                ask(world.layout, &member, 3).expect("a barrier");
            }
            _ => {}
        }
    }

    fn operate(self, world: &World<Marked>, hand: Hand<'_, Marked>) -> Result<(), PoolError> {
        let (layout, member) = (world.layout, hand.heap.member());
        let before = match self {
            Self::AsksForMore => ask(layout, member, 3)?,
            Self::AsksForFewer => ask(layout, member, 1)?,
            Self::TakesItBack => {
                ask(layout, member, 3)?;
                ask(layout, member, 2)?.map(|before| before - 1)
            }
            Self::AsksTooLate => {
                assert_eq!(ask(layout, member, 2)?, None, "it is over");
                return Ok(());
            }
            Self::ComesAndGoes => return come_and_go(world, hand),
            Self::AsksAsItWorks | Self::CountsWhoIsMissing => return come_and_ask(world, hand),
            Self::AsksInTwoSteps => {
                layout.ask_for_in_two_steps(3);
                return Ok(());
            }
        };
        assert_eq!(before, Some(2), "how many were wanted");
        Ok(())
    }

    fn look(self, world: &World<Marked>, crash: &Crash) {
        self.demand_word(world, crash);
    }

    fn survive(self, world: &World<Marked>, hand: Hand<'_, Marked>, crash: &Crash) {
        let layout = world.layout;
        self.demand_word(world, crash);
        if self == Self::ComesAndGoes {
            world.work(hand, Way::default()).expect("it can be done");
        }
        // As many come as are missing, and no more.
        let load = || Load::of(layout, world.generations).expect("a barrier");
        let has_died_in = |number: &u32| {
            let owner = layout.slots.slot(*number).owner();
            owner.is_some_and(|one| world.generations.is_gone(one))
        };
        let fallen: Vec<u32> = (0..SHAPE.slots.capacity).filter(has_died_in).collect();
        let (mut spares, mut successors) = (Vec::new(), 0);
        while wants_a_spare(layout, world.generations).expect("a barrier") {
            let missing = layout.wanted() > load().own() + load().dead;
            let spare = Crew::claim(layout, hand).expect("a slot");
            let why = match (self, missing) {
                (Self::CountsWhoIsMissing, true) => layout.wanted_by().1,
                (Self::CountsWhoIsMissing, false) => Trigger::Failures,
                _ => why_came(layout, world.generations, spare.engine.before()),
            };
            let follows = why == Trigger::Failures;
            let is_said = why == layout.wanted_by().1;
            assert!(
                follows || is_said && !fallen.contains(&spare.engine.number()),
                "why a spare comes to slot {}: {why:?}, where these died: {fallen:?}",
                spare.engine.number()
            );
            successors += usize::from(follows);
            spares.push(spare);
        }
        // One for each who died, as far as anybody came, and no more.
        assert_eq!(
            successors,
            fallen.len().min(spares.len()),
            "why a spare comes: so many came for the dead of {fallen:?}"
        );
        let (own, wanted) = (load().own(), layout.wanted());
        assert!(own >= wanted, "{own} work where {wanted} are wanted");
        assert!(
            spares.is_empty() || own == wanted,
            "{own} work where {wanted} are wanted"
        );
        // And as many are too many as there are, from the last one on.
        let surplus = |number: &u32| {
            let occupant = layout.slots.slot(*number).occupant();
            let lives = occupant.is_some_and(|one| !world.generations.is_gone(one.worker));
            lives && is_surplus(layout, world.generations, *number)
        };
        let many = (0..layout.slots.used()).filter(surplus).count() as u32;
        assert_eq!(many, own - wanted, "how many are too many");
        for spare in spares {
            spare.engine.give_up().expect("nothing is held");
        }
        layout.barrier.bury(hand.heap.member()).expect("a barrier");
    }

    fn check(
        self,
        world: &World<Marked>,
        hand: Hand<'_, Marked>,
        crash: &Crash,
    ) -> Result<(), String> {
        let word = world.layout.wanted_by();
        if crash.returned && Some(&word) != self.said().last() {
            return Err(format!("what was asked for is not said, but {word:?}"));
        }
        let members = world.layout.barrier.view().map_err(|e| e.to_string())?;
        if members.members != 0 {
            return Err(format!("{members:?} is left at the barrier"));
        }
        let state = world.job(hand).map(|job| job.state());
        let is_done = state == Some(JobState::Complete);
        if self == Self::ComesAndGoes && !is_done {
            return Err(format!("the job is {state:?}"));
        }
        Ok(())
    }
}

impl Request {
    /// What is wanted is what somebody has said: nothing that was to be said later than the victim's last crash point, and nothing
    /// that had been taken back.
    fn demand_word(self, world: &World<Marked>, crash: &Crash) {
        let word = world.layout.wanted_by();
        let said = self.said();
        let asks_only = !matches!(
            self,
            Self::ComesAndGoes | Self::AsksAsItWorks | Self::CountsWhoIsMissing
        );
        let last = crash.point.map(|point| point.operation());
        let (first, end) = if crash.returned || crash.passed(ClaimPoint::GivenUp) {
            // One who goes has nothing more to say.
            (said.len() - 1, said.len())
        } else if crash.passed(AskPoint::Said) || asks_only && last == Some("barrier") {
            // Here those who sleep are told.
            (1, said.len())
        } else if last.is_none() {
            // The first word may have been said since; another was not.
            (0, said.len().min(2))
        } else {
            (0, said.len())
        };
        assert!(
            said[first..end].contains(&word),
            "nobody has said that: {word:?} after {:?}",
            crash.point
        );
    }
}

/// As one who stands by.
fn come_and_go(world: &World<Marked>, hand: Hand<'_, Marked>) -> Result<(), PoolError> {
    let (layout, member) = (world.layout, hand.heap.member());
    let way = Way {
        by_victim: true,
        ..Way::default()
    };
    let is_wanted = wants_a_spare(layout, world.generations)?;
    assert!(is_wanted, "one more was asked for");
    let mut crew = Crew::claim(layout, hand)?;
    let why = why_came(layout, world.generations, crew.engine.before());
    assert_eq!(why, Trigger::Request, "one more was asked for");
    let mine = crew.engine.number();
    let seat = layout.barrier.join(member)?;
    assert!(!is_surplus(layout, world.generations, mine));
    while let Some(run) = crew.find()? {
        world.run(&mut crew, run, way)?;
    }
    ask(layout, member, 2)?;
    assert!(is_surplus(layout, world.generations, mine));
    seat.leave()?;
    crew.engine.give_up()?;
    Ok(())
}

/// The same, but it asks for another one and goes of its own accord; and nothing is to be done.
fn come_and_ask(world: &World<Marked>, hand: Hand<'_, Marked>) -> Result<(), PoolError> {
    let (layout, member) = (world.layout, hand.heap.member());
    let crew = Crew::claim(layout, hand)?;
    let seat = layout.barrier.join(member)?;
    ask(layout, member, 4)?;
    seat.leave()?;
    crew.engine.give_up()?;
    Ok(())
}
