//! Every algorithm of Outlive under every interleaving within bounds: what `outlive-lab prove schedule` runs.

pub mod barrier;
pub mod group_log;
pub mod heap;
pub mod membership;
pub mod reclaim;
pub mod structures;
pub mod sync;

use crate::lanes::{Event, in_lanes};
use crate::schedule::{Bounds, Coverage, Scenario, ScheduleReport};
use core::ops::ControlFlow;

/// A scenario, and how far it is explored.
pub struct Proof {
    scenario: Scenario,
    quick: Reach,
    full: Reach,
}

/// How far an exploration goes.
enum Reach {
    /// Every execution within the bounds.
    Every(Bounds),
    /// As many as are said, drawn from the seed on.
    Drawn(Bounds, u64, u64),
}

impl Proof {
    /// Every execution of `scenario` within bounds: those of the test suite, and those in full.
    pub fn of_every(scenario: Scenario, quick: Bounds, full: Bounds) -> Self {
        let (quick, full) = (Reach::Every(quick), Reach::Every(full));
        Self {
            scenario,
            quick,
            full,
        }
    }

    /// So many executions of `scenario` within bounds as the test suite tries, and in full.
    pub fn of_some(scenario: Scenario, bounds: Bounds, quick: u64, full: u64) -> Self {
        let drawn = |executions| Reach::Drawn(bounds.clone(), 1, executions);
        Self {
            scenario,
            quick: drawn(quick),
            full: drawn(full),
        }
    }

    /// The scenario's name; of one that is drawn from, it says so: some are explored in both ways.
    pub fn name(&self) -> String {
        let name = self.scenario.name();
        match self.quick {
            Reach::Every(_) => name.to_owned(),
            Reach::Drawn(..) => format!("{name}, drawn"),
        }
    }

    /// How far it is explored as the test suite does it, or in full: for people.
    pub fn extent(&self, full: bool) -> String {
        self.reach(full).to_string()
    }

    /// Explores it: as the test suite does, or in full.
    pub fn run(&self, full: bool) -> ScheduleReport {
        self.run_from(full, None)
    }

    /// As [`run`](Self::run), but what is drawn begins with `seed`, if there is one.
    pub fn run_from(&self, full: bool, seed: Option<u64>) -> ScheduleReport {
        let mut report = match self.reach(full) {
            Reach::Every(bounds) => self.scenario.explore(bounds),
            Reach::Drawn(bounds, own, executions) => {
                self.scenario
                    .sample(bounds, seed.unwrap_or(*own), *executions)
            }
        };
        report.scenario = self.name();
        report
    }

    fn reach(&self, full: bool) -> &Reach {
        if full { &self.full } else { &self.quick }
    }
}

impl core::fmt::Display for Reach {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Every(bounds) => write!(f, "every execution: {bounds}"),
            Self::Drawn(bounds, _, executions) => write!(f, "{executions} drawn: {bounds}"),
        }
    }
}

impl core::fmt::Debug for Proof {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Proof({:?})", self.name())
    }
}

/// Every scenario that there is.
pub fn all() -> Vec<Proof> {
    let mut all = sync::all();
    all.extend(barrier::all());
    all.extend(membership::all());
    all.extend(group_log::all());
    all.extend(heap::all());
    all.extend(reclaim::all());
    all.extend(structures::all());
    all
}

/// Runs each proof within its quick bounds and panics with the first that does not hold; `also` says what else a
/// report must show. What was died at in all of them.
#[track_caller]
pub fn assert_hold(proofs: Vec<Proof>, also: impl Fn(&ScheduleReport) -> bool) -> Coverage {
    let mut coverage = Coverage::default();
    in_lanes(
        &proofs,
        |proof| proof.run(false),
        |_, event| {
            if let Event::Ends(report) = event {
                println!("{report}");
                assert!(report.passed() && also(&report), "{report}");
                coverage.merge(&report.coverage);
            }
            ControlFlow::Continue(())
        },
    );
    coverage
}

/// Explores each broken variant, and panics if one does not fail, or not with its message.
#[track_caller]
pub fn assert_caught(broken: Vec<(Scenario, Bounds, &'static str)>) {
    in_lanes(
        &broken,
        |(scenario, bounds, _)| scenario.explore(bounds),
        |at, event| {
            if let Event::Ends(report) = event {
                let failure = report.expect_failure();
                println!("caught after {}: {}", report.executions, failure.message);
                assert!(failure.message.contains(broken[at].2), "{failure}");
            }
            ControlFlow::Continue(())
        },
    );
}
