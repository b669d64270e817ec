//! The level that a store gave.

use super::report::{Report, TestReport, Verdict};
use crate::level::{Isolation, Level};
use std::fmt;

/// The level that a store gave in a run.
///
/// The store gave a level if all tests passed whose outcomes the level forbids. Only levels that a
/// test distinguishes from all weaker ones are named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// The strongest levels that the store gave: one level, or several that are incomparable.
    pub levels: Vec<Level>,
    /// The strongest levels that no test has refuted. They differ from `levels` if tests did not
    /// run, or proved nothing.
    pub not_refuted: Vec<Level>,
    /// The tests that could have shown a stronger level, but did not run, or proved nothing.
    pub missing: Vec<String>,
}

impl Judgement {
    /// Computes the level from the results of all tests.
    pub fn new(report: &Report) -> Self {
        let tests = &report.tests;
        let levels = strongest(tests, |level| is_shown(tests, level));
        let not_refuted = strongest(tests, |level| !tests.iter().any(|it| it.refutes(level)));
        let caps = |test: &&TestReport| {
            let is_forbidden = |level: &Level| test.is_forbidden_at(*level);
            !proves(test) && not_refuted.iter().any(is_forbidden)
        };
        let missing = tests.iter().filter(caps).map(|it| it.name.clone());
        Self {
            missing: missing.collect(),
            levels,
            not_refuted,
        }
    }

    /// Returns whether the store gave `level`.
    pub fn gives(&self, level: Level) -> bool {
        self.levels.iter().any(|it| it.implies(level))
    }
}

impl fmt::Display for Judgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.levels.iter().map(Level::to_string).collect();
        f.write_str(&names.join(" and "))
    }
}

/// Returns whether the test has a result.
fn proves(test: &TestReport) -> bool {
    matches!(test.verdict, Verdict::Passed | Verdict::Violated)
}

/// Returns whether all tests have a result whose outcomes `level` forbids, and none refutes it.
fn is_shown(tests: &[TestReport], level: Level) -> bool {
    let mut forbidden = tests.iter().filter(|it| it.is_forbidden_at(level));
    forbidden.all(proves) && !tests.iter().any(|it| it.refutes(level))
}

/// Returns whether a test distinguishes `level` from all weaker ones.
fn is_distinct(tests: &[TestReport], level: Level) -> bool {
    let is_weaker = |it: &Level| *it != level && level.implies(*it);
    let tells = |weaker| {
        let has_more = |it: &TestReport| it.is_forbidden_at(level) && !it.is_forbidden_at(weaker);
        tests.iter().any(has_more)
    };
    Level::all().filter(is_weaker).all(tells)
}

/// Returns the strongest levels that are `given`.
fn strongest(tests: &[TestReport], given: impl Fn(Level) -> bool) -> Vec<Level> {
    let named = |level: &Level| is_distinct(tests, *level) && given(*level);
    let all: Vec<Level> = Level::all().filter(named).collect();
    let is_strongest = |level: &&Level| !all.iter().any(|it| it != *level && it.implies(**level));
    let strongest: Vec<Level> = all.iter().filter(is_strongest).copied().collect();
    match strongest.is_empty() {
        // Even a test that each level forbids has failed.
        true => vec![Level::new(Isolation::None, false)],
        false => strongest,
    }
}
