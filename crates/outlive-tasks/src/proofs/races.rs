//! Removal under interleavings and deaths: what `outlive-lab prove schedule` runs of it.
//!
//! In the small pool somebody removes what others are about to use, or have just submitted. Number 3 has prepared it, and does what
//! they leave. Whatever happens, what is used is there, what is removed is gone, and a job that was submitted once has run
//! once.

use super::world::{LEAF, NAME, NUMBER, ROOT_KEY, Way, World, bytes};
use crate::PoolError;
use crate::crew::Crew;
use crate::jobs::{JobState, Root, name_key};
use crate::layout::Hand;
use outlive::memory::{Memory, Ordering};
use outlive_prove::fixtures::weakened::Weakened;
use outlive_prove::scenarios::Proof;
use outlive_prove::schedule::{self, Bounds, End, Proving, Scenario, Scheduled};
use std::sync::OnceLock;

/// How many slabs the heap has room for.
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

/// Scenarios that must fail within these bounds, each with a part of what must be said.
pub fn broken() -> Vec<(Scenario, Bounds, &'static str)> {
    vec![
        (
            data(Remover::LooksFirst, 0),
            bounds().preemptions(0),
            "it was waited for",
        ),
        (
            dependent(Remover::LooksFirst, 0),
            bounds().preemptions(0),
            "depends on what is gone",
        ),
        (
            at_once(Submitter::LooksForIt, 0),
            bounds().executions(20_000),
            "was run 2 times",
        ),
    ]
}

fn bounds() -> Bounds {
    Bounds::default()
        .preemptions(1)
        .stale_reads(0)
        .deaths(0)
        .executions(100_000)
}

type Memories = Weakened<Scheduled>;

/// The handles; the memory behind them is each execution's own.
fn world() -> &'static World<Memories> {
    static WORLD: OnceLock<World<Memories>> = OnceLock::new();
    WORLD.get_or_init(|| World::open(Weakened::sound(Scheduled::handle())))
}

/// What thread `id` does with its hand.
fn by(id: u32, body: impl FnOnce(&World<Memories>, Hand<'_, Memories>)) {
    let world = world();
    let member = world.act_as(id);
    let local = world.local(&member);
    body(world, world.hand(&local));
}

/// What number 3 does before, in a new world.
fn prepared(m: Scheduled, body: impl FnOnce(&World<Memories>, Hand<'_, Memories>)) {
    let world = World::create(Weakened::sound(m), SLABS);
    let member = world.act_as(3);
    let local = world.local(&member);
    body(&world, world.hand(&local));
}

/// How something is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Remover {
    /// At any moment.
    Sound,
    /// Others begin to use it when it is offered, and end when it was looked for them.
    Slow,
    /// Broken: the same, but it is looked for them before it is offered.
    LooksFirst,
}

impl Remover {
    fn is_steered(self) -> bool {
        self != Self::Sound
    }
}

/// It is offered, or was looked for users.
const BEGUN: u64 = 0;
/// Somebody begins to use it.
const USED: u64 = 1;
/// The removal is at its end.
const ENDED: u64 = 2;

/// Lets another begin to use what is removed.
fn pause(world: &World<Memories>, remover: Remover) {
    if remover.is_steered() {
        world.raise(BEGUN);
        world.await_flag(USED);
    }
}

/// Data is removed while a task is spawned that reads it.
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
                let run = crew.find().expect("it can be").expect("the root");
                let ran = world.run(&mut crew, run, Way::default());
                ran.expect("it can be done");
                crew.engine.give_up().expect("nothing is held");
                world.raise(USED);
                world.await_flag(ENDED);
            }
            let worked = world.work(hand, Way::default());
            worked.expect("it can be done");
        });
    })
    .mortal("remover", move |_| {
        by(1, |world, hand| {
            let (layout, key) = (world.layout, name_key("n"));
            let removed = match remover {
                Remover::LooksFirst => layout.remove_used_data(hand, &key, |desk, cell| {
                    let used = layout.data_is_used(hand, desk, &key, cell);
                    pause(world, remover);
                    used.expect("it can be seen")
                }),
                _ => layout.remove_data_slowly(hand, &key, || pause(world, remover)),
            };
            assert!(
                matches!(removed, Ok(true) | Err(PoolError::DataInUse { .. })),
                "the removal ended so: {removed:?}"
            );
            world.raise(ENDED);
        });
    })
    .check(|_, _: &End<()>| {
        by(3, |world, hand| {
            let recoverers = &world.recoverers;
            let me = hand.heap.member();
            recoverers.recover_all(me).expect("they can be");
            crate::desk::Desk::settle_those_of_the_gone(world.layout, hand).expect("they can");
            world.work(hand, Way::default()).expect("it can be done");
            let there = world.written(hand.heap, &name_key("n"));
            assert!(there.as_ref().is_none_or(|data| *data == [NUMBER]));
            match world.job(hand).map(|job| job.state()) {
                Some(JobState::Complete) => {}
                // Then it is as if it had been removed before.
                Some(JobState::Failed) if there.is_none() => {}
                state => panic!("the job is {state:?}, and what it reads {there:?}"),
            }
            recoverers.recover_all(me).expect("they can be");
            let sound = world.demand_sound(hand.heap);
            // A task that waits for what is gone is given up when its job is removed.
            if there.is_some() {
                sound.unwrap_or_else(|wrong| panic!("{wrong}"));
            }
        });
    })
}

/// A job is removed while another is submitted that depends on it.
fn dependent(remover: Remover, deaths: u32) -> Scenario {
    schedule::scenario(&format!(
        "a job is removed that is followed, {remover:?}, {deaths} deaths"
    ))
    .memory(bytes(SLABS))
    .prepare(|m| {
        prepared(m, |world, hand| {
            world.submit(hand, LEAF);
            world.work(hand, Way::default()).expect("it can be done");
        });
    })
    .on_death(|_, host| world().die(host as u32))
    .mortal("submitter", move |_| {
        by(0, |world, hand| {
            if remover.is_steered() {
                world.await_flag(BEGUN);
            }
            // As whoever has a handle on it: pinned, if it is there.
            let pin = hand.heap.pin();
            if let Some(job) = world.job(hand) {
                let submitted = world.submit_dependent(hand, job);
                assert!(
                    matches!(submitted, Ok(_) | Err(PoolError::Submit(_))),
                    "the submission ended so: {submitted:?}"
                );
            }
            drop(pin);
            world.raise(USED);
        });
    })
    .mortal("remover", move |_| {
        by(1, |world, hand| {
            let layout = world.layout;
            let wait = || pause(world, remover);
            let removed = match remover {
                Remover::LooksFirst => layout.remove_job_looking_first(hand, JOB, wait),
                _ => layout.remove_job_slowly(hand, JOB, wait),
            };
            assert!(
                matches!(removed, Ok(true) | Err(PoolError::JobInUse { .. })),
                "the removal ended so: {removed:?}"
            );
        });
    })
    .check(|_, _: &End<()>| {
        by(3, |world, hand| {
            let (layout, me) = (world.layout, hand.heap.member());
            world.recoverers.recover_all(me).expect("they can be");
            crate::desk::Desk::settle_those_of_the_gone(layout, hand).expect("they can");
            if let Some(next) = layout.find_job(hand, NEXT) {
                let is_there = world.job(hand).is_some();
                assert!(is_there, "a job depends on what is gone");
                let worked = world.work_until(hand, Way::default(), || next.state().is_over());
                worked.expect("it can be done");
                assert_eq!(next.state(), JobState::Complete);
                assert!(layout.remove_job(hand, NEXT).expect("nobody uses it"));
            }
            layout.remove_job(hand, JOB).expect("nobody uses it");
            assert!(world.job(hand).is_none());
            world
                .demand_sound(hand.heap)
                .unwrap_or_else(|wrong| panic!("{wrong}"));
        });
    })
}

/// How a job is submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Submitter {
    Sound,
    /// Broken: whoever has submitted it looks for it, and submits it again if it is not there.
    LooksForIt,
}

/// A job is submitted, and removed by another as soon as it is over.
fn at_once(submitter: Submitter, deaths: u32) -> Scenario {
    schedule::scenario(&format!(
        "a job is removed at once, {submitter:?}, {deaths} deaths"
    ))
    .memory(bytes(SLABS))
    .prepare(|m| prepared(m, |_, _| ()))
    .on_death(|_, host| world().die(host as u32))
    .thread("submitter", move |_| {
        by(0, |world, hand| {
            // The record stays one while it is looked at.
            let _pin = hand.heap.pin();
            loop {
                let job = world.submit(hand, LEAF);
                assert!(job.number() != 0, "the record is another's");
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
            world.work(hand, Way::default()).expect("it can be done");
            let removed = world.layout.remove_job(hand, JOB);
            assert!(removed.expect("nobody uses it"), "it was not there");
        });
    })
    .check(|_, end: &End<()>| {
        by(3, |world, hand| {
            let me = hand.heap.member();
            world.recoverers.recover_all(me).expect("they can be");
            crate::desk::Desk::settle_those_of_the_gone(world.layout, hand).expect("they can");
            world.work(hand, Way::default()).expect("it can be done");
            let (_, runs) = world.runs(ROOT_KEY.into());
            let most = 1 + end.deaths() as u64;
            assert!((1..=most).contains(&runs), "the job was run {runs} times");
            world.layout.remove_job(hand, JOB).expect("nobody uses it");
            world.recoverers.recover_all(me).expect("they can be");
            world
                .demand_sound(hand.heap)
                .unwrap_or_else(|wrong| panic!("{wrong}"));
        });
    })
}

/// A job whose record stands where that of a removed one stood, and which has its root: it is described anew, and run.
fn successor() -> Scenario {
    schedule::scenario("a job in the place of another")
        .memory(bytes(SLABS))
        .prepare(|m| {
            prepared(m, |world, hand| {
                let first = world.submit(hand, LEAF).at.raw();
                world.work(hand, Way::default()).expect("it can be done");
                assert!(world.layout.remove_job(hand, JOB).expect("nobody uses it"));
                let second = world.submit(hand, LEAF).at.raw();
                // As if that had stood where this one stands: a heap comes back to a place when it has been through all others.
                let at = Root::of(world.layout, 0).task().job_at();
                assert_eq!(world.memory.load::<u64>(at, Ordering::Relaxed), first);
                world.memory.store(at, second, Ordering::Relaxed);
            });
        })
        .on_death(|_, host| world().die(host as u32))
        .mortal("one", |_| {
            by(0, |world, hand| {
                world.work(hand, Way::default()).expect("it can be done");
            });
        })
        .mortal("other", |_| {
            by(1, |world, hand| {
                world.work(hand, Way::default()).expect("it can be done");
            });
        })
        .check(|_, end: &End<()>| {
            by(3, |world, hand| {
                let me = hand.heap.member();
                world.recoverers.recover_all(me).expect("they can be");
                world.work(hand, Way::default()).expect("it can be done");
                let state = world.job(hand).map(|job| job.state());
                assert_eq!(state, Some(JobState::Complete));
                let (_, runs) = world.runs(ROOT_KEY.into());
                let runs = runs - 1;
                let most = 1 + end.deaths() as u64;
                assert!((1..=most).contains(&runs), "the job was run {runs} times");
                world.recoverers.recover_all(me).expect("they can be");
                world
                    .demand_sound(hand.heap)
                    .unwrap_or_else(|wrong| panic!("{wrong}"));
            });
        })
}
