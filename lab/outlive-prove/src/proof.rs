//! A scenario with the bounds within which it is explored: quickly in the tests, and in full.

use crate::parallel::{Event, in_lanes};
use crate::schedule::{Bounds, Coverage, Scenario, ScheduleReport};
use core::ops::ControlFlow;

/// A scenario, and how far it is explored.
pub struct Proof {
    /// The scenario to explore.
    pub scenario: Scenario,
    /// How far it is explored in the tests.
    pub quick: Reach,
    /// How far it is explored in full.
    pub full: Reach,
}

/// How far an exploration goes.
pub enum Reach {
    /// Every execution within the bounds.
    Every(Bounds),
    /// A number of executions drawn at random: the bounds, the first seed, the number.
    Drawn(Bounds, u64, u64),
}

impl Proof {
    /// Returns a proof that explores every execution of `scenario` within `quick` or `full` bounds.
    pub fn of_every(scenario: Scenario, quick: Bounds, full: Bounds) -> Self {
        let (quick, full) = (Reach::Every(quick), Reach::Every(full));
        Self {
            scenario,
            quick,
            full,
        }
    }

    /// Returns a proof that explores `quick` or `full` random executions of `scenario`.
    pub fn of_some(scenario: Scenario, bounds: Bounds, quick: u64, full: u64) -> Self {
        let drawn = |executions| Reach::Drawn(bounds.clone(), 1, executions);
        Self {
            scenario,
            quick: drawn(quick),
            full: drawn(full),
        }
    }

    /// Returns the scenario's name, marked if drawn, since some scenarios are explored in both
    /// ways.
    pub fn name(&self) -> String {
        let name = self.scenario.name();
        match self.quick {
            Reach::Every(_) => name.to_owned(),
            Reach::Drawn(..) => format!("{name}, drawn"),
        }
    }

    /// Returns how far it is explored by the test suite, or in full: for people.
    pub fn extent(&self, full: bool) -> String {
        self.reach(full).to_string()
    }

    /// Explores it: as the test suite does, or in full.
    pub fn run(&self, full: bool) -> ScheduleReport {
        self.run_from(full, None)
    }

    /// Does what [`run`](Self::run) does, but draws executions from `seed` on, if it is given.
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

/// Runs each proof within its quick bounds, and panics with the first that does not hold; `also` is
/// a further condition on each report. Returns the crash points of all deaths.
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

/// Explores each broken variant, and panics if one does not fail, or fails with another message.
#[track_caller]
pub fn assert_caught(broken: Vec<(Scenario, Bounds, &'static str)>) {
    in_lanes(
        &broken,
        |(scenario, bounds, _)| scenario.explore(bounds),
        |at, event| {
            if let Event::Ends(report) = event {
                let failure = report.expect_failure();
                let (name, executions) = (&report.scenario, report.executions);
                println!("{name}: caught after {executions}: {}", failure.message);
                assert!(failure.message.contains(broken[at].2), "{name}: {failure}");
            }
            ControlFlow::Continue(())
        },
    );
}
