//! Locks, barriers, conditions and event counts: no two threads are in a critical section together,
//! and none waits forever.

use crate::support;
use outlive_machine::cluster::{self, Cluster, ClusterError, Workload};
use outlive_machine::description::{Description, Protocol};
use outlive_machine::engine::Simulation;
use outlive_machine::program::{
    Barrier, BarrierId, ConditionId, EventCountId, Image, LockId, Next, Op, Script,
    Synchronisation, Thread, Update, Word,
};

const THREADS: usize = 8;
const LOCK: LockId = LockId(0);
const BARRIER: BarrierId = BarrierId(0);
const CONDITION: ConditionId = ConditionId(0);
const COUNT: EventCountId = EventCountId(0);
/// Plain words, in lines of their own.
const COUNTER: Word = Word(64);
const OTHER: Word = Word(72);

fn objects() -> Synchronisation {
    Synchronisation {
        locks: vec![Word(0)],
        conditions: vec![Word(8)],
        barriers: vec![Barrier {
            counter: Word(16),
            threads: THREADS as u32,
        }],
        event_counts: 1,
    }
}

fn image() -> Image {
    Image {
        words: 128,
        ..Image::default()
    }
}

/// A program that computes with what it reads: each step sees the last value read.
#[derive(Clone, Debug)]
struct Program {
    number: u64,
    step: fn(number: u64, step: u64, last: u64) -> Option<Op>,
    at: u64,
    last: u64,
    open: bool,
}

impl Thread for Program {
    fn next(&mut self) -> Next {
        if self.open {
            return Next::Waits;
        }
        let Some(op) = (self.step)(self.number, self.at, self.last) else {
            return Next::Ended;
        };
        self.at += 1;
        self.open = matches!(op, Op::Load(_) | Op::Atomic(..));
        Next::Op(op)
    }

    fn deliver(&mut self, value: u64) {
        (self.last, self.open) = (value, false);
    }
}

/// A protocol, and the treatment of locks and barriers in memory.
type Machine = (&'static str, &'static str);

const WRITE_BACK: Machine = ("wb", "replicated");

fn machines() -> impl Iterator<Item = Machine> {
    let protocols = Protocol::ALL.iter().map(|protocol| protocol.name());
    protocols.flat_map(|protocol| ["replicated", "events"].map(|locks| (protocol, locks)))
}

fn description((protocol, synchronisation): Machine) -> Description {
    format!(
        r#"
        [system]
        compute_nodes = 4
        memory_nodes = 2
        cores_per_node = 2
        [l3]
        size = "64 KiB"
        [ours.coherence]
        protocol = "{protocol}"
        [ours.core]
        synchronisation = "{synchronisation}"
        "#
    )
    .parse()
    .expect("a machine that can be")
}

fn simulation(
    machine: Machine,
    step: fn(u64, u64, u64) -> Option<Op>,
) -> Simulation<Cluster<Program>> {
    let thread = |number| Program {
        number,
        step,
        at: 0,
        last: 0,
        open: false,
    };
    let workload = Workload {
        threads: (0..THREADS as u64).map(thread).collect(),
        image: image(),
        synchronisation: objects(),
    };
    judged(machine, workload)
}

fn judged<T: Thread>(machine: Machine, workload: Workload<T>) -> Simulation<Cluster<T>> {
    support::judged(&description(machine), workload, 5)
}

fn finish<T: Thread>(mut simulation: Simulation<Cluster<T>>) -> Simulation<Cluster<T>> {
    support::finish(&mut simulation);
    simulation
}

#[test]
fn a_lock_admits_one_at_a_time() {
    for which in machines() {
        // Read, wait, write back one more: without a lock most of the increments would be lost.
        let simulation = finish(simulation(which, |number, step, last| {
            let within = [
                Op::Lock(LOCK),
                Op::Load(COUNTER),
                Op::Compute(50 + number as u32 * 7),
                Op::Store(COUNTER, last + 1),
                Op::Unlock(LOCK),
                Op::Compute(number as u32 * 30),
            ];
            (step < 6 * 100).then(|| within[step as usize % 6])
        }));
        let machine = simulation.machine();
        assert_eq!(machine.word(COUNTER), 100 * THREADS as u64, "{which:?}");
        assert_eq!(machine.word(Word(0)), 0, "the lock is free");
        let total = machine.statistics().total();
        // While one thread is inside, for 50 cycles at least, the others mostly wait.
        assert!(total.lock_ticks > 800 * 50 * 3, "{which:?}: {total:?}");
        assert_eq!(total.meeting_ticks, 0);
    }
}

#[test]
fn without_the_lock_it_would_be_noticed() {
    let simulation = finish(simulation(WRITE_BACK, |number, step, last| {
        let within = [
            Op::Load(COUNTER),
            Op::Compute(50 + number as u32 * 7),
            Op::Store(COUNTER, last + 1),
        ];
        (step < 3 * 100).then(|| within[step as usize % 3])
    }));
    assert!(simulation.machine().word(COUNTER) < 100 * THREADS as u64);
}

#[test]
fn a_barrier_is_passed_when_all_have_arrived() {
    for which in machines() {
        // In each round, a thread writes its own word; after the barrier, it reads its neighbour's.
        let simulation = finish(simulation(which, |number, step, last| {
            let (round, own) = (step / 5, COUNTER.offset(number));
            let neighbour = COUNTER.offset((number + 1) % THREADS as u64);
            if step % 5 == 4 {
                assert_eq!(last, round + 1, "thread {number} in round {round}");
            }
            let op = match step % 5 {
                0 => Op::Compute(number as u32 * 300 % 1_100),
                1 => Op::Store(own, round + 1),
                2 => Op::Barrier(BARRIER),
                3 => Op::Load(neighbour),
                _ => Op::Barrier(BARRIER),
            };
            (round < 60).then_some(op)
        }));
        let machine = simulation.machine();
        assert_eq!(machine.word(Word(16)), 0, "no thread is counted any more");
        let opened = if which.1 == "events" { 0 } else { 120 };
        assert_eq!(
            machine.word(Word(24)),
            opened,
            "the flag says how often it was opened"
        );
        let total = machine.statistics().total();
        assert!(total.meeting_ticks > 0);
        assert_eq!(total.lock_ticks, 0);
    }
}

#[test]
fn who_waits_for_a_condition_is_woken() {
    for which in machines() {
        // The first half waits, one after another, for tokens that the other half makes.
        let simulation = finish(simulation(which, |number, step, last| {
            let producer = number >= THREADS as u64 / 2;
            let round = step / 6;
            let op = match (step % 6, producer) {
                (0, true) => Op::Compute(2_000 + number as u32 * 100),
                (0, false) => Op::Compute(number as u32 * 10),
                (1, _) => Op::Lock(LOCK),
                (2, _) => Op::Load(COUNTER),
                (3, true) => Op::Store(COUNTER, last + 1),
                // Without a token it waits, once: each wait is answered by at least one signal.
                (3, false) if last == 0 => Op::Wait(CONDITION, LOCK),
                (3, false) => Op::Compute(1),
                (4, true) => Op::Broadcast(CONDITION),
                (4, false) => Op::Atomic(OTHER, Update::Add(1)),
                _ => Op::Unlock(LOCK),
            };
            let rounds = if producer { 40 } else { 10 };
            (round < rounds).then_some(op)
        }));
        let machine = simulation.machine();
        assert_eq!(machine.word(OTHER), 10 * THREADS as u64 / 2);
        assert_eq!(machine.word(COUNTER), 40 * THREADS as u64 / 2);
    }
}

/// One thread reads a word before it advances the count, and another writes that word after it has
/// awaited the count. Returns the values that both read.
fn read_around_a_count(machine: Machine, wanted: u64) -> (Vec<u64>, Vec<u64>) {
    const LATER: Word = Word(96);
    // No thread waits for values, so only the count can hold a thread back.
    let threads = vec![
        Script::new([
            Op::Compute(100_000),
            Op::Load(LATER),
            Op::Store(COUNTER, 7),
            Op::Advance(COUNT),
            Op::Advance(COUNT),
        ]),
        Script::new([
            Op::Compute(100_000),
            Op::Store(OTHER, 8),
            Op::Advance(COUNT),
        ]),
        Script::new([
            Op::Await(COUNT, wanted),
            Op::Load(COUNTER),
            Op::Load(OTHER),
            Op::Store(LATER, 9),
        ]),
        // A count that is awaited twice is there the second time.
        Script::new([
            Op::Await(COUNT, wanted),
            Op::Await(COUNT, wanted),
            Op::Load(OTHER),
        ]),
    ];
    let workload = Workload {
        threads,
        image: image(),
        synchronisation: objects(),
    };
    let simulation = finish(judged(machine, workload));
    let read = |thread| simulation.machine().thread(thread).results().to_vec();
    (read(0), [read(2), read(3)].concat())
}

#[test]
fn who_awaits_a_count_comes_after_who_advanced_it() {
    for which in machines() {
        let (before, after) = read_around_a_count(which, 3);
        assert_eq!((before, after), (vec![0], vec![7, 8, 8]), "{which:?}");
        let (_, at_once) = read_around_a_count(which, 0);
        assert_eq!(at_once, [0, 0, 0], "{which:?}: nothing holds them back");
    }
}

#[test]
fn a_deadlock_is_told_with_who_waits_for_what() {
    let mut stuck = simulation(WRITE_BACK, |number, step, _| match (number, step) {
        (0, 0) => Some(Op::Lock(LOCK)),
        (1, 0) => Some(Op::Compute(100_000)),
        (1, 1) => Some(Op::Lock(LOCK)),
        (2, 0) => Some(Op::Barrier(BARRIER)),
        (3, 0) => Some(Op::Advance(COUNT)),
        (4, 0) => Some(Op::Await(COUNT, 2)),
        _ => None,
    });
    let error = cluster::run(&mut stuck).unwrap_err();
    assert_eq!(
        error.threads,
        [
            "thread 1 waits for lock 0",
            "thread 2 waits for barrier 0",
            "thread 4 waits for event count 0 to be 2, which is 1"
        ]
    );
}

#[test]
fn workloads_that_do_not_fit_are_refused() {
    let description = Description::default();
    let workload = |image, synchronisation| Workload::<outlive_machine::program::Script> {
        threads: vec![],
        image,
        synchronisation,
    };
    let refused = |workload| Cluster::simulation(&description, workload, 1).unwrap_err();
    let small = Image {
        words: 24,
        ..Image::default()
    };
    assert_eq!(
        refused(workload(small, objects())).to_string(),
        "a barrier's flag is Word(24), and shared memory has 24 words; enlarge the image"
    );
    let runs = Image {
        words: 8,
        runs: vec![(Word(7), vec![1, 2])],
    };
    let error = refused(workload(runs, Synchronisation::default()));
    assert!(matches!(
        error,
        ClusterError::OutsideMemory { word: Word(8), .. }
    ));
}
