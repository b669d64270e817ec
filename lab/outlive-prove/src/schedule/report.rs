//! The result of an exploration.

use super::coverage::Coverage;
use std::fmt;

/// The number and kind of executions tried, and the failures.
#[derive(Clone, Debug)]
pub struct ScheduleReport {
    /// The scenario's name.
    pub scenario: String,
    /// The number of executions.
    pub executions: u64,
    /// Whether every execution within the bounds was tried. Sampling is never complete.
    pub complete: bool,
    /// The seed of the first execution, if they were drawn at random; each next seed is one higher.
    pub seed: Option<u64>,
    /// The largest number of decisions that one execution met.
    pub deepest: u32,
    /// The number of deaths, over all executions.
    pub deaths: u64,
    /// The number of different images of the memory after deaths, where caches die with their
    /// hosts.
    pub images: u64,
    /// The crash points at which threads died.
    pub coverage: Coverage,
    /// The executions that failed; exploring stops at the first.
    pub failures: Vec<Failure>,
    /// The duration in seconds.
    pub seconds: f64,
}

/// An execution that failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The message of a thread, the check or the engine.
    pub message: String,
    /// The schedule with which [`Scenario::replay`](super::Scenario::replay) runs it again.
    pub schedule: String,
    /// Its seed, if it was drawn at random.
    pub seed: Option<u64>,
    /// Every access, death and hook, in order.
    pub trace: String,
}

impl ScheduleReport {
    /// Returns whether no execution failed.
    pub fn passed(&self) -> bool {
        self.failures.is_empty()
    }

    /// Panics with the failures if there are any.
    #[track_caller]
    pub fn assert_passed(&self) -> &Self {
        assert!(self.passed(), "{self}");
        self
    }

    /// Does what [`assert_passed`](Self::assert_passed) does, and demands that the exploration is
    /// complete and that threads died at every crash point of the operations executed.
    #[track_caller]
    pub fn assert_proven(&self) -> &Self {
        self.assert_passed();
        assert!(self.complete, "not every execution was tried: {self}");
        let missing = self.coverage.missing();
        assert!(
            missing.is_empty(),
            "no thread died at {}: {self}",
            missing.join(", ")
        );
        self
    }

    /// Returns the first failure; panics if there is none. For broken variants, which must fail.
    #[track_caller]
    pub fn expect_failure(&self) -> &Failure {
        self.failures
            .first()
            .unwrap_or_else(|| panic!("no execution failed, although one should: {self}"))
    }
}

impl fmt::Display for ScheduleReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let extent = match (self.complete, self.seed) {
            (true, _) => "complete".to_owned(),
            (false, Some(seed)) => format!("drawn from seed {seed} on"),
            (false, None) => "cut short".to_owned(),
        };
        writeln!(
            f,
            "{}: {} executions ({extent}), {} deaths, {} images, {} decisions at most, {:.2} s, {} failed",
            self.scenario,
            self.executions,
            self.deaths,
            self.images,
            self.deepest,
            self.seconds,
            self.failures.len()
        )?;
        self.failures
            .iter()
            .try_for_each(|failure| write!(f, "{failure}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.message)?;
        write!(f, "replay it with \"{}\"", self.schedule)?;
        match self.seed {
            Some(seed) => writeln!(f, " (seed {seed})")?,
            None => writeln!(f)?,
        }
        write!(f, "{}", self.trace)
    }
}
