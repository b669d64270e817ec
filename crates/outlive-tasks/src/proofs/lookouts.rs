//! Tasks that wait though they have all that they wait for: found by who is idle, or by a judge, and begun once.
//!
//! *Killed at every instruction.* Number 2 has run what readied more than its deque has room for, in a full heap, and what it had room
//! for. The victim, number 0, finds those that wait, and runs them; 1 goes on, and then 2.
//!
//! *Under interleavings and deaths.* Number 2 brings what a task waits for while 0 and 1 look, who never come to the barrier, as those beside whom somebody
//! works for ever: so no judge finds it for them.

use super::case::{Case, OfPool};
use super::sweeps::{LARGER_ARRAY, demand_fan};
use super::world::{COPY_KEY, FAN, NAME, Way, World, bytes};
use crate::PoolError;
use crate::crew::{Crew, Judged, ticket_of};
use crate::engine::StartWaitingPoint;
use crate::jobs::JobState;
use crate::layout::Hand;
use outlive::memory::Memory;
use outlive_prove::fixtures::weakened::Weakened;
use outlive_prove::kill::{Crash, Marked, Suite, Sweep};
use outlive_prove::scenarios::Proof;
use outlive_prove::schedule::{self, Bounds, End, Proving, Scenario, Scheduled};
use std::sync::OnceLock;

/// Adds the sweeps of this file.
pub fn add_to(suite: &mut Suite) {
    for case in [Find::Finds, Find::Judges] {
        suite.add(OfPool(case));
    }
    suite.declare::<StartWaitingPoint>();
}

/// Ways to get the sweeps wrong: they must fail, each with a part of what must be said.
pub fn broken_sweeps() -> Vec<(Box<dyn Sweep>, &'static str)> {
    vec![(Box::new(OfPool(Find::FindsWithoutNote)), "key 6 was run")]
}

/// What the victim does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Find {
    /// Looks for those that wait, and runs them.
    Finds,
    /// Judges, when all calls are answered, and runs what is found then.
    Judges,
    /// Broken: as `Finds`, but a task is ready before the running slot has it.
    FindsWithoutNote,
}

impl Case for Find {
    const WHAT: &'static str = "pool waiters";

    fn prepare(self, world: &World<Marked>) {
        let run_one = |submits: bool| {
            let member = world.act_as(2);
            let local = world.local(&member);
            let hand = world.hand(&local);
            if submits {
                world.submit(hand, FAN);
            }
            let mut crew = Crew::claim(world.layout, hand).expect("a slot");
            let run = crew.find_ready().expect("it can be");
            let is_one = run.is_some();
            if let Some(run) = run {
                world.run(&mut crew, run, Way::default()).expect("room");
            }
            crew.engine.give_up().expect("nothing is held");
            is_one
        };
        assert!(run_one(true), "the root");
        world.fill(LARGER_ARRAY);
        while run_one(false) {}
        assert!(!world.layout.calls().1, "all found room");
        if self == Self::Judges {
            world.layout.answer(world.layout.calls().0);
        }
    }

    fn operate(self, world: &World<Marked>, hand: Hand<'_, Marked>) -> Result<(), PoolError> {
        let way = Way {
            by_victim: true,
            ..Way::default()
        };
        let mut crew = Crew::claim(world.layout, hand)?;
        crew.forgets_to_note = self == Self::FindsWithoutNote;
        if self == Self::Judges {
            let mut seat = world.layout.barrier.join(hand.heap.member())?;
            let moment = world.layout.barrier.moment()?;
            assert!(crew.find()?.is_none(), "nobody has called");
            let arrival = seat.arrive_since(moment)?.expect("there is nobody else");
            let (ticket, _) = ticket_of(arrival);
            match crew.judge(&mut seat, &ticket, |_| "a task".into())? {
                Judged::Run(run) => world.run(&mut crew, run, way)?,
                other => panic!("the judge found {other:?}"),
            }
            seat.leave()?;
        }
        while let Some(run) = crew.find()? {
            world.run(&mut crew, run, way)?;
        }
        crew.engine.give_up()?;
        Ok(())
    }

    fn survive(self, world: &World<Marked>, hand: Hand<'_, Marked>, _: &Crash) {
        for _ in 0..2 {
            world.work(hand, Way::default()).expect("it can be done");
        }
    }

    fn check(
        self,
        world: &World<Marked>,
        hand: Hand<'_, Marked>,
        crash: &Crash,
    ) -> Result<(), String> {
        demand_fan(world, hand, crash)
    }
}

/// The scenarios of this file.
pub fn all() -> Vec<Proof> {
    let deep = |deaths| bounds().preemptions(4).stale_reads(3).deaths(deaths);
    [0, 1]
        .map(|deaths| {
            let scenario = brought(deaths, Answer::Sound);
            Proof::of_some(scenario, deep(deaths), 300, 50_000)
        })
        .into()
}

/// Scenarios that must fail within these bounds, each with a part of what must be said.
pub fn broken() -> Vec<(Scenario, Bounds, &'static str)> {
    vec![(
        brought(0, Answer::Late),
        bounds().preemptions(1).executions(50_000),
        // Whoever looks, looks for ever.
        "it went on for",
    )]
}

fn bounds() -> Bounds {
    Bounds::default()
        .preemptions(1)
        .stale_reads(0)
        .deaths(0)
        .executions(100_000)
}

/// Which calls need no look after a walk that found nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// Those before it.
    Sound,
    /// Broken: all that there are.
    Late,
}

type Memories = Weakened<Scheduled>;

/// How many slabs the heap of the scenarios has room for.
const FEW_SLABS: u64 = 20;

/// The handles; the memory behind them is each execution's own.
fn world() -> &'static World<Memories> {
    static WORLD: OnceLock<World<Memories>> = OnceLock::new();
    WORLD.get_or_init(|| World::open(Weakened::sound(Scheduled::handle())))
}

/// A task waits for what is brought from outside, and there is a call from before.
fn brought(deaths: u32, answer: Answer) -> Scenario {
    let idle = move |id: u32| {
        let world = world();
        let member = world.act_as(id);
        let local = world.local(&member);
        let mut crew = Crew::claim(world.layout, world.hand(&local)).expect("a slot");
        crew.lookout.answers_late = answer == Answer::Late;
        while world.runs(COPY_KEY.into()) == (0, 0) {
            match crew.find().expect("it can be") {
                Some(run) => world.run(&mut crew, run, Way::default()).expect("room"),
                None => world.memory.spin_hint(),
            }
        }
        crew.engine.give_up().expect("nothing is held");
    };
    let scenario = schedule::scenario(&format!(
        "who is idle finds who waits, {answer:?}, {deaths} deaths"
    ))
    .memory(bytes(FEW_SLABS))
    .prepare(|m| {
        let world = World::create(Weakened::sound(m), FEW_SLABS);
        let member = world.act_as(3);
        let local = world.local(&member);
        let hand = world.hand(&local);
        world.submit(hand, NAME);
        let mut crew = Crew::claim(world.layout, hand).expect("a slot");
        let run = crew.find().expect("it can be").expect("the root");
        world.run(&mut crew, run, Way::default()).expect("room");
        crew.engine.give_up().expect("nothing is held");
        world.layout.call();
    })
    .on_death(|_, host| world().die(host as u32));
    // Whoever dies has another beside him.
    let scenario = (0..1 + deaths).fold(scenario, |scenario, id| {
        scenario.mortal(&format!("idle {id}"), move |_| idle(id))
    });
    { scenario }
        .thread("bringer", |_| {
            let world = world();
            let member = world.act_as(2);
            let local = world.local(&member);
            world.put_number(world.hand(&local));
        })
        .check(|_, end: &End<()>| {
            let world = world();
            let last = world.act_as(3);
            let local = world.local(&last);
            let hand = world.hand(&local);
            world.recoverers.recover_all(&last).expect("they can be");
            world.work(hand, Way::default()).expect("it can be done");
            let state = world.job(hand).map(|job| job.state());
            assert_eq!(state, Some(JobState::Complete));
            let (_, runs) = world.runs(COPY_KEY.into());
            let most = 1 + end.deaths() as u64;
            assert!((1..=most).contains(&runs), "the task was run {runs} times");
            world.recoverers.recover_all(&last).expect("they can be");
            world
                .demand_sound(&local)
                .unwrap_or_else(|wrong| panic!("{wrong}"));
        })
}
