//! Tasks under every interleaving, with deaths: what `outlive-lab prove schedule` runs of this crate.
//!
//! Workers 0 to 2 claim the slots that they are told to; 3 prepares, and does what they leave. A ghost knows who runs
//! which key: nobody runs what a living one is running, or what has been completed; and in the end every key has been run.

use crate::deque::steal_and_note;
use crate::engine::{Engine, Running};
use crate::fixtures::{KEYS, SLOTS, World, bytes, spawn_children};
use outlive::heap::LocalHeap;
use outlive::memory::{Memory, Ordering};
use outlive_prove::fixtures::weakened::{Weakened, Weakness};
use outlive_prove::scenarios::Proof;
use outlive_prove::schedule::{self, Bounds, End, Ghost, Proving, Scenario, Scheduled};
use std::sync::OnceLock;

/// How many slabs the heap has room for.
const SLABS: u64 = 6;

/// The scenarios of this file.
pub fn all() -> Vec<Proof> {
    // Every execution with so many interruptions and deaths; and some with more of both.
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

/// Scenarios that must fail within these bounds, each with a part of what must be said.
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
            "both run",
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

/// How it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Sound,
    /// Broken: a steal is noted afterwards.
    StealForgetsTheSlot,
    /// Broken: without the fence of pop.
    PopHasNoFence,
    /// Broken: the children are pushed, then the task is committed.
    PublishesChildrenFirst,
    /// Broken: the output is bound, then the task is committed.
    PublishesOutputsFirst,
    /// Broken: the owner of the slot is looked at before the status.
    TakesBlindly,
    /// Broken: the status is swapped whatever its sequence.
    IgnoresTheSequence,
}

type Memories = Weakened<Scheduled>;

/// The handles; the memory behind them is each execution's own.
fn world() -> &'static World<Memories> {
    static WORLD: OnceLock<World<Memories>> = OnceLock::new();
    WORLD.get_or_init(|| World::open(Weakened::sound(Scheduled::handle())))
}

/// Who is running which key, and what is done.
#[derive(Clone, Copy, Default)]
struct Seen {
    by: Option<u32>,
    runs: usize,
}

type Ghosts = Ghost<[Seen; KEYS as usize]>;

/// What a scenario is about.
struct Stage {
    /// The keys that are to be run.
    keys: &'static [u64],
    /// Others that may be run.
    others: &'static [u64],
    /// Its threads are the members from this one on.
    first: u32,
    /// The logarithm of the size of a deque's first array.
    smallest: u32,
}

/// One task for each of these keys: but for those that the dead were at, none is run twice.
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
                // It has stopped in the middle of one of them.
                world.die(2);
            }
            // Twice: the slots of those who died with a commit of others can be had when that is done.
            for number in (0..SLOTS).chain(0..SLOTS) {
                work(world, &local, number, &ghosts, Way::Sound);
            }
            world.recoverers.recover_all(&last).expect("they can be");
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

/// Runs a task: notes it, and looks whether somebody else is at it.
fn run<M: Memory>(
    world: &World<M>,
    engine: &mut Engine<'_, M>,
    mut run: Running<M>,
    ghosts: &Ghosts,
    way: Way,
) {
    let me = engine.heap().instance().id;
    let key = u64::from(run.arguments().expect("they are there")[0]);
    let other = ghosts.with(|seen| {
        let seen = &mut seen[key as usize];
        seen.runs += 1;
        seen.by.replace(me)
    });
    // One that is dead has done what it could.
    if let Some(other) = other.filter(|other| *other != me) {
        let alive = world.status(other).may_write();
        assert!(!alive, "{other} and {me} both run key {key}");
    }
    let mut tree = world.tree();
    spawn_children(engine, &mut run, false).expect("room");
    match way {
        Way::PublishesChildrenFirst => engine.publish_children(&run).expect("it can be"),
        Way::PublishesOutputsFirst => tree.bind(key, run.attempt()),
        _ => {}
    }
    // Before it is completed nobody else may be at it.
    ghosts.with(|seen| {
        let by = seen[key as usize].by;
        assert_eq!(by, Some(me), "{by:?} and {me} both run key {key}");
    });
    engine.complete(&mut run, &mut tree).expect("it can be");
    ghosts.with(|seen| {
        // Unless there is another task of this key already.
        let by = &mut seen[key as usize].by;
        *by = by.filter(|by| *by != me);
    });
}

/// What the owner of slot `number`, if it can be had, does until it finds nothing.
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
        let next = engine.next(&mut world.tree()).expect("it can be");
        let next = match next {
            None => engine.start(world.root(0)).expect("it can be"),
            found => found,
        };
        let Some(task) = next else { break };
        run(world, &mut engine, task, ghosts, way);
    }
    engine.give_up().expect("nothing is held");
}

/// What worker `id` does: works in `slots`, one after the other.
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

/// Number 3 runs a root of `key` in slot 0, whose deque then has its children, and gives the slot up.
fn spread(world: &World<Memories>, key: u8) {
    let member = world.act_as(3);
    let local = world.local(&member);
    let mut engine = world.claim(&local, 0).expect("a slot");
    let mut run = world.start(&mut engine, 0, key);
    spawn_children(&mut engine, &mut run, false).expect("room");
    engine.complete(&mut run, &mut ()).expect("it can be");
    engine.give_up().expect("nothing is held");
}

/// The owner of a deque and a thief. The deque has two tasks, the first of which spawns others when it is run.
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

/// Two thieves of a deque that nobody owns.
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
        let victim = world.slots.slot(0);
        while let Some(entry) =
            steal_and_note(world.memory, victim, engine.slot()).expect("it can be")
        {
            let task = engine.start_noted(entry).expect("it can be");
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

/// A worker is dead that ran a task; two take it over, each of whom may die.
fn dead_runner(way: Way, name: &'static str) -> Scenario {
    let ghosts = Ghosts::new();
    workers(name, &ghosts, stage(1, &[5]), |world| {
        dead_at(world, 2, 1);
    })
    .mortal("r1", worker(1, &[1], &ghosts, way))
    .mortal("r2", worker(2, &[2], &ghosts, way))
}

/// Number 0 has run a root of `key` in slot 0, then `more` other tasks, and died at the next one.
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
    engine.complete(&mut run, &mut ()).expect("it can be");
    for _ in 0..more {
        let next = engine.next(&mut ()).expect("it can be");
        engine
            .complete(&mut next.expect("a task"), &mut ())
            .expect("it can be");
    }
    let held = engine.next(&mut ()).expect("it can be").expect("a task");
    assert!(!held.is_spent());
}

/// A worker runs a task with children and an output, and dies; two go on, one of whom may die.
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
        let task = engine.start(world.root(0)).expect("it can be");
        if let Some(task) = task {
            run(world, &mut engine, task, &theirs, way);
        }
    })
    .mortal_after_death("r1", worker(1, &[1], &ghosts, Way::Sound))
    .after_death("r2", worker(2, &[0, 2], &ghosts, Way::Sound))
}

/// A worker is dead that ran a task; one claims its slot, and another takes the task over.
fn successor(way: Way, name: &'static str) -> Scenario {
    let ghosts = Ghosts::new();
    let scenario = workers(name, &ghosts, stage(1, &[5]), |world| dead_at(world, 2, 1));
    let scenario = match way {
        Way::Sound => scenario.mortal("taker", worker(1, &[1], &ghosts, way)),
        _ => scenario.thread("taker", wrong_taker(&ghosts, way)),
    };
    scenario.mortal("successor", worker(2, &[0], &ghosts, Way::Sound))
}

/// Takes what is noted in slot 0 wrongly, from slot 1.
fn wrong_taker(ghosts: &Ghosts, way: Way) -> impl Fn(Scheduled) + Send + Sync + use<> {
    let ghosts = ghosts.clone();
    move |_| {
        let world = world();
        let member = world.act_as(1);
        let local = world.local(&member);
        let mut engine = world.claim(&local, 1).expect("a slot");
        let taken = match way {
            Way::TakesBlindly => engine.take_blindly(0),
            _ => engine.take_whatever_life(0),
        };
        if let Some(task) = taken.expect("it can be") {
            run(world, &mut engine, task, &ghosts, Way::Sound);
        }
    }
}

/// A worker is dead that ran a task. While one looks at it, another takes it over, completes it, claims the slot, and gives
/// the descriptor another life there, in which it runs, in the same slot, in a first attempt: all but the sequence is as it
/// was.
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
        while let Some(task) = engine.next(&mut world.tree()).expect("it can be") {
            run(world, &mut engine, task, &ghosts, Way::Sound);
        }
        let mut root = world.start(&mut engine, 1, 3);
        spawn_children(&mut engine, &mut root, false).expect("room");
        engine.complete(&mut root, &mut ()).expect("it can be");
        // It lives, and has not done what it runs, as long as the other one looks.
        if let Some(held) = engine.next(&mut ()).expect("it can be") {
            let key = usize::from(held.arguments().expect("they are there")[0]);
            ghosts.with(|seen| seen[key].by = Some(2));
        }
    })
}
