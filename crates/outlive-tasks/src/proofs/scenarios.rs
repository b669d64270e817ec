//! Names and judgements under interleavings and deaths: what `outlive-lab prove schedule` runs of them.
//!
//! Workers 0 to 2 work in the small pool, on memory whose model is weaker than x86's, where any access may be a worker's
//! last; number 3 has prepared it, and does what they leave. Whatever happens, the job is complete when all its tasks have
//! been run and not before, its result is right, and who reads a name reads what the attempt wrote that took effect.

use super::world::{KEYS, SPLIT, WRITE, Way, World, bytes};
use crate::PoolError;
use crate::crew::{Crew, ticket_of};
use crate::jobs::{JobState, name_key};
use crate::judge::judge_slowly;
use crate::layout::Hand;
use outlive::memory::Memory;
use outlive::sync::{Arrival, Waiting};
use outlive_prove::fixtures::weakened::Weakened;
use outlive_prove::scenarios::Proof;
use outlive_prove::schedule::{self, Bounds, End, Proving, Scenario, Scheduled};
use std::sync::OnceLock;

/// How many slabs the heap has room for.
const SLABS: u64 = 16;

/// The scenarios of this file.
pub fn all() -> Vec<Proof> {
    let deep = |deaths| bounds().preemptions(4).stale_reads(3).deaths(deaths);
    let some = |scenario, deaths, quick, full| Proof::of_some(scenario, deep(deaths), quick, full);
    let working = vec![
        some(working(Begun::Nothing, 2, Kind::Sound), 1, 200, 20_000),
        some(working(Begun::Split, 2, Kind::Sound), 2, 500, 50_000),
        some(working(Begun::Written, 2, Kind::Sound), 2, 800, 100_000),
        some(working(Begun::Written, 3, Kind::Sound), 2, 300, 50_000),
        some(working(Begun::Read, 2, Kind::Sound), 2, 600, 100_000),
        some(slow_judge(Validation::Made), 0, 100, 20_000),
    ];
    let working = working.into_iter();
    { working.chain(super::races::all()) }
        .chain(super::lookouts::all())
        .chain(super::deaths::all())
        .collect()
}

/// Scenarios that must fail within these bounds, each with a part of what must be said.
pub fn broken() -> Vec<(Scenario, Bounds, &'static str)> {
    let mut broken = vec![
        (
            slow_judge(Validation::Left),
            bounds().preemptions(0),
            "it can never finish",
        ),
        (
            working(Begun::Split, 1, Kind::PublishesFirst),
            bounds().preemptions(0).deaths(1).executions(20_000),
            "is not what took effect",
        ),
    ];
    broken.extend(super::races::broken());
    broken.extend(super::lookouts::broken());
    broken.extend(super::deaths::broken());
    broken
}

fn bounds() -> Bounds {
    Bounds::default()
        .preemptions(1)
        .stale_reads(0)
        .deaths(0)
        .executions(100_000)
}

/// How it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Sound,
    /// Broken: an output is bound, then its task takes effect.
    PublishesFirst,
}

/// What number 3 has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Begun {
    /// It has submitted the job.
    Nothing,
    /// It has run the root: the deque has two tasks that write, and one waits.
    Split,
    /// It has run one that writes.
    Written,
    /// It has run all but the last, which is ready.
    Read,
}

type Memories = Weakened<Scheduled>;

/// The handles; the memory behind them is each execution's own.
fn world() -> &'static World<Memories> {
    static WORLD: OnceLock<World<Memories>> = OnceLock::new();
    WORLD.get_or_init(|| World::open(Weakened::sound(Scheduled::handle())))
}

fn prepare(m: Scheduled, begun: Begun) {
    let world = World::create(Weakened::sound(m), SLABS);
    let member = world.act_as(3);
    let local = world.local(&member);
    let hand = world.hand(&local);
    world.submit(hand, SPLIT);
    let ran = match begun {
        Begun::Nothing => return,
        Begun::Split => 1,
        Begun::Written => 2,
        Begun::Read => 3,
    };
    let mut crew = Crew::claim(world.layout, hand).expect("a slot");
    for _ in 0..ran {
        let run = crew.find().expect("it can be").expect("a task");
        world.run(&mut crew, run, Way::default()).expect("room");
    }
    crew.engine.give_up().expect("nothing is held");
}

/// Three workers at most, from where number 3 has left it.
fn working(begun: Begun, workers: u32, kind: Kind) -> Scenario {
    let name = match kind {
        Kind::Sound => format!("pool with {workers}, {begun:?}"),
        Kind::PublishesFirst => "a name is bound first".to_owned(),
    };
    let scenario = schedule::scenario(&name)
        .memory(bytes(SLABS))
        .prepare(move |m| prepare(m, begun))
        .on_death(|_, host| world().die(host as u32));
    (0..workers)
        .fold(scenario, |scenario, id| {
            scenario.mortal(&format!("w{id}"), move |_| {
                let world = world();
                let member = world.act_as(id);
                let local = world.local(&member);
                let way = Way {
                    by_victim: kind == Kind::PublishesFirst,
                    publishes_first: kind == Kind::PublishesFirst,
                    ..Way::default()
                };
                let hand = world.hand(&local);
                world.work(hand, way).expect("it can be done");
                assert_complete_is_so(world);
            })
        })
        .check(|_, end: &End<()>| {
            let world = world();
            let last = world.act_as(3);
            let local = world.local(&last);
            let hand = world.hand(&local);
            world.recoverers.recover_all(&last).expect("they can be");
            assert_complete_is_so(world);
            for _ in 0..3 {
                world.work(hand, Way::default()).expect("it can be done");
            }
            world.recoverers.recover_all(&last).expect("they can be");
            world
                .demand_done(hand)
                .unwrap_or_else(|wrong| panic!("{wrong}"));
            let mut again = 0;
            for key in 0..KEYS {
                let (victim, others) = world.runs(key);
                again += (victim + others).saturating_sub(1);
            }
            let deaths = end.deaths() as u64;
            assert!(again <= deaths, "{again} tasks were run again");
            world
                .demand_sound(&local)
                .unwrap_or_else(|wrong| panic!("{wrong}"));
            assert_outputs(world, &local);
        })
}

/// Whether the judge looks at the barrier once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Validation {
    Made,
    /// Broken.
    Left,
}

/// The judge has seen that nobody works.
const LOOKED: u64 = 0;
/// The other has run the root of the job that was submitted then; its children are in a deque.
const SPLIT_UP: u64 = 1;
/// The judge has spoken.
const SPOKEN: u64 = 2;

/// Two wait, and the last looks whether all is quiet; then number 2 submits a job, and the other begins with it while the
/// judge looks at the jobs.
fn slow_judge(validation: Validation) -> Scenario {
    let name = match validation {
        Validation::Made => "a slow judge",
        Validation::Left => "a slow judge who does not look again",
    };
    schedule::scenario(name)
        .memory(bytes(SLABS))
        .prepare(|m| {
            World::create(Weakened::sound(m), SLABS);
        })
        .thread("worker", |_| {
            let world = world();
            let member = world.act_as(0);
            let local = world.local(&member);
            begin(world, world.hand(&local)).expect("it can be done");
        })
        .thread("judge", move |_| {
            let world = world();
            let member = world.act_as(1);
            let local = world.local(&member);
            speak(world, world.hand(&local), validation).expect("it can be done");
        })
        .thread("caller", |_| {
            let world = world();
            let member = world.act_as(2);
            let local = world.local(&member);
            world.await_flag(LOOKED);
            world.submit(world.hand(&local), SPLIT);
        })
        .check(|_, _: &End<()>| {
            let world = world();
            let last = world.act_as(3);
            let local = world.local(&last);
            let hand = world.hand(&local);
            assert_complete_is_so(world);
            world.work(hand, Way::default()).expect("it can be done");
            world
                .demand_done(hand)
                .unwrap_or_else(|wrong| panic!("{wrong}"));
        })
}

/// Waits at the barrier; runs the root of a job, waits for the judge, and is done.
fn begin(world: &World<Memories>, hand: Hand<'_, Memories>) -> Result<(), PoolError> {
    let mut crew = Crew::claim(world.layout, hand)?;
    let mut seat = world.layout.barrier.join(hand.heap.member())?;
    loop {
        let moment = world.layout.barrier.moment()?;
        if let Some(run) = crew.find()? {
            world.run(&mut crew, run, Way::default())?;
            world.raise(SPLIT_UP);
            world.await_flag(SPOKEN);
            assert_complete_is_so(world);
            break;
        }
        if let Some(arrival) = seat.arrive_since(moment)? {
            let (ticket, _) = ticket_of(arrival);
            seat.wait(&ticket, Waiting::DEFAULT, None)?;
        }
    }
    seat.leave()?;
    crew.engine.give_up()?;
    Ok(())
}

/// Arrives as the last, and judges.
fn speak(
    world: &World<Memories>,
    hand: Hand<'_, Memories>,
    validation: Validation,
) -> Result<(), PoolError> {
    let barrier = world.layout.barrier;
    let crew = Crew::claim(world.layout, hand)?;
    let mut seat = barrier.join(hand.heap.member())?;
    let ticket = loop {
        let view = barrier.view()?;
        if (view.members, view.waiting) == (2, 1)
            && let Some(Arrival::Last(ticket)) = seat.arrive_since(barrier.moment()?)?
        {
            break ticket;
        }
        world.memory.spin_hint();
    };
    let pause = || {
        world.raise(LOOKED);
        world.await_flag(SPLIT_UP);
    };
    let still = || validation == Validation::Left || seat.still(&ticket);
    judge_slowly(world.layout, hand, pause, still, |_| "a task".into())?;
    world.raise(SPOKEN);
    seat.leave()?;
    crew.engine.give_up()?;
    Ok(())
}

/// If the job is complete, all its tasks have been run.
fn assert_complete_is_so(world: &World<Memories>) {
    for key in 1..5 {
        let (victim, others) = world.runs(key);
        let ran = victim + others > 0;
        assert!(
            ran || !is_complete(world),
            "the job is complete before all its tasks were run"
        );
    }
}

fn is_complete(world: &World<Memories>) -> bool {
    world
        .first_job()
        .is_some_and(|job| job.state() == JobState::Complete)
}

/// What was written under a name is what the attempt wrote that took effect.
fn assert_outputs(world: &World<Memories>, local: &outlive::heap::LocalHeap<'_, Memories>) {
    for (task, _) in { world.layout.slots }.tasks().expect("sound lists") {
        let key = task.arguments().expect("they are there").first().copied();
        let name = match (task.function(), key) {
            (WRITE, Some(2)) => "a",
            (WRITE, Some(3)) => "b",
            _ => continue,
        };
        let data = world.written(local, &name_key(name));
        let attempt = data.expect("it was written")[1];
        let (_, committed) = task.children();
        assert_eq!(attempt, committed, "`{name}` is not what took effect");
    }
}
