//! Tasks under every interleaving, with deaths, for `outlive-lab prove schedule`.
//!
//! Workers 0 to 2 claim the slots that they are given; 3 prepares, and does the rest of their work.
//! A ghost records which worker runs which key: no worker runs a task that a live one is running,
//! or that has been completed; and in the end every key has been run.

use super::fixture::{KEYS, SLOTS, World, bytes, publish_children, spawn_children, steal_and_note};
use outlive::heap::LocalHeap;
use outlive::memory::{Memory, Ordering};
use outlive_prove::proof::Proof;
use outlive_prove::schedule::{self, Bounds, End, Ghost, Proving, Scenario, Scheduled};
use outlive_prove::weakened::{Weakened, Weakness};
use outlive_tasks::engine::{Engine, Running, Taken};
use outlive_tasks::{State, Task};
use std::sync::OnceLock;

/// The number of slabs of the heap.
const SLABS: u64 = 6;

/// The scenarios of this file.
pub fn all() -> Vec<Proof> {
    // Every execution with this many preemptions and deaths; and some with more of both.
    let both = |scenario: fn() -> Scenario, preemptions: u32, deaths: u32, most: u32| {
        let quick = bounds().preemptions(preemptions).deaths(deaths);
        let full = quick.clone().preemptions(preemptions + 1).stale_reads(1);
        let deep = bounds().preemptions(4).stale_reads(3).deaths(most);
        [
            Proof::of_every(scenario(), quick, full.executions(3_000_000)),
            Proof::of_some(scenario(), deep, 3_000, 300_000),
        ]
    };
    [
        both(|| pop_and_steal(Way::Sound), 1, 0, 0),
        both(two_thieves, 2, 0, 0),
        both(|| steal_and_die(Way::Sound), 0, 1, 1),
        both(|| growth(false), 1, 0, 0),
        both(
            || dead_runner(Way::Sound, "tasks: two takers of a task"),
            1,
            0,
            2,
        ),
        both(|| dead_committer(Way::Sound), 0, 1, 2),
        both(
            || successor(Way::Sound, "tasks: successor and taker"),
            1,
            0,
            2,
        ),
        both(|| slow_taker(Way::Sound), 1, 0, 1),
    ]
    .into_iter()
    .flatten()
    .chain(
        [
            dead_runner(Way::Sound, "tasks: two takers of a task, one dies"),
            successor(Way::Sound, "tasks: successor and taker, one dies"),
        ]
        .map(|scenario| {
            let quick = bounds().preemptions(0).deaths(1);
            let full = quick.clone().preemptions(1).stale_reads(1);
            Proof::of_every(scenario, quick, full.executions(3_000_000))
        }),
    )
    .chain([Proof::of_some(
        growth(true),
        bounds().preemptions(4).stale_reads(3).deaths(1),
        2_000,
        300_000,
    )])
    .collect()
}

/// Returns scenarios that must fail within these bounds, each with a part of the message.
pub fn broken() -> Vec<(Scenario, Bounds, &'static str)> {
    vec![
        (
            steal_and_die(Way::StealForgetsTheSlot),
            bounds().preemptions(0).deaths(1),
            "was not run",
        ),
        (
            pop_and_steal(Way::PopHasNoFence),
            bounds().preemptions(1).stale_reads(1),
            "was not run",
        ),
        (
            dead_committer(Way::PublishesChildrenFirst),
            bounds().preemptions(0).deaths(1),
            "key",
        ),
        (
            dead_committer(Way::PublishesOutputsFirst),
            bounds().preemptions(0).deaths(1),
            "is bound to another attempt",
        ),
        (
            successor(Way::TakesBlindly, "takes blindly"),
            bounds().preemptions(1).deaths(1),
            "run again",
        ),
        (
            slow_taker(Way::IgnoresTheSequence),
            bounds().preemptions(1),
            "both run",
        ),
    ]
}

fn bounds() -> Bounds {
    Bounds::default()
        .preemptions(1)
        .stale_reads(0)
        .deaths(0)
        .executions(400_000)
}

/// The sound algorithm, or a broken variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Sound,
    /// Broken: a steal is noted afterwards.
    StealForgetsTheSlot,
    /// Broken: a pop without its fence.
    PopHasNoFence,
    /// Broken: the children are pushed, then the task is committed.
    PublishesChildrenFirst,
    /// Broken: the output is bound, then the task is committed.
    PublishesOutputsFirst,
    /// Broken: the status is swapped even if it has changed.
    TakesBlindly,
    /// Broken: the status is swapped even if its sequence has changed.
    IgnoresTheSequence,
}

type Memories = Weakened<Scheduled>;

/// Returns the handles. Each execution has its own memory behind them.
fn world() -> &'static World<Memories> {
    static WORLD: OnceLock<World<Memories>> = OnceLock::new();
    WORLD.get_or_init(|| World::open(Weakened::sound(Scheduled::handle())))
}

/// The worker that runs a key, and the number of runs so far.
#[derive(Clone, Copy, Default)]
struct Seen {
    by: Option<u32>,
    runs: usize,
}

type Ghosts = Ghost<[Seen; KEYS as usize]>;

/// The tasks and workers of a scenario.
struct Stage {
    /// The keys that must be run.
    keys: &'static [u64],
    /// Others that may be run.
    others: &'static [u64],
    /// Its threads are the members from this one on.
    first: u32,
    /// The logarithm of the size of a deque's first array.
    smallest: u32,
}

/// One task for each of these keys: none is run twice, except those that dead workers were running.
const fn stage(first: u32, keys: &'static [u64]) -> Stage {
    Stage {
        keys,
        others: &[],
        first,
        smallest: 3,
    }
}

/// A scenario of up to three workers.
fn workers(
    name: &str,
    ghosts: &Ghosts,
    stage: Stage,
    prepare: impl Fn(&World<Memories>) + Send + Sync + 'static,
) -> Scenario {
    let ghosts = ghosts.clone();
    schedule::scenario(name)
        .memory(bytes(SLABS))
        .prepare(move |m| {
            World::create(Weakened::sound(m), SLABS, stage.smallest);
            prepare(world());
        })
        .on_death(move |_, host| world().die(stage.first + host as u32))
        .check(move |_, end: &End<()>| {
            let world = world();
            let last = world.act_as(3);
            let local = world.local(&last);
            if !stage.others.is_empty() {
                // Number 2 has stopped in the middle of one of them.
                world.die(2);
            }
            // Twice: the slot of a worker that died with another's commit is available when that
            // commit is done.
            for number in (0..SLOTS).chain(0..SLOTS) {
                work(world, &local, number, &ghosts, Way::Sound);
            }
            world
                .recoverers
                .recover_all(&last)
                .expect("the recovery succeeds");
            let mut again = 0;
            for key in 0..KEYS {
                let seen = ghosts.with(|seen| seen[key as usize]);
                if stage.others.contains(&key) {
                    continue;
                }
                let wanted = stage.keys.contains(&key);
                assert!(!wanted || seen.runs > 0, "key {key} was not run");
                assert!(wanted || seen.runs == 0, "key {key} was run");
                again += seen.runs.saturating_sub(1);
                let bound = world.bound(key) != 0;
                assert_eq!(bound, wanted && key % 2 == 1, "key {key} is bound");
            }
            assert!(again <= end.deaths(), "{again} keys were run again");
            world
                .demand_sound()
                .unwrap_or_else(|wrong| panic!("{wrong}"));
        })
}

/// Runs a task: records it, and checks whether another worker is at it.
fn run<M: Memory>(
    world: &World<M>,
    engine: &mut Engine<'_, M>,
    mut run: Running<M>,
    ghosts: &Ghosts,
    way: Way,
) {
    let me = engine.heap().instance().id;
    let key = u64::from(run.arguments().expect("the task has arguments")[0]);
    let other = ghosts.with(|seen| {
        let seen = &mut seen[key as usize];
        seen.runs += 1;
        seen.by.replace(me)
    });
    // A dead worker has done all that it could.
    if let Some(other) = other.filter(|other| *other != me) {
        let alive = world.status(other).may_write();
        assert!(!alive, "{other} and {me} both run key {key}");
    }
    let mut tree = world.tree();
    spawn_children(engine, &mut run, false).expect("room");
    match way {
        Way::PublishesChildrenFirst => publish_children(engine, &run),
        Way::PublishesOutputsFirst => tree.bind(key, run.attempt()),
        _ => {}
    }
    // Before the task is completed no other worker may be at it.
    ghosts.with(|seen| {
        let by = seen[key as usize].by;
        assert_eq!(by, Some(me), "{by:?} and {me} both run key {key}");
    });
    engine
        .complete(&mut run, &mut tree)
        .expect("the operation succeeds");
    ghosts.with(|seen| {
        // Unless there is another task of this key already.
        let by = &mut seen[key as usize].by;
        *by = by.filter(|by| *by != me);
    });
}

/// Acts as the owner of slot `number`, if it is available, until it finds no task.
fn work<M: Memory>(
    world: &World<M>,
    local: &LocalHeap<'_, M>,
    number: u32,
    ghosts: &Ghosts,
    way: Way,
) {
    let Some(mut engine) = world.claim(local, number) else {
        return;
    };
    loop {
        let next = engine
            .next(&mut world.tree())
            .expect("the operation succeeds");
        let next = match next {
            None => engine.start(world.root(0)).expect("the operation succeeds"),
            found => found,
        };
        let Some(task) = next else { break };
        run(world, &mut engine, task, ghosts, way);
    }
    engine.give_up().expect("nothing is held");
}

/// Returns the body of worker `id`, which works in `slots`, one after the other.
fn worker(
    id: u32,
    slots: &'static [u32],
    ghosts: &Ghosts,
    way: Way,
) -> impl Fn(Scheduled) + Send + Sync + use<> {
    let ghosts = ghosts.clone();
    move |m| {
        let weakness = match way {
            Way::PopHasNoFence => Some(Weakness::Fences(Ordering::SeqCst)),
            _ => None,
        };
        if let Some(weakness) = weakness {
            let world = World::open(Weakened::new(m, weakness));
            let member = world.act_as(id);
            let local = world.local(&member);
            slots
                .iter()
                .for_each(|number| work(&world, &local, *number, &ghosts, way));
            return;
        }
        let world = world();
        let member = world.act_as(id);
        let local = world.local(&member);
        slots
            .iter()
            .for_each(|number| work(world, &local, *number, &ghosts, way));
    }
}

/// Lets number 3 run a root of `key` in slot 0 and leave its children in the slot's deque.
fn spread(world: &World<Memories>, key: u8) {
    let member = world.act_as(3);
    let local = world.local(&member);
    let mut engine = world.claim(&local, 0).expect("a slot");
    let mut run = world.start(&mut engine, 0, key);
    spawn_children(&mut engine, &mut run, false).expect("room");
    engine
        .complete(&mut run, &mut ())
        .expect("the operation succeeds");
    engine.give_up().expect("nothing is held");
}

/// The owner of a deque and a thief. The deque has two tasks; the first one spawns others.
fn pop_and_steal(way: Way) -> Scenario {
    let ghosts = Ghosts::new();
    let name = match way {
        Way::Sound => "tasks: pop and steal",
        _ => "pops without a fence",
    };
    workers(name, &ghosts, stage(0, &[2, 3, 4, 5, 6, 7]), |world| {
        spread(world, 1);
    })
    .thread("owner", worker(0, &[0], &ghosts, way))
    .thread("thief", worker(1, &[1], &ghosts, Way::Sound))
}

/// Two thieves of a deque without an owner.
fn two_thieves() -> Scenario {
    let ghosts = Ghosts::new();
    workers("tasks: two thieves", &ghosts, stage(1, &[4, 5]), |world| {
        spread(world, 2);
    })
    .thread("t1", worker(1, &[1], &ghosts, Way::Sound))
    .thread("t2", worker(2, &[2], &ghosts, Way::Sound))
}

/// The owner pops and a thief steals, and each may die.
fn steal_and_die(way: Way) -> Scenario {
    let ghosts = Ghosts::new();
    let name = match way {
        Way::Sound => "tasks: steal and death",
        _ => "notes a steal afterwards",
    };
    let first = u32::from(way != Way::Sound);
    let scenario = workers(name, &ghosts, stage(first, &[4, 5]), |world| {
        spread(world, 2)
    });
    if way == Way::Sound {
        return scenario
            .mortal("owner", worker(0, &[0], &ghosts, way))
            .mortal("thief", worker(1, &[1], &ghosts, way))
            .after_death("other", worker(2, &[2], &ghosts, way));
    }
    scenario.mortal("thief", move |_| {
        let world = world();
        let member = world.act_as(1);
        let local = world.local(&member);
        let mut engine = world.claim(&local, 1).expect("a slot");
        while let Some(entry) = steal_and_note(world, 0, engine.slot()) {
            let task = engine.start_noted(entry).expect("the operation succeeds");
            run(world, &mut engine, task.expect("mine"), &ghosts, way);
        }
    })
}

/// A deque of two entries grows while a thief steals.
fn growth(with_deaths: bool) -> Scenario {
    let ghosts = Ghosts::new();
    let name = match with_deaths {
        false => "tasks: growth and steal",
        true => "tasks: growth, steal and death",
    };
    let stage = Stage {
        smallest: 1,
        ..stage(0, &[2, 3, 4, 5, 6, 7])
    };
    let scenario = workers(name, &ghosts, stage, |world| spread(world, 1));
    let (owner, thief) = (
        worker(0, &[0], &ghosts, Way::Sound),
        worker(1, &[1], &ghosts, Way::Sound),
    );
    match with_deaths {
        false => scenario.thread("owner", owner).thread("thief", thief),
        true => scenario.mortal("owner", owner).mortal("thief", thief),
    }
}

/// A worker died that ran a task; two others take it over, each of which may die.
fn dead_runner(way: Way, name: &'static str) -> Scenario {
    let ghosts = Ghosts::new();
    workers(name, &ghosts, stage(1, &[5]), |world| {
        dead_at(world, 2, 1);
    })
    .mortal("r1", worker(1, &[1], &ghosts, way))
    .mortal("r2", worker(2, &[2], &ghosts, way))
}

/// Lets number 0 run a root of `key` in slot 0, then `more` other tasks, and die at the next one.
fn dead_at(world: &World<Memories>, key: u8, more: usize) {
    be_at(world, key, more);
    world.die(0);
}

fn be_at(world: &World<Memories>, key: u8, more: usize) {
    let member = world.act_as(0);
    let local = world.local(&member);
    let mut engine = world.claim(&local, 0).expect("a slot");
    let mut run = world.start(&mut engine, 0, key);
    spawn_children(&mut engine, &mut run, false).expect("room");
    engine
        .complete(&mut run, &mut ())
        .expect("the operation succeeds");
    for _ in 0..more {
        let next = engine.next(&mut ()).expect("the operation succeeds");
        engine
            .complete(&mut next.expect("a task"), &mut ())
            .expect("the operation succeeds");
    }
    let held = engine
        .next(&mut ())
        .expect("the operation succeeds")
        .expect("a task");
    assert!(!held.is_spent());
}

/// A worker runs a task with children and an output, and dies; two continue, one of which may die.
fn dead_committer(way: Way) -> Scenario {
    let ghosts = Ghosts::new();
    let name = match way {
        Way::Sound => "tasks: a commit cut short",
        Way::PublishesChildrenFirst => "publishes children first",
        _ => "publishes outputs first",
    };
    let theirs = ghosts.clone();
    workers(name, &ghosts, stage(0, &[3, 6, 7]), |world| {
        let member = world.act_as(3);
        world.prepare_root(&world.local(&member), 0, 3);
    })
    .mortal("committer", move |_| {
        let world = world();
        let member = world.act_as(0);
        let local = world.local(&member);
        let mut engine = world.claim(&local, 0).expect("a slot");
        let task = engine.start(world.root(0)).expect("the operation succeeds");
        if let Some(task) = task {
            run(world, &mut engine, task, &theirs, way);
        }
    })
    .mortal_after_death("r1", worker(1, &[1], &ghosts, Way::Sound))
    .after_death("r2", worker(2, &[0, 2], &ghosts, Way::Sound))
}

/// A worker died that ran a task; one claims its slot, and another takes the task over.
fn successor(way: Way, name: &'static str) -> Scenario {
    let ghosts = Ghosts::new();
    let scenario = workers(name, &ghosts, stage(1, &[5]), |world| dead_at(world, 2, 1));
    let scenario = match way {
        Way::Sound => scenario.mortal("taker", worker(1, &[1], &ghosts, way)),
        _ => scenario.thread("taker", wrong_taker(&ghosts, way)),
    };
    scenario.mortal("successor", worker(2, &[0], &ghosts, Way::Sound))
}

/// Returns a body that takes the task noted in slot 0 wrongly, from slot 1.
fn wrong_taker(ghosts: &Ghosts, way: Way) -> impl Fn(Scheduled) + Send + Sync + use<> {
    let ghosts = ghosts.clone();
    move |_| {
        let world = world();
        let slot = world.slots.slot(0);
        let Some(task) = slot.running(world.memory).expect("sound") else {
            return;
        };
        // A ready task may be run by any worker.
        if task.status().expect("sound").state() != State::Running {
            return;
        }
        let ignored = match way {
            Way::TakesBlindly => u64::MAX,
            _ => !0xFF_FFFF,
        };
        let weakness = Weakness::Bits(task.offset(), ignored);
        let world = World::open(Weakened::new(Scheduled::handle(), weakness));
        let member = world.act_as(1);
        let local = world.local(&member);
        let mut engine = world.claim(&local, 1).expect("a slot");
        let task = Task::new(world.memory, task.offset());
        let taken = engine.take(task, &mut world.tree());
        if let Taken::Run(task) = taken.expect("the operation succeeds") {
            run(&world, &mut engine, task, &ghosts, Way::Sound);
        }
    }
}

/// A worker died that ran a task. While one looks at it, another takes it over, completes it,
/// claims the slot, and gives the descriptor another life there, in which it runs, in the same
/// slot, in a first attempt: everything but the sequence is as it was.
fn slow_taker(way: Way) -> Scenario {
    let ghosts = Ghosts::new();
    let name = match way {
        Way::Sound => "tasks: a slow taker",
        _ => "takes another life",
    };
    let scenario = workers(
        name,
        &ghosts,
        Stage {
            others: &[3, 6, 7],
            ..stage(1, &[4, 5])
        },
        |world| {
            dead_at(world, 2, 0);
        },
    );
    let scenario = match way {
        Way::Sound => scenario.thread("taker", worker(1, &[1], &ghosts, way)),
        _ => scenario.thread("taker", wrong_taker(&ghosts, way)),
    };
    let ghosts = ghosts.clone();
    scenario.mortal("other", move |_| {
        let world = world();
        let member = world.act_as(2);
        let local = world.local(&member);
        work(world, &local, 2, &ghosts, Way::Sound);
        let Some(mut engine) = world.claim(&local, 0) else {
            return;
        };
        while let Some(task) = engine
            .next(&mut world.tree())
            .expect("the operation succeeds")
        {
            run(world, &mut engine, task, &ghosts, Way::Sound);
        }
        let mut root = world.start(&mut engine, 1, 3);
        spawn_children(&mut engine, &mut root, false).expect("room");
        engine
            .complete(&mut root, &mut ())
            .expect("the operation succeeds");
        // It lives, and has not completed the task that it runs, as long as the other one looks.
        if let Some(held) = engine.next(&mut ()).expect("the operation succeeds") {
            let key = usize::from(held.arguments().expect("the task has arguments")[0]);
            ghosts.with(|seen| seen[key].by = Some(2));
        }
    })
}
