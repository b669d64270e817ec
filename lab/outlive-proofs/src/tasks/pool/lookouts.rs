//! Tasks that wait although everything that they wait for exists: an idle worker or a judge finds
//! them, and they are begun once.
//!
//! *Killed at every instruction.* Number 2 has run a task that readied more tasks than its deque
//! has space for, in a full heap, and those that had space. The victim, number 0, finds the waiting
//! ones, and runs them; 1 continues, and then 2.
//!
//! *Under interleavings and deaths.* Number 2 brings the data that a task waits for while 0 and 1
//! search. These never come to the barrier, as if another worker worked for ever: so no judge finds
//! the task for them.

use super::case::{Case, OfPool};
use super::scenarios::bounds;
use super::sweeps::{LARGER_ARRAY, demand_fan};
use super::world::{COPY_KEY, FAN, NAME, Way, World, bytes};
use outlive::memory::Memory;
use outlive_prove::kill::{Crash, Marked, Suite, Sweep};
use outlive_prove::proof::Proof;
use outlive_prove::schedule::{self, Bounds, End, Proving, Scenario, Scheduled};
use outlive_prove::weakened::Weakened;
use outlive_tasks::engine::StartWaitingPoint;
use outlive_tasks::internals::{Crew, Hand, JobState, Judged, ticket_of};
use outlive_tasks::{PoolError, Running, State, Task};
use std::sync::OnceLock;

/// Adds the sweeps of this file.
pub fn add_to(suite: &mut Suite) {
    for case in [Find::Finds, Find::Judges] {
        suite.add(OfPool(case));
    }
    suite.declare::<StartWaitingPoint>();
}

/// Returns the broken variants of the sweeps. They must fail, each with a part of the expected
/// message.
pub fn broken_sweeps() -> Vec<(Box<dyn Sweep>, &'static str)> {
    vec![(Box::new(OfPool(Find::FindsWithoutNote)), "key 6 was run")]
}

/// The operation of the victim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Find {
    /// Searches for waiting tasks, and runs them.
    Finds,
    /// Judges, when all calls are answered, and runs the tasks found then.
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
            let run = crew.find_ready().expect("the operation succeeds");
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
        assert!(!world.layout.calls().1, "all requests found space");
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
        if self == Self::Judges {
            let mut seat = world.layout.barrier.join(hand.heap.member())?;
            let moment = world.layout.barrier.moment()?;
            assert!(crew.find()?.is_none(), "no member has called");
            let arrival = seat
                .arrive_since(moment)?
                .expect("there is no other member");
            let (ticket, _) = ticket_of(arrival);
            match crew.judge(&mut seat, &ticket, |_| "a task".into())? {
                Judged::Run(run) => world.run(&mut crew, run, way)?,
                other => panic!("the judge found {other:?}"),
            }
            seat.leave()?;
        }
        loop {
            let run = match self {
                Self::FindsWithoutNote => find_without_note(&mut crew)?,
                _ => crew.find()?,
            };
            let Some(run) = run else { break };
            world.run(&mut crew, run, way)?;
        }
        crew.engine.give_up()?;
        Ok(())
    }

    fn survive(self, world: &World<Marked>, hand: Hand<'_, Marked>, _: &Crash) {
        for _ in 0..2 {
            world
                .work(hand, Way::default())
                .expect("the operation succeeds");
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

/// Broken: finds a task as [`Crew::find`] does, and notes one that waited after it is ready.
fn find_without_note(crew: &mut Crew<'_, Marked>) -> Result<Option<Running<Marked>>, PoolError> {
    if let Some(run) = crew.find_ready()? {
        return Ok(Some(run));
    }
    let memory = crew.layout.memory;
    loop {
        while let Some((at, life)) = crew.lookout.take() {
            let task = Task::new(memory, at);
            let status = task.status()?;
            if status.state() != State::Waiting || status.sequence() != life {
                continue;
            }
            task.exchange_status(status, status.with(State::Ready));
            memory.crash_point(StartWaitingPoint::Readied);
            crew.engine.slot().note(at.raw());
            if let Some(run) = crew.engine.start_noted(at.raw())? {
                return Ok(Some(run));
            }
        }
        if !crew.lookout.look(crew.layout)? {
            return Ok(None);
        }
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

/// Returns scenarios that must fail within these bounds, each with a part of the message.
pub fn broken() -> Vec<(Scenario, Bounds, &'static str)> {
    vec![(
        brought(0, Answer::Late),
        bounds().preemptions(1).executions(50_000),
        // The search never ends.
        "no end after",
    )]
}

/// The calls that need no search after a walk that found nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// Those before the walk.
    Sound,
    /// Broken: all calls so far.
    Late,
}

type Memories = Weakened<Scheduled>;

/// The number of slabs of the scenarios' heap.
const FEW_SLABS: u64 = 20;

/// Returns the handles. Each execution has its own memory behind them.
fn world() -> &'static World<Memories> {
    static WORLD: OnceLock<World<Memories>> = OnceLock::new();
    WORLD.get_or_init(|| World::open(Weakened::sound(Scheduled::handle())))
}

/// A task waits for data that is brought from outside, and there is an earlier call.
fn brought(deaths: u32, answer: Answer) -> Scenario {
    let idle = move |id: u32| {
        let world = world();
        let member = world.act_as(id);
        let local = world.local(&member);
        let mut crew = Crew::claim(world.layout, world.hand(&local)).expect("a slot");
        while world.runs(COPY_KEY.into()) == (0, 0) {
            match crew.find().expect("the operation succeeds") {
                Some(run) => world.run(&mut crew, run, Way::default()).expect("room"),
                None => {
                    if answer == Answer::Late {
                        world.layout.answer(world.layout.calls().0);
                    }
                    world.memory.spin_hint();
                }
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
        let run = crew
            .find()
            .expect("the operation succeeds")
            .expect("the root");
        world.run(&mut crew, run, Way::default()).expect("room");
        crew.engine.give_up().expect("nothing is held");
        world.layout.call();
    })
    .on_death(|_, host| world().die(host as u32));
    // A worker that dies has another beside it.
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
            world
                .recoverers
                .recover_all(&last)
                .expect("the recovery succeeds");
            world
                .work(hand, Way::default())
                .expect("the operation succeeds");
            let state = world.job(hand).map(|job| job.state());
            assert_eq!(state, Some(JobState::Complete));
            let (_, runs) = world.runs(COPY_KEY.into());
            let most = 1 + end.deaths() as u64;
            assert!((1..=most).contains(&runs), "the task was run {runs} times");
            world
                .recoverers
                .recover_all(&last)
                .expect("the recovery succeeds");
            world
                .demand_sound(&local)
                .unwrap_or_else(|wrong| panic!("{wrong}"));
        })
}
