//! `locks`: the cost of recoverability of a lock, compared with plain locks that wait as ours do
//! (LUPIN §5, Table 2).
//!
//! All workers increment one counter under the lock. Each makes a fixed number of increments, as in
//! the paper. A time is that of one worker's increment: from the first worker's start to the last
//! one's end, divided by the number of increments of each. After each round the counter must be the
//! sum, or the measurement is void.

mod ours;
mod plain;

pub(crate) use plain::{initialise_pthread, make_robust};

use crate::paired::{Comparison, Paired};
use crate::row::{Goal, Row};
use crate::stage::{Bench, Job, Stage};
use crate::statistics::{median, median_estimate};
use crate::{Run, Study, StudyError, machine};
use std::time::Duration;

pub const STUDY: Study = Study {
    name: "locks",
    about: "recoverable locks beside plain ones, alone and contended (LUPIN Table 2)",
    body: study,
};

/// A lock that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// [`outlive::sync::BareTatas`].
    Bare,
    /// [`outlive::sync::Tatas`].
    Logged,
    /// [`outlive::sync::QueueLock`].
    Queue,
    /// The same, but it never sleeps: it has the waiting policy of its peer.
    QueueAwake,
    /// [`outlive::sync::RecoverableMutex`].
    Mutex,
    /// A test-and-test-and-set lock that is not recoverable.
    PlainTatas,
    /// The same with one store to a private line after it.
    PlainTatasAndStore,
    /// A queue lock that is not recoverable.
    PlainMcs,
    /// The same, whose waiters spin and never yield.
    SpinningMcs,
    /// A robust, process-shared mutex of the C library.
    RobustPthread,
}

impl Lock {
    pub const ALL: [Self; 10] = [
        Self::Bare,
        Self::Logged,
        Self::Queue,
        Self::QueueAwake,
        Self::Mutex,
        Self::PlainTatas,
        Self::PlainTatasAndStore,
        Self::PlainMcs,
        Self::SpinningMcs,
        Self::RobustPthread,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Bare => "recoverable TATAS, bare",
            Self::Logged => "recoverable TATAS, logged",
            Self::Queue => "recoverable queue lock",
            Self::QueueAwake => "recoverable queue lock, never sleeping",
            Self::Mutex => "recoverable mutex over a value",
            Self::PlainTatas => "plain TATAS",
            Self::PlainTatasAndStore => "plain TATAS + one store",
            Self::PlainMcs => "plain MCS, spinning then yielding",
            Self::SpinningMcs => "plain MCS, spinning",
            Self::RobustPthread => "robust pthread mutex",
        }
    }
}

/// One comparison: ours, the peer, and the bound on the ratio.
type Case = (Lock, Lock, Option<f64>);

const ALONE: [Case; 8] = [
    (Lock::Bare, Lock::PlainTatas, Some(1.05)),
    (Lock::Logged, Lock::PlainTatas, Some(1.12)),
    // The minimum cost of a log: it must make one store between a release and the next acquisition,
    // and a compare-and-swap after a store to another line waits for that store.
    (Lock::PlainTatasAndStore, Lock::PlainTatas, None),
    (Lock::Logged, Lock::PlainTatasAndStore, None),
    (Lock::Bare, Lock::RobustPthread, Some(0.5)),
    (Lock::Logged, Lock::RobustPthread, Some(0.5)),
    (Lock::QueueAwake, Lock::PlainMcs, Some(1.08)),
    (Lock::Mutex, Lock::RobustPthread, None),
];

const CONTENDED: [Case; 7] = [
    (Lock::Bare, Lock::PlainTatas, Some(1.03)),
    (Lock::Logged, Lock::PlainTatas, Some(1.12)),
    (Lock::PlainTatasAndStore, Lock::PlainTatas, None),
    (Lock::Bare, Lock::RobustPthread, Some(0.5)),
    (Lock::QueueAwake, Lock::PlainMcs, Some(1.08)),
    (Lock::Logged, Lock::RobustPthread, None),
    (Lock::Queue, Lock::PlainMcs, None),
];

fn study(run: &mut Run<'_>) -> Result<(), StudyError> {
    let rounds = run.effort().of(3, 51, 201);
    for (case, mut stage, pairs) in [
        ("one thread", Stage::threads(1)?, &ALONE[..]),
        ("2 threads", Stage::threads(2)?, &CONTENDED[..]),
    ] {
        compare(run, case, &mut stage, pairs, rounds)?;
    }
    let mut stage = Stage::processes(2, run.launcher())?;
    compare(run, "2 processes", &mut stage, &CONTENDED, rounds)?;
    drop(stage);
    crowded(run)?;
    table_2(run)
}

fn compare(
    run: &mut Run<'_>,
    case: &str,
    stage: &mut Stage,
    pairs: &[Case],
    rounds: usize,
) -> Result<(), StudyError> {
    let round = run.effort().of(2e5, 4e6, 8e6);
    for (ours, peer, goal) in pairs {
        run.begin(&format!("{case}: {} beside {}", ours.name(), peer.name()));
        let counts = [*ours, *peer].map(|lock| stage.calibrate(Job::Increment(lock), round));
        let [ours_count, peer_count] = counts;
        let (ours_count, peer_count) = (ours_count?, peer_count?);
        let stage = std::cell::RefCell::new(&mut *stage);
        let time = |lock, count| stage.borrow_mut().time(Job::Increment(lock), count);
        let paired = Paired::measure(
            run,
            rounds,
            || time(*ours, ours_count),
            || time(*peer, peer_count),
        )?;
        let comparison = Comparison {
            case: &format!("{case}, {}", ours.name()),
            metric: "time of an increment",
            unit: "ns",
            peer: peer.name(),
            paper: None,
            goal: goal.map(Goal::ratio_at_most),
        };
        run.answer(comparison.rows(&paired));
    }
    Ok(())
}

/// Twice as many processes as cores: a waiter that spins keeps the core from the holder it waits
/// for. The measured time is a window in which all of them are at work. The ratio is one of speeds:
/// the peer's time to ours.
fn crowded(run: &mut Run<'_>) -> Result<(), StudyError> {
    let processes = 2 * machine::cores() as u32;
    let case = format!("{processes} processes on {} cores", machine::cores());
    let (ours, peer) = (Lock::Queue, Lock::SpinningMcs);
    run.begin(&format!("{case}: {} beside {}", ours.name(), peer.name()));
    let mut stage = Stage::processes(processes, run.launcher())?;
    let window = Duration::from_millis(run.effort().of(50, 300, 1000));
    let stage = std::cell::RefCell::new(&mut stage);
    let rate = |lock| stage.borrow_mut().rate(Job::Increment(lock), window);
    let rounds = run.effort().of(3, 11, 41);
    // Each ratio is divided by the one passed as the peer, which here is ours.
    let paired = Paired::measure(run, rounds, || rate(peer), || rate(ours))?;
    let row = Row::new(
        format!("{case}, {}", ours.name()),
        "speedup",
        "ns an increment",
    )
    .ours(paired.peer())
    .peer(peer.name(), median(&paired.ours))
    .ratio(paired.ratio());
    let same = Row::new(
        format!("{case}, {}", ours.name()),
        "A/A: ours beside itself",
        "ns an increment",
    )
    .ours(paired.peer())
    .ratio(paired.same());
    run.answer([row.goal(Goal::ratio_at_least(5.0)), same]);
    Ok(())
}

/// LUPIN's Table 2: 32 threads, with a core each in the paper; here they share the cores.
fn table_2(run: &mut Run<'_>) -> Result<(), StudyError> {
    const THREADS: u32 = 32;
    let case = |lock: &str| {
        format!(
            "{THREADS} threads on {} cores (the paper: on 32 or more), {lock}",
            machine::cores()
        )
    };
    let metric = "time of a thread's increment";
    // Table 2: the lock, its mean in DRAM and in CXL memory.
    let locks = [
        (Lock::PlainTatas, [5.43, 5.42]),
        (Lock::Bare, [5.50, 5.56]),
        (Lock::PlainMcs, [7.42, 7.49]),
        (Lock::QueueAwake, [7.86, 8.09]),
    ];
    let rounds = run.effort().of(3, 15, 51);
    let window = Duration::from_millis(run.effort().of(30, 100, 200));
    let mut stage = Stage::threads(THREADS)?;
    let mut times = vec![Vec::new(); locks.len()];
    for _ in 0..rounds {
        for ((lock, _), times) in locks.iter().zip(&mut times) {
            run.begin(&case(lock.name()));
            times.push(stage.rate(Job::Increment(*lock), window)? / 1000.0);
        }
        run.go_on()?;
    }
    let ratio = |ours: usize, peer: usize| {
        let pairs = times[ours].iter().zip(&times[peer]);
        let ratios: Vec<f64> = pairs.map(|(ours, peer)| ours / peer).collect();
        median_estimate(&ratios)
    };
    let mut rows = Vec::new();
    for (index, (lock, [dram, _])) in locks.iter().enumerate() {
        let row = Row::new(case(lock.name()), metric, "us").paper(*dram);
        rows.push(match index {
            1 | 3 => row
                .ours(median(&times[index]))
                .peer(locks[index - 1].0.name(), median(&times[index - 1]))
                .ratio(ratio(index, index - 1)),
            _ => row.peer(lock.name(), median(&times[index])),
        });
    }
    for (lock, [_, cxl]) in locks {
        let case = format!(
            "{THREADS} threads in CXL memory (not available here), {}",
            lock.name()
        );
        rows.push(Row::paper_alone(case, metric, "us", cxl));
    }
    let jayanti_joshi = "Jayanti and Joshi's recoverable, abortable lock (not measured: the text \
                         of the algorithm was not available, and there is no public \
                         implementation)";
    for (memory, paper) in [("DRAM", 99.97), ("CXL memory", 95.71)] {
        let case = format!("{THREADS} threads in {memory}, {jayanti_joshi}");
        rows.push(Row::paper_alone(case, metric, "us", paper));
    }
    run.answer(rows);
    Ok(())
}

/// Executes one worker's round.
pub fn round(bench: &Bench, lock: Lock, increments: u64) {
    match lock {
        Lock::Bare => {
            let lock = ours::Bare::new(bench);
            bench.run(increments, || lock.increment(bench));
        }
        Lock::Logged => {
            let lock = ours::Logged::new(bench);
            bench.run(increments, || lock.increment(bench));
        }
        Lock::Queue => {
            let lock = ours::Queue::new(bench);
            bench.run(increments, || lock.increment(bench));
        }
        Lock::QueueAwake => {
            let lock = ours::Queue::awake(bench);
            bench.run(increments, || lock.increment(bench));
        }
        Lock::Mutex => {
            let lock = ours::Mutex::new(bench);
            bench.run(increments, || lock.increment(bench));
            bench.counted(lock.value(bench));
        }
        Lock::PlainTatas => {
            let lock = plain::Tatas::new(bench);
            bench.run(increments, || lock.increment(bench));
        }
        Lock::PlainTatasAndStore => {
            let lock = plain::TatasAndStore::new(bench);
            bench.run(increments, || lock.increment(bench));
        }
        Lock::PlainMcs => {
            let lock = plain::Mcs::<false>::new(bench);
            bench.run(increments, || lock.increment(bench));
        }
        Lock::SpinningMcs => {
            let lock = plain::Mcs::<true>::new(bench);
            bench.run(increments, || lock.increment(bench));
        }
        Lock::RobustPthread => {
            let lock = plain::Pthread::new(bench);
            bench.run(increments, || lock.increment(bench));
        }
    }
}
