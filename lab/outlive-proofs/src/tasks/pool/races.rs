//! Removal under interleavings and deaths, for `outlive-lab prove schedule`.
//!
//! In the small pool a member removes an object that others are about to use, or have just
//! submitted. Number 3 has prepared the pool, and does the rest of the work. In every execution,
//! objects in use exist, removed ones do not, and a job that was submitted once has run once.

use super::scenarios::bounds;
use super::world::{LEAF, NAME, NUMBER, ROOT_KEY, Way, World, bytes};
use outlive::memory::{Memory, Ordering};
use outlive_prove::proof::Proof;
use outlive_prove::schedule::{self, Bounds, End, Proving, Scenario, Scheduled};
use outlive_prove::weakened::{Weakened, Weakness};
use outlive_tasks::PoolError;
use outlive_tasks::internals::{
    At, Cell, Crew, Hand, JobState, Layout, Root, StagingSlot, Tag, finish_removal_of_data,
    finish_removal_of_job, name_key,
};
use std::sync::OnceLock;

/// The number of slabs of the heap.
const SLABS: u64 = 20;
const JOB: &[u8] = b"j";
const NEXT: &[u8] = b"k";

/// The scenarios of this file.
pub fn all() -> Vec<Proof> {
    let deep = |deaths| bounds().preemptions(4).stale_reads(3).deaths(deaths);
    let some = |scenario, deaths, quick, full| Proof::of_some(scenario, deep(deaths), quick, full);
    let mut all = vec![
        some(data(Remover::Slow, 0), 0, 100, 20_000),
        some(dependent(Remover::Slow, 0), 0, 100, 20_000),
    ];
    for deaths in [0, 2] {
        all.push(some(data(Remover::Sound, deaths), deaths, 400, 50_000));
        all.push(some(dependent(Remover::Sound, deaths), deaths, 400, 50_000));
    }
    for deaths in [0, 1] {
        all.push(some(at_once(Submitter::Sound, deaths), deaths, 400, 50_000));
    }
    all.push(some(successor(), 1, 200, 20_000));
    all
}

/// Returns scenarios that must fail within these bounds, each with a part of the message.
pub fn broken() -> Vec<(Scenario, Bounds, &'static str)> {
    vec![
        (
            data(Remover::LooksFirst, 0),
            bounds().preemptions(0),
            "a waiting task needs it",
        ),
        (
            dependent(Remover::LooksFirst, 0),
            bounds().preemptions(0),
            "depends on a removed job",
        ),
        (
            at_once(Submitter::LooksForIt, 0),
            bounds().executions(20_000),
            "was run 2 times",
        ),
    ]
}

type Memories = Weakened<Scheduled>;

/// Returns the handles. Each execution has its own memory behind them.
fn world() -> &'static World<Memories> {
    static WORLD: OnceLock<World<Memories>> = OnceLock::new();
    WORLD.get_or_init(|| World::open(Weakened::sound(Scheduled::handle())))
}

/// Runs `body` as thread `id`, with its heap handle and recoverers.
fn by(id: u32, body: impl FnOnce(&World<Memories>, Hand<'_, Memories>)) {
    by_in(world(), id, body);
}

/// Does the same in `world`.
fn by_in(
    world: &World<Memories>,
    id: u32,
    body: impl FnOnce(&World<Memories>, Hand<'_, Memories>),
) {
    let member = world.act_as(id);
    let local = world.local(&member);
    body(world, world.hand(&local));
}

/// Runs `body` as number 3 in a new world, before the threads start.
fn prepared(m: Scheduled, body: impl FnOnce(&World<Memories>, Hand<'_, Memories>)) {
    let world = World::create(Weakened::sound(m), SLABS);
    let member = world.act_as(3);
    let local = world.local(&member);
    body(&world, world.hand(&local));
}

/// The way in which an object is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Remover {
    /// At any moment.
    Sound,
    /// Others begin to use the object when it is offered, and end when its users were searched for.
    Slow,
    /// Broken: the same, but its users are searched for before it is offered.
    LooksFirst,
}

impl Remover {
    fn is_steered(self) -> bool {
        self != Self::Sound
    }
}

/// The object is offered, or its users were searched for.
const BEGUN: u64 = 0;
/// A user begins.
const USED: u64 = 1;
/// The removal is at its end.
const ENDED: u64 = 2;

/// Returns the world of a remover with the operation `operation`.
fn world_of(remover: Remover, operation: &'static str) -> World<Memories> {
    let memory = Scheduled::handle();
    World::open(match remover {
        Remover::Slow => Weakened::new(memory, Weakness::Pauses(operation, "Offered", pause)),
        Remover::Sound | Remover::LooksFirst => Weakened::sound(memory),
    })
}

/// Lets another thread begin to use the object that is removed.
fn pause() {
    world().raise(BEGUN);
    world().await_flag(USED);
}

/// Broken: takes the data of the name `key` unless it `is_used`, and offers it only then.
pub(super) fn remove_used_data<M: Memory>(
    layout: Layout<M>,
    hand: Hand<'_, M>,
    key: &[u8],
    is_used: impl FnOnce(StagingSlot<M>, Cell<M>) -> bool,
) -> Result<bool, PoolError> {
    let desk = StagingSlot::take_for_removal(layout, hand)?;
    let mut removed = false;
    if let Some(cell) = layout.names.find(hand.heap, key)
        && let Some(data) = cell.value()
        && !is_used(desk, cell)
    {
        desk.note(At::Data(cell.offset()), data.block().raw());
        cell.offer(data.block(), desk.number());
        let taken = Some(Tag::Taken(desk.number()));
        cell.retag(data.block(), Tag::Offered(desk.number()), taken);
        finish_removal_of_data(layout, hand.heap, desk, cell, Some(key));
        removed = true;
    }
    desk.leave(hand)?;
    Ok(removed)
}

/// Broken: searches for the user of a job, and then offers the job.
fn remove_job_looking_first<M: Memory>(
    layout: Layout<M>,
    hand: Hand<'_, M>,
    name: &[u8],
) -> Result<bool, PoolError> {
    let desk = StagingSlot::take_for_removal(layout, hand)?;
    let mut removed = false;
    if let Some(job) = layout.find_job(hand, name)
        && layout.user_of_job(hand, desk, job)?.is_none()
    {
        pause();
        desk.note(At::Job(job.at), job.number());
        job.offer(desk.number());
        job.retag(Tag::Offered(desk.number()), Some(Tag::Taken(desk.number())));
        finish_removal_of_job(layout, hand.heap, desk, job);
        removed = true;
    }
    desk.leave(hand)?;
    Ok(removed)
}

/// Data is removed while a task that reads it is spawned.
fn data(remover: Remover, deaths: u32) -> Scenario {
    schedule::scenario(&format!(
        "data is removed that is read, {remover:?}, {deaths} deaths"
    ))
    .memory(bytes(SLABS))
    .prepare(|m| {
        prepared(m, |world, hand| {
            world.put_number(hand);
            world.submit(hand, NAME);
        });
    })
    .on_death(|_, host| world().die(host as u32))
    .mortal("reader", move |_| {
        by(0, |world, hand| {
            if remover.is_steered() {
                world.await_flag(BEGUN);
                let mut crew = Crew::claim(world.layout, hand).expect("a slot");
                let run = crew
                    .find()
                    .expect("the operation succeeds")
                    .expect("the root");
                let ran = world.run(&mut crew, run, Way::default());
                ran.expect("the operation succeeds");
                crew.engine.give_up().expect("nothing is held");
                world.raise(USED);
                world.await_flag(ENDED);
            }
            let worked = world.work(hand, Way::default());
            worked.expect("the operation succeeds");
        });
    })
    .mortal("remover", move |_| {
        by_in(&world_of(remover, "tasks.remove"), 1, |world, hand| {
            let (layout, key) = (world.layout, name_key("n"));
            let removed = match remover {
                Remover::LooksFirst => remove_used_data(layout, hand, &key, |desk, cell| {
                    let user = layout.user_of(hand, desk, &key, cell);
                    pause();
                    user.expect("the user can be determined").is_some()
                }),
                _ => layout.remove_data(hand, &key),
            };
            assert!(
                matches!(removed, Ok(true) | Err(PoolError::DataInUse { .. })),
                "the removal ended with {removed:?}"
            );
            world.raise(ENDED);
        });
    })
    .check(|_, _: &End<()>| {
        by(3, |world, hand| {
            let recoverers = &world.recoverers;
            let me = hand.heap.member();
            recoverers.recover_all(me).expect("the recovery succeeds");
            StagingSlot::settle_those_of_the_gone(world.layout, hand)
                .expect("the settlement succeeds");
            world
                .work(hand, Way::default())
                .expect("the operation succeeds");
            let there = world.written(hand.heap, &name_key("n"));
            assert!(there.as_ref().is_none_or(|data| *data == [NUMBER]));
            match world.job(hand).map(|job| job.state()) {
                Some(JobState::Complete) => {}
                // As if it had been removed before.
                Some(JobState::Failed) if there.is_none() => {}
                state => panic!("the job is {state:?}, and the data that it reads is {there:?}"),
            }
            recoverers.recover_all(me).expect("the recovery succeeds");
            let sound = world.demand_sound(hand.heap);
            // A task that waits for removed data is given up when its job is removed.
            if there.is_some() {
                sound.unwrap_or_else(|wrong| panic!("{wrong}"));
            }
        });
    })
}

/// A job is removed while another that depends on it is submitted.
fn dependent(remover: Remover, deaths: u32) -> Scenario {
    schedule::scenario(&format!(
        "a job is removed that is followed, {remover:?}, {deaths} deaths"
    ))
    .memory(bytes(SLABS))
    .prepare(|m| {
        prepared(m, |world, hand| {
            world.submit(hand, LEAF);
            world
                .work(hand, Way::default())
                .expect("the operation succeeds");
        });
    })
    .on_death(|_, host| world().die(host as u32))
    .mortal("submitter", move |_| {
        by(0, |world, hand| {
            if remover.is_steered() {
                world.await_flag(BEGUN);
            }
            // As the holder of a handle on it: pinned, if it exists.
            let pin = hand.heap.pin();
            if let Some(job) = world.job(hand) {
                let submitted = world.submit_dependent(hand, job);
                assert!(
                    matches!(submitted, Ok(_) | Err(PoolError::Submit(_))),
                    "the submission ended with {submitted:?}"
                );
            }
            drop(pin);
            world.raise(USED);
        });
    })
    .mortal("remover", move |_| {
        by_in(&world_of(remover, "tasks.remove_job"), 1, |world, hand| {
            let layout = world.layout;
            let removed = match remover {
                Remover::LooksFirst => remove_job_looking_first(layout, hand, JOB),
                _ => layout.remove_job(hand, JOB),
            };
            assert!(
                matches!(removed, Ok(true) | Err(PoolError::JobInUse { .. })),
                "the removal ended with {removed:?}"
            );
        });
    })
    .check(|_, _: &End<()>| {
        by(3, |world, hand| {
            let (layout, me) = (world.layout, hand.heap.member());
            world
                .recoverers
                .recover_all(me)
                .expect("the recovery succeeds");
            StagingSlot::settle_those_of_the_gone(layout, hand).expect("the settlement succeeds");
            if let Some(next) = layout.find_job(hand, NEXT) {
                let is_there = world.job(hand).is_some();
                assert!(is_there, "a job depends on a removed job");
                let worked = world.work_until(hand, Way::default(), || next.state().is_over());
                worked.expect("the operation succeeds");
                assert_eq!(next.state(), JobState::Complete);
                assert!(layout.remove_job(hand, NEXT).expect("it is not in use"));
            }
            layout.remove_job(hand, JOB).expect("it is not in use");
            assert!(world.job(hand).is_none());
            world
                .demand_sound(hand.heap)
                .unwrap_or_else(|wrong| panic!("{wrong}"));
        });
    })
}

/// The way in which a job is submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Submitter {
    Sound,
    /// Broken: the submitter then searches for the job, and submits it again if it does not exist.
    LooksForIt,
}

/// A job is submitted, and another thread removes it as soon as it is over.
fn at_once(submitter: Submitter, deaths: u32) -> Scenario {
    schedule::scenario(&format!(
        "a job is removed at once, {submitter:?}, {deaths} deaths"
    ))
    .memory(bytes(SLABS))
    .prepare(|m| prepared(m, |_, _| ()))
    .on_death(|_, host| world().die(host as u32))
    .thread("submitter", move |_| {
        by(0, |world, hand| {
            // The record is not reused while it is examined.
            let _pin = hand.heap.pin();
            loop {
                let job = world.submit(hand, LEAF);
                assert!(job.number() != 0, "the record belongs to another job");
                if submitter == Submitter::Sound || world.job(hand).is_some() {
                    break;
                }
            }
        });
    })
    .mortal("remover", |_| {
        by(1, |world, hand| {
            while world.job(hand).is_none() {
                world.memory.spin_hint();
            }
            world
                .work(hand, Way::default())
                .expect("the operation succeeds");
            let removed = world.layout.remove_job(hand, JOB);
            assert!(removed.expect("it is not in use"), "it was not there");
        });
    })
    .check(|_, end: &End<()>| {
        by(3, |world, hand| {
            let me = hand.heap.member();
            world
                .recoverers
                .recover_all(me)
                .expect("the recovery succeeds");
            StagingSlot::settle_those_of_the_gone(world.layout, hand)
                .expect("the settlement succeeds");
            world
                .work(hand, Way::default())
                .expect("the operation succeeds");
            let (_, runs) = world.runs(ROOT_KEY.into());
            let most = 1 + end.deaths() as u64;
            assert!((1..=most).contains(&runs), "the job was run {runs} times");
            world
                .layout
                .remove_job(hand, JOB)
                .expect("it is not in use");
            world
                .recoverers
                .recover_all(me)
                .expect("the recovery succeeds");
            world
                .demand_sound(hand.heap)
                .unwrap_or_else(|wrong| panic!("{wrong}"));
        });
    })
}

/// A job has its record where that of a removed one was, and the root names that record: the root
/// is described anew, and run.
fn successor() -> Scenario {
    schedule::scenario("a job in the place of another")
        .memory(bytes(SLABS))
        .prepare(|m| {
            prepared(m, |world, hand| {
                let first = world.submit(hand, LEAF).at.raw();
                world
                    .work(hand, Way::default())
                    .expect("the operation succeeds");
                assert!(
                    world
                        .layout
                        .remove_job(hand, JOB)
                        .expect("it is not in use")
                );
                let second = world.submit(hand, LEAF).at.raw();
                // As if the first record had been where this one is: a heap returns to an address
                // when it has used all others.
                let at = Root::of(world.layout, 0).task().job_at();
                assert_eq!(world.memory.load::<u64>(at, Ordering::Relaxed), first);
                world.memory.store(at, second, Ordering::Relaxed);
            });
        })
        .on_death(|_, host| world().die(host as u32))
        .mortal("one", |_| {
            by(0, |world, hand| {
                world
                    .work(hand, Way::default())
                    .expect("the operation succeeds");
            });
        })
        .mortal("other", |_| {
            by(1, |world, hand| {
                world
                    .work(hand, Way::default())
                    .expect("the operation succeeds");
            });
        })
        .check(|_, end: &End<()>| {
            by(3, |world, hand| {
                let me = hand.heap.member();
                world
                    .recoverers
                    .recover_all(me)
                    .expect("the recovery succeeds");
                world
                    .work(hand, Way::default())
                    .expect("the operation succeeds");
                let state = world.job(hand).map(|job| job.state());
                assert_eq!(state, Some(JobState::Complete));
                let (_, runs) = world.runs(ROOT_KEY.into());
                let runs = runs - 1;
                let most = 1 + end.deaths() as u64;
                assert!((1..=most).contains(&runs), "the job was run {runs} times");
                world
                    .recoverers
                    .recover_all(me)
                    .expect("the recovery succeeds");
                world
                    .demand_sound(hand.heap)
                    .unwrap_or_else(|wrong| panic!("{wrong}"));
            });
        })
}
