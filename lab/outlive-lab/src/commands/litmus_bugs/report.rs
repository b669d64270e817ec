//! The results of searches.

use super::hunts::Hunt;
use outlive_litmus::run::{self, TestReport};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

/// The bar for the median time to detection.
const LONGEST: Duration = Duration::from_secs(60);

/// A violation.
#[derive(Clone, Debug)]
pub struct Detection {
    pub test: String,
    pub family: &'static str,
    /// The kind of the violation, or `blocked`.
    pub what: &'static str,
    /// The time since the first test began.
    pub after: Duration,
    /// The number of transactions executed until then.
    pub executions: u64,
}

/// The result of a search with one seed.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub found: Option<Detection>,
    pub executions: u64,
    pub committed: u64,
    /// The transactions in which the tester lost the process of its connection.
    pub crashes: u64,
    /// The crashes by their points.
    pub points: BTreeMap<String, u64>,
    /// The dead processes that the store has recovered.
    pub recoveries: u64,
    /// The memory servers that have left with replicas.
    pub losses: u64,
    /// The tests that could not run, each in a store of its own.
    pub errors: u64,
    /// The number of all tests.
    pub tests: usize,
    pub elapsed: Duration,
}

impl Outcome {
    /// Returns the result of a search that went on in another store, with the result `next` there.
    pub fn then(mut self, next: Self) -> Self {
        add(&mut self.points, &next.points);
        let found = next.found.map(|it| Detection {
            after: self.elapsed + it.after,
            executions: self.executions + it.executions,
            ..it
        });
        Self {
            found: self.found.or(found),
            executions: self.executions + next.executions,
            committed: self.committed + next.committed,
            crashes: self.crashes + next.crashes,
            points: self.points,
            recoveries: self.recoveries + next.recoveries,
            losses: self.losses + next.losses,
            errors: self.errors + next.errors,
            tests: self.tests + next.tests,
            elapsed: self.elapsed + next.elapsed,
        }
    }

    /// Adds the numbers of a test.
    pub fn add(&mut self, report: &TestReport) {
        self.tests += 1;
        self.executions += report.executions;
        self.committed += report.count(run::Outcome::Committed);
        self.crashes += report.count(run::Outcome::Lost) + report.count(run::Outcome::Unknown);
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.found {
            Some(it) => write!(
                f,
                "found by {} ({}) after {:.1} s and {} transactions",
                it.test,
                it.what,
                it.after.as_secs_f64(),
                it.executions
            )?,
            None => write!(
                f,
                "nothing found in {:.1} s and {} transactions",
                self.elapsed.as_secs_f64(),
                self.executions
            )?,
        }
        write!(
            f,
            "; {} committed, {} processes died in transactions, {} recoveries, {} memory servers \
             left with replicas, {} tests could not run",
            self.committed, self.crashes, self.recoveries, self.losses, self.errors
        )
    }
}

/// The results of all seeds.
#[derive(Debug, Serialize)]
pub struct Row {
    pub flaw: String,
    protocol: String,
    category: Option<&'static str>,
    families: Vec<&'static str>,
    /// Whether the thesis finds the bug with these families.
    named: bool,
    seeds: u64,
    found: u64,
    /// The repeated searches with the first seed that found the flaw.
    repeats: u64,
    found_again: u64,
    /// The median over all seeds; `null` if half of them found nothing.
    median_seconds: Option<f64>,
    median_executions: Option<u64>,
    executions: u64,
    seconds: f64,
    crashes: u64,
    points: BTreeMap<String, u64>,
    /// The points at which no process has died.
    points_missed: Vec<String>,
    recoveries: u64,
    losses: u64,
    errors: u64,
    /// Whether processes had crash points, so that some must have died.
    is_crashing: bool,
    /// Whether memory servers left, so that some must have had replicas.
    loses_memory: bool,
    found_by: BTreeSet<String>,
    found_by_families: BTreeSet<&'static str>,
    found_as: BTreeSet<&'static str>,
    pub why_not: Option<&'static str>,
}

impl Row {
    /// Returns the row of a search, with one outcome for each seed, and those of its repeats with
    /// one of the seeds.
    pub fn new(hunt: &Hunt, outcomes: &[Outcome], repeats: &[Outcome]) -> Self {
        let found = || outcomes.iter().filter_map(|it| it.found.as_ref());
        let again = || repeats.iter().filter_map(|it| it.found.as_ref());
        let all = || outcomes.iter().chain(repeats);
        let sum = |of: fn(&Outcome) -> u64| all().map(of).sum();
        let mut points = BTreeMap::new();
        all().for_each(|it| add(&mut points, &it.points));
        let crashes = hunt.crashes.iter().map(ToString::to_string);
        let points_missed = crashes.filter(|it| !points.contains_key(it)).collect();
        Self {
            flaw: hunt.name(),
            protocol: hunt.protocol.to_string(),
            category: hunt.category,
            families: hunt.families.iter().map(|it| it.name()).collect(),
            named: hunt.is_named,
            seeds: outcomes.len() as u64,
            found: found().count() as u64,
            repeats: repeats.len() as u64,
            found_again: again().count() as u64,
            median_seconds: median(found().map(|it| it.after), outcomes.len())
                .map(|it| it.as_secs_f64()),
            median_executions: median(found().map(|it| it.executions), outcomes.len()),
            executions: sum(|it| it.executions),
            seconds: all().map(|it| it.elapsed.as_secs_f64()).sum(),
            crashes: sum(|it| it.crashes),
            points,
            points_missed,
            recoveries: sum(|it| it.recoveries),
            losses: sum(|it| it.losses),
            errors: sum(|it| it.errors),
            is_crashing: !hunt.crashes.is_empty() && hunt.unreachable.is_none(),
            loses_memory: hunt.loses_memory,
            found_by: found().chain(again()).map(|it| it.test.clone()).collect(),
            found_by_families: found().chain(again()).map(|it| it.family).collect(),
            found_as: found().chain(again()).map(|it| it.what).collect(),
            why_not: hunt.unreachable,
        }
    }

    /// Returns whether the result is not as it has to be. A mutant may remain unfound.
    pub fn is_wrong(&self, is_mutant: bool) -> bool {
        // A search that finds something, or is short, need not reach all points.
        let is_long = self.found == 0 && self.seconds > LONGEST.as_secs_f64();
        let lacks_points = is_long && !self.points_missed.is_empty();
        let lacks_crashes = self.is_crashing
            && (self.crashes == 0
                || self.recoveries == 0
                || self.points.is_empty()
                || lacks_points);
        let is_missed = match (self.flaw == "sound", is_mutant) {
            (true, _) => self.found > 0,
            // A family that the thesis does not name for the bug need not find it.
            (false, _) if !self.named => false,
            (false, true) => false,
            (false, false) => {
                let limit = LONGEST.as_secs_f64();
                self.found * 10 < self.seeds * 8 || self.median_seconds.is_none_or(|it| it > limit)
            }
        };
        lacks_crashes || is_missed || self.loses_memory && self.losses == 0
    }

    /// The bug with its category and protocol.
    pub fn bug(&self) -> [String; 3] {
        let category = self.category.unwrap_or("-");
        [self.flaw.clone(), category.into(), self.protocol.clone()]
    }

    /// The cell of the matrix of bugs and families: the seeds that found it and the median time.
    pub fn cell(&self) -> String {
        let named = if self.named { " *" } else { "" };
        match self.median_seconds {
            Some(median) => format!("{} of {}, {median:.1} s{named}", self.found, self.seeds),
            None => format!("{} of {}{named}", self.found, self.seeds),
        }
    }

    /// The row of the printed table.
    pub fn cells(&self) -> [String; 10] {
        let number = |value: Option<String>| value.unwrap_or_else(|| "-".into());
        let found_by: Vec<&str> = self.found_by.iter().map(String::as_str).collect();
        let [flaw, category, protocol] = self.bug();
        [
            flaw,
            category,
            protocol,
            self.families.join(", "),
            format!("{} of {}", self.found, self.seeds),
            match self.repeats {
                0 => "-".into(),
                repeats => format!("{} of {repeats}", self.found_again),
            },
            number(self.median_seconds.map(|it| format!("{it:.1}"))),
            number(self.median_executions.map(|it| it.to_string())),
            self.crashes.to_string(),
            found_by.join(", "),
        ]
    }
}

fn add(all: &mut BTreeMap<String, u64>, others: &BTreeMap<String, u64>) {
    for (point, count) in others {
        *all.entry(point.clone()).or_default() += count;
    }
}

/// Returns the median of `count` values, of which those that are missing are the largest.
fn median<T: Ord>(values: impl Iterator<Item = T>, count: usize) -> Option<T> {
    let mut values: Vec<T> = values.collect();
    values.sort_unstable();
    values.into_iter().nth(count.saturating_sub(1) / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_in_two_stores_counts_from_its_beginning() {
        let first = Outcome {
            executions: 10,
            elapsed: Duration::from_secs(2),
            ..Outcome::default()
        };
        let found = Detection {
            test: "litmus-1".into(),
            family: "direct-write",
            what: "wrong state",
            after: Duration::from_secs(1),
            executions: 5,
        };
        let next = Outcome {
            executions: 6,
            found: Some(found),
            ..first.clone()
        };
        let both = first.then(next);
        let found = both.found.expect("a violation");
        assert_eq!(found.after, Duration::from_secs(3));
        assert_eq!((found.executions, both.executions), (15, 16));
    }

    #[test]
    fn seeds_that_found_nothing_raise_the_median() {
        assert_eq!(median([3, 1, 2].into_iter(), 3), Some(2));
        assert_eq!(median([3, 1].into_iter(), 3), Some(3));
        assert_eq!(median([1].into_iter(), 3), None);
        assert_eq!(median([0; 0].into_iter(), 0), None);
    }
}
