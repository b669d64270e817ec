//! Proofs that notes of deaths in tasks exist completely or not at all.
//!
//! *Killed at every instruction.* The victim notes a death in an entry with an older note; a
//! survivor then notes the death of the victim.
//!
//! *Under interleavings.* A reader reads the notes of a task while a writer overwrites one of them
//! with another note of the same task.

use outlive::membership::Instance;
use outlive::memory::{Memory, Offset, Ordering};
use outlive_prove::kill::{Crash, Marked, Suite, Sweep};
use outlive_prove::proof::Proof;
use outlive_prove::schedule::{self, Bounds, Scenario};
use outlive_tasks::internals::{Crashes, DeathPoint, NUMBER};

/// Adds the sweeps of this file.
pub fn add_to(suite: &mut Suite) {
    suite.add(Notes(Way::Sound));
    suite.declare::<DeathPoint>();
}

/// Broken variants of the sweep, which must fail, each with a part of the message.
pub fn broken_sweeps() -> Vec<(Box<dyn Sweep>, &'static str)> {
    vec![(
        Box::new(Notes(Way::NumberFirst)),
        "is not a note of that task",
    )]
}

/// The scenarios of this file.
pub fn all() -> Vec<Proof> {
    let quick = Bounds::default().preemptions(2).stale_reads(1).deaths(0);
    let full = quick.clone().preemptions(3).stale_reads(2);
    vec![Proof::of_every(
        overwritten(Way::Sound),
        quick.executions(100_000),
        full.executions(3_000_000),
    )]
}

/// Broken variants of the scenario, which must fail within these bounds, each with a part of the
/// message.
pub fn broken() -> Vec<(Scenario, Bounds, &'static str)> {
    let bounds = Bounds::default().preemptions(2).stale_reads(1).deaths(0);
    vec![(
        overwritten(Way::NotCleared),
        bounds.executions(400_000),
        "is mixed",
    )]
}

/// The variants of noting a death.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Sound,
    /// Broken: the number is written before the rest.
    NumberFirst,
    /// Broken: the entry is not cleared before it is written.
    NotCleared,
}

const RING: Offset = Offset::new(128);
const OLD: Offset = Offset::new(4096);
const NEW: Offset = Offset::new(8192);
const LIFE: u64 = 7;
/// With one slot and a limit of one the ring has four entries.
const ENTRIES: u32 = 4;
const BYTES: u64 = 1024;

fn ring<M: Memory>(memory: M) -> Crashes<M> {
    Crashes::new(memory, RING, 1, 1)
}

fn worker(number: u32) -> Instance {
    Instance::new(number, number)
}

impl Way {
    fn note<M: Memory>(self, memory: M, task: Offset, number: u32) {
        let ring = ring(memory);
        let (dead, process) = (worker(number), Some(worker(number)));
        let publish = |at, number: u64| memory.store(at + NUMBER, number, Ordering::Release);
        match self {
            Self::Sound => ring.note_of(task, LIFE, dead, process),
            Self::NumberFirst => {
                let (at, number) = ring.take_entry();
                publish(at, number);
                ring.fill(at, (task, LIFE), (dead, process));
            }
            Self::NotCleared => {
                let (at, number) = ring.take_entry();
                ring.fill(at, (task, LIFE), (dead, process));
                publish(at, number);
            }
        }
    }
}

fn named(what: &str, way: Way) -> String {
    match way {
        Way::Sound => what.into(),
        way => format!("{what}, {way:?}"),
    }
}

/// Returns the workers with a death noted in `task`; an error if a note mixes two.
fn noted<M: Memory>(memory: M, task: Offset) -> Result<Vec<u32>, String> {
    let all = ring(memory).of(task, LIFE).into_iter();
    all.map(|crash| match crash.process == Some(crash.worker) {
        true => Ok(crash.worker.id),
        false => Err(format!("{crash} is mixed")),
    })
    .collect()
}

/// The victim, number 5, notes a death in the task `NEW` where the first of four deaths in `OLD`
/// was noted.
struct Notes(Way);

impl Sweep for Notes {
    fn name(&self) -> String {
        named("tasks: a death is noted", self.0)
    }

    fn prepare(&self, memory: Marked) {
        (1..=ENTRIES).for_each(|number| Way::Sound.note(memory, OLD, number));
    }

    fn operate(&self, memory: Marked) {
        self.0.note(memory, NEW, 5);
    }

    fn recover(&self, memory: Marked, _: &Crash) {
        // A taker notes the death of the victim, and its successor does if it dies in that.
        if !noted(memory, NEW).is_ok_and(|all| all.contains(&6)) {
            Way::Sound.note(memory, NEW, 6);
        }
    }

    fn check(&self, memory: Marked, crash: &Crash) -> Result<(), String> {
        let (old, new) = (noted(memory, OLD)?, noted(memory, NEW)?);
        match new[..] {
            [5, 6] => {}
            [6] if !crash.returned => {}
            _ => return Err(format!("{new:?} is not a note of that task")),
        }
        match old.iter().all(|number| (1..=ENTRIES).contains(number)) {
            true => Ok(()),
            false => Err(format!("{old:?} is not a note of that task")),
        }
    }
}

/// One thread reads the notes of `OLD` while another notes a fifth death in it, where the first
/// was.
fn overwritten(way: Way) -> Scenario {
    schedule::scenario(&named("tasks: a note is overwritten", way))
        .memory(BYTES)
        .prepare(|memory| (1..=ENTRIES).for_each(|number| Way::Sound.note(memory, OLD, number)))
        .thread("writer", move |memory| way.note(memory, OLD, 5))
        .thread("reader", |memory| {
            let all = noted(memory, OLD).unwrap_or_else(|wrong| panic!("{wrong}"));
            assert!(all.is_sorted(), "{all:?} is mixed: not in their order");
        })
        .check(|memory, _| {
            let all = noted(memory, OLD).unwrap_or_else(|wrong| panic!("{wrong}"));
            assert_eq!(all, [2, 3, 4, 5], "{all:?} is mixed");
        })
}
