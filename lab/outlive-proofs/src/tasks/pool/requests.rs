//! Requests for another number of workers, and workers that come or leave because of them, killed
//! at every instruction.
//!
//! Numbers 3 and 1 have slots 0 and 1 of a pool that wants two workers. Wherever the victim dies,
//! the wanted number and its origin belong together: they are wholly the earlier or wholly the
//! requested ones. As many workers come, or are surplus, as that number says. Workers that come in
//! the places of dead ones report that as the reason, the others report the origin of the number.

use super::case::{Case, OfPool};
use super::world::{LEAF, SHAPE, Way, World};
use outlive::memory::{Memory, Ordering};
use outlive_prove::kill::{Crash, Marked, Suite, Sweep};
use outlive_tasks::PoolError;
use outlive_tasks::engine::ClaimPoint;
use outlive_tasks::internals::{
    AskPoint, Crew, Hand, JobState, Load, Shape, Trigger, ask, is_surplus, said, wants_a_spare,
    why_came,
};

/// Adds the sweeps of this file.
pub fn add_to(suite: &mut Suite) {
    for case in Request::SOUND {
        suite.add(OfPool(case));
    }
    suite.declare::<AskPoint>();
}

/// Returns the broken variants. They must fail, each with a part of the expected message.
pub fn broken() -> Vec<(Box<dyn Sweep>, &'static str)> {
    vec![
        (
            Box::new(OfPool(Request::AsksInTwoSteps)),
            "no member made this request",
        ),
        (
            Box::new(OfPool(Request::CountsWhoIsMissing)),
            "wrong trigger of a spare",
        ),
    ]
}

crate::cases! {
    /// The operation of the victim.
    enum Request {
        /// Requests one more.
        AsksForMore,
        /// Requests one fewer.
        AsksForFewer,
        /// Requests one more, and then as many as before.
        TakesItBack,
        /// Requests workers when none are wanted any more.
        AsksTooLate,
        /// Comes since one more is requested, works, is surplus since one fewer is, and leaves.
        ComesAndGoes,
        /// Comes since one more is requested, requests yet another, and leaves.
        AsksAsItWorks,
    }
    broken {
        /// Stores the number, and then its origin.
        AsksInTwoSteps,
        /// As the last but one; and the reason of a spare is derived from the number of missing
        /// workers before it has a place.
        CountsWhoIsMissing,
    }
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
    /// Returns the requests and their origins, one after another.
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
            // It stays.
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
                assert_eq!(ask(layout, member, 2)?, None, "the request is void");
                return Ok(());
            }
            Self::ComesAndGoes => return come_and_go(world, hand),
            Self::AsksAsItWorks | Self::CountsWhoIsMissing => return come_and_ask(world, hand),
            Self::AsksInTwoSteps => {
                // The number, and then its origin.
                let (at, word) = layout.wanted_word();
                let store = |word: u64| layout.memory.store(at, word, Ordering::Relaxed);
                store(word >> 32 << 32 | 3);
                store(said(3, Trigger::Request));
                return Ok(());
            }
        };
        assert_eq!(before, Some(2), "the number of workers wanted before");
        Ok(())
    }

    fn look(self, world: &World<Marked>, crash: &Crash) {
        self.demand_word(world, crash);
    }

    fn survive(self, world: &World<Marked>, hand: Hand<'_, Marked>, crash: &Crash) {
        let layout = world.layout;
        self.demand_word(world, crash);
        if self == Self::ComesAndGoes {
            world
                .work(hand, Way::default())
                .expect("the operation succeeds");
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
                "wrong trigger of a spare at slot {}: {why:?}; the dead workers' slots are \
                 {fallen:?}",
                spare.engine.number()
            );
            successors += usize::from(follows);
            spares.push(spare);
        }
        // One for each dead worker, as far as any came, and no more.
        assert_eq!(
            successors,
            fallen.len().min(spares.len()),
            "wrong trigger of a spare: the number of successors does not match the dead workers of \
             {fallen:?}"
        );
        let (own, wanted) = (load().own(), layout.wanted());
        assert!(own >= wanted, "{own} workers where {wanted} are wanted");
        assert!(
            spares.is_empty() || own == wanted,
            "{own} workers where {wanted} are wanted"
        );
        // And the surplus is right, counted from the last slot on.
        let surplus = |number: &u32| {
            let occupant = layout.slots.slot(*number).occupant();
            let lives = occupant.is_some_and(|one| !world.generations.is_gone(one.worker));
            lives && is_surplus(layout, world.generations, *number)
        };
        let many = (0..layout.slots.used()).filter(surplus).count() as u32;
        assert_eq!(many, own - wanted, "the number of surplus workers");
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
            return Err(format!(
                "the recorded request is {word:?}, not the last one"
            ));
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
    /// Asserts that the wanted number and its origin were stored together: not later than the
    /// victim's last crash point, and not taken back since.
    fn demand_word(self, world: &World<Marked>, crash: &Crash) {
        let word = world.layout.wanted_by();
        let said = self.said();
        let asks_only = !matches!(
            self,
            Self::ComesAndGoes | Self::AsksAsItWorks | Self::CountsWhoIsMissing
        );
        let last = crash.point.map(|point| point.operation());
        let (first, end) = if crash.returned || crash.passed(ClaimPoint::GivenUp) {
            // A worker that leaves makes no more requests.
            (said.len() - 1, said.len())
        } else if crash.passed(AskPoint::Said) || asks_only && last == Some("barrier") {
            // Here sleepers are notified.
            (1, said.len())
        } else if last.is_none() {
            // The first request may have been made since; another was not.
            (0, said.len().min(2))
        } else {
            (0, said.len())
        };
        assert!(
            said[first..end].contains(&word),
            "no member made this request: {word:?} after {:?}",
            crash.point
        );
    }
}

/// Acts as a standby worker.
fn come_and_go(world: &World<Marked>, hand: Hand<'_, Marked>) -> Result<(), PoolError> {
    let (layout, member) = (world.layout, hand.heap.member());
    let way = Way {
        by_victim: true,
        ..Way::default()
    };
    let is_wanted = wants_a_spare(layout, world.generations)?;
    assert!(is_wanted, "one more worker was requested");
    let mut crew = Crew::claim(layout, hand)?;
    let why = why_came(layout, world.generations, crew.engine.before());
    assert_eq!(why, Trigger::Request, "one more worker was requested");
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

/// The same, but it requests another worker and leaves of its own accord; there is nothing to do.
fn come_and_ask(world: &World<Marked>, hand: Hand<'_, Marked>) -> Result<(), PoolError> {
    let (layout, member) = (world.layout, hand.heap.member());
    let crew = Crew::claim(layout, hand)?;
    let seat = layout.barrier.join(member)?;
    ask(layout, member, 4)?;
    seat.leave()?;
    crew.engine.give_up()?;
    Ok(())
}
