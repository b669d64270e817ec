//! `heap`: the cost of allocating and freeing a small object, which is published in a cell of
//! shared memory in one step that survives a crash of its caller. The peers are allocators of
//! private memory, which is lost with its process, and other allocators of shared memory.
//!
//! A *pair* allocates a block and frees it at once. In *turnover* each worker has 512 blocks of 16
//! to 256 bytes, and frees one of them for each one that it allocates. Two processes work at the
//! same time on the same heap; with a private allocator each has its own heap.
//!
//! The peers in shared memory, Boost.Interprocess and PMDK's libpmemobj, need the feature `peers`.

#[cfg(feature = "peers")]
mod peers;
mod turnover;

use crate::paired::{Comparison, Paired};
use crate::row::{Goal, Row};
use crate::stage::{Bench, Job, Stage};
use crate::statistics::median;
use crate::{Run, Study, StudyError};
use turnover::{Pattern, work};

pub const STUDY: Study = Study {
    name: "heap",
    about: "allocating and freeing small objects, beside mimalloc and shared-memory allocators",
    body: study,
};

/// An allocator, and the pattern in which it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocator {
    whose: Whose,
    pattern: Pattern,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    Outlive,
    Mimalloc,
    Boost,
    Pmemobj,
}

impl Whose {
    const ALL: [Self; 4] = [Self::Outlive, Self::Mimalloc, Self::Boost, Self::Pmemobj];

    const fn name(self) -> &'static str {
        match self {
            Self::Outlive => "outlive's heap",
            Self::Mimalloc => "mimalloc (private memory)",
            Self::Boost => "Boost.Interprocess managed_shared_memory",
            Self::Pmemobj => "PMDK libpmemobj",
        }
    }
}

impl Allocator {
    /// Returns all allocators with all patterns.
    pub fn all() -> impl Iterator<Item = Self> {
        Whose::ALL.into_iter().flat_map(|whose| {
            Pattern::ALL
                .into_iter()
                .map(move |pattern| Self { whose, pattern })
        })
    }

    /// Returns a description.
    pub fn name(self) -> String {
        format!("{} from {}", self.pattern.name(), self.whose.name())
    }
}

/// Executes one worker's round.
pub fn round(bench: &Bench, allocator: Allocator, often: u64) {
    let Allocator { whose, pattern } = allocator;
    match whose {
        Whose::Outlive => {
            let local = outlive::heap::LocalHeap::of(bench.heap, &bench.member, &bench.recoverers);
            work(bench, &turnover::Ours::new(bench, &local), pattern, often);
        }
        Whose::Mimalloc => work(bench, &turnover::Private::new(), pattern, often),
        #[cfg(feature = "peers")]
        Whose::Boost => work(bench, &peers::Boost::of(bench), pattern, often),
        #[cfg(feature = "peers")]
        Whose::Pmemobj => work(bench, &peers::Pmemobj::of(bench), pattern, often),
        // Without the feature no worker gets such a job.
        #[cfg(not(feature = "peers"))]
        Whose::Boost | Whose::Pmemobj => {}
    }
    bench.did(often);
}

fn study(run: &mut Run<'_>) -> Result<(), StudyError> {
    let mut stage = Stage::threads(1)?;
    for pattern in Pattern::ALL {
        beside_mimalloc(run, "one thread", &mut stage, pattern)?;
    }
    beside_shared(run, "one thread", &mut stage, Whose::Boost, 3.0)?;
    beside_shared(run, "one thread", &mut stage, Whose::Pmemobj, 20.0)?;
    drop(stage);
    // Only one process at a time can open a pool of libpmemobj.
    let mut stage = Stage::threads(2)?;
    beside_shared(run, "2 threads", &mut stage, Whose::Pmemobj, 20.0)?;
    drop(stage);
    let mut stage = Stage::processes(2, run.launcher())?;
    for pattern in Pattern::ALL {
        beside_mimalloc(run, "2 processes", &mut stage, pattern)?;
    }
    beside_shared(run, "2 processes", &mut stage, Whose::Boost, 3.0)
}

/// Measures the nanoseconds of `ours` and of `peer` alternately.
fn in_turns(
    run: &Run<'_>,
    stage: &mut Stage,
    [ours, peer]: [Allocator; 2],
) -> Result<Paired, StudyError> {
    let round = run.effort().of(2e5, 6e6, 1e7);
    let rounds = run.effort().of(2, 41, 201);
    let (ours, peer) = (Job::Allocate(ours), Job::Allocate(peer));
    let (ours_count, peer_count) = (stage.calibrate(ours, round)?, stage.calibrate(peer, round)?);
    let stage = std::cell::RefCell::new(stage);
    let time = |job, count| stage.borrow_mut().time(job, count);
    Paired::measure(
        run,
        rounds,
        || time(ours, ours_count),
        || time(peer, peer_count),
    )
}

fn beside_mimalloc(
    run: &mut Run<'_>,
    case: &str,
    stage: &mut Stage,
    pattern: Pattern,
) -> Result<(), StudyError> {
    let case = format!("{case}, {}", pattern.name());
    run.begin(&format!("{case}: mimalloc"));
    let pair = [Whose::Outlive, Whose::Mimalloc].map(|whose| Allocator { whose, pattern });
    let paired = in_turns(run, stage, pair)?;
    let comparison = Comparison {
        case: &case,
        metric: "time to allocate and free",
        unit: "ns",
        peer: Whose::Mimalloc.name(),
        paper: None,
        goal: Some(Goal::ratio_at_most(2.0)),
    };
    run.answer(comparison.rows(&paired));
    Ok(())
}

/// Compares with an allocator of shared memory. The ratio is one of rates: the peer's time to ours.
fn beside_shared(
    run: &mut Run<'_>,
    case: &str,
    stage: &mut Stage,
    peer: Whose,
    goal: f64,
) -> Result<(), StudyError> {
    let pattern = Pattern::PAIR_64;
    let case = format!("{case}, {}", pattern.name());
    let metric = "how many times the rate";
    if cfg!(not(feature = "peers")) {
        let case = format!("{case} (not measured: built without the feature `peers`)");
        let peer_name = Some(peer.name().to_owned());
        run.answer([Row {
            peer_name,
            how: None,
            ..Row::new(case, metric, "ns")
        }]);
        return Ok(());
    }
    run.begin(&format!("{case}: {}", peer.name()));
    #[cfg(feature = "peers")]
    let _beside = peers::Beside::pod(stage.pod());
    let [ours, theirs] = [Whose::Outlive, peer].map(|whose| Allocator { whose, pattern });
    // A ratio is the first allocator's time divided by the second one's.
    let paired = in_turns(run, stage, [theirs, ours])?;
    let row = Row::new(&case, metric, "ns")
        .ours(paired.peer())
        .peer(peer.name(), median(&paired.ours))
        .ratio(paired.ratio())
        .goal(Goal::ratio_at_least(goal));
    let same = Row::new(&case, "A/A: ours beside itself", "ns")
        .ours(paired.peer())
        .ratio(paired.same());
    run.answer([row, same]);
    Ok(())
}
