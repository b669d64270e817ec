//! Names and judgements under interleavings and deaths, for `outlive-lab prove schedule`.
//!
//! Workers 0 to 2 work in the small pool, on a memory model weaker than x86's, and any access may
//! be a worker's last; number 3 has prepared the pool, and does the rest of the work. In every
//! execution, the job is complete when all its tasks have been run and not before, its result is
//! right, and a reader of a name gets the data of the attempt that took effect.

use super::world::{KEYS, SPLIT, WRITE, Way, World, bytes};
use outlive::memory::Memory;
use outlive::sync::{Arrival, Waiting};
use outlive_prove::proof::Proof;
use outlive_prove::schedule::{self, Bounds, End, Proving, Scenario, Scheduled};
use outlive_prove::weakened::{Weakened, Weakness};
use outlive_tasks::PoolError;
use outlive_tasks::internals::{Crew, Hand, JobState, judge, name_key, ticket_of};
use std::sync::OnceLock;

/// The number of slabs of the heap.
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

/// Returns scenarios that must fail within these bounds, each with a part of the message.
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
            "is not the attempt that took effect",
        ),
    ];
    broken.extend(super::races::broken());
    broken.extend(super::lookouts::broken());
    broken.extend(super::deaths::broken());
    broken
}

pub(super) fn bounds() -> Bounds {
    Bounds::default()
        .preemptions(1)
        .stale_reads(0)
        .deaths(0)
        .executions(100_000)
}

/// The sound algorithm, or a broken variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Sound,
    /// Broken: an output is bound, then its task takes effect.
    PublishesFirst,
}

/// The work that number 3 has done before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Begun {
    /// It has submitted the job.
    Nothing,
    /// It has run the root: the deque has two tasks that write, and one waits.
    Split,
    /// It has run one of the writers.
    Written,
    /// It has run all but the last, which is ready.
    Read,
}

type Memories = Weakened<Scheduled>;

/// Returns the handles. Each execution has its own memory behind them.
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
        let run = crew
            .find()
            .expect("the operation succeeds")
            .expect("a task");
        world.run(&mut crew, run, Way::default()).expect("room");
    }
    crew.engine.give_up().expect("nothing is held");
}

/// At most three workers continue where number 3 has stopped.
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
                world.work(hand, way).expect("the operation succeeds");
                assert_complete_is_so(world);
            })
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
            assert_complete_is_so(world);
            for _ in 0..3 {
                world
                    .work(hand, Way::default())
                    .expect("the operation succeeds");
            }
            world
                .recoverers
                .recover_all(&last)
                .expect("the recovery succeeds");
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

/// Whether the judge checks the barrier once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Validation {
    Made,
    /// Broken.
    Left,
}

/// The judge has seen that no worker is active.
const LOOKED: u64 = 0;
/// The other has run the root of the job that was submitted then; its children are in a deque.
const SPLIT_UP: u64 = 1;
/// The judge has decided.
const SPOKEN: u64 = 2;

/// Two workers wait, and the last one checks whether all is quiet; then number 2 submits a job, and
/// the other worker begins it while the judge checks the jobs.
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
            begin(world, world.hand(&local)).expect("the operation succeeds");
        })
        .thread("judge", move |_| {
            let pause = Weakness::Pauses("tasks.judge", "Quiet", || {
                world().raise(LOOKED);
                world().await_flag(SPLIT_UP);
            });
            let world = &World::open(Weakened::new(Scheduled::handle(), pause));
            let member = world.act_as(1);
            let local = world.local(&member);
            speak(world, world.hand(&local), validation).expect("the operation succeeds");
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
            world
                .work(hand, Way::default())
                .expect("the operation succeeds");
            world
                .demand_done(hand)
                .unwrap_or_else(|wrong| panic!("{wrong}"));
        })
}

/// Waits at the barrier; runs the root of a job, waits for the judge, and leaves.
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
    let still = || validation == Validation::Left || seat.still(&ticket);
    judge(world.layout, hand, still, |_| "a task".into())?;
    world.raise(SPOKEN);
    seat.leave()?;
    crew.engine.give_up()?;
    Ok(())
}

/// Asserts that all tasks of the job have been run, if it is complete.
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

/// Asserts that the data under a name was written by the attempt that took effect.
fn assert_outputs(world: &World<Memories>, local: &outlive::heap::LocalHeap<'_, Memories>) {
    for (task, _) in { world.layout.slots }.tasks().expect("sound lists") {
        let key = task
            .arguments()
            .expect("the task has arguments")
            .first()
            .copied();
        let name = match (task.function(), key) {
            (WRITE, Some(2)) => "a",
            (WRITE, Some(3)) => "b",
            _ => continue,
        };
        let data = world.written(local, &name_key(name));
        let attempt = data.expect("it was written")[1];
        let (_, committed) = task.children();
        assert_eq!(
            attempt, committed,
            "`{name}` is not the attempt that took effect"
        );
    }
}
