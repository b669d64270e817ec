//! What an exploration found.

use super::coverage::Coverage;
use std::fmt;

/// What an exploration tried, and what failed.
#[derive(Clone, Debug)]
pub struct ScheduleReport {
    /// The scenario's name.
    pub scenario: String,
    /// How many executions were run.
    pub executions: u64,
    /// Whether every execution within the bounds was tried. Sampling is never complete.
    pub complete: bool,
    /// The seed that the first was drawn with, if they were drawn; the next one's is one higher.
    pub seed: Option<u64>,
    /// The largest number of decisions that one execution met.
    pub deepest: u32,
    /// Deaths, over all executions.
    pub deaths: u64,
    /// Different images of the memory that deaths left, where caches die with their hosts.
    pub images: u64,
    /// Where threads died.
    pub coverage: Coverage,
    /// The executions that failed; exploring stops at the first.
    pub failures: Vec<Failure>,
    /// How long it took.
    pub seconds: f64,
}

/// An execution that failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What a thread, the check or the engine said.
    pub message: String,
    /// What [`Scenario::replay`](super::Scenario::replay) takes to run it again.
    pub schedule: String,
    /// The seed that drew it, if it was drawn.
    pub seed: Option<u64>,
    /// Every access, death and hook, in order.
    pub trace: String,
}

impl ScheduleReport {
    /// Whether no execution failed.
    pub fn passed(&self) -> bool {
        self.failures.is_empty()
    }

    /// Panics with the failures if there are any.
    #[track_caller]
    pub fn assert_passed(&self) -> &Self {
        assert!(self.passed(), "{self}");
        self
    }

    /// As [`assert_passed`](Self::assert_passed), and demands that all was tried and every crash point
    /// of the operations met was died at.
    #[track_caller]
    pub fn assert_proven(&self) -> &Self {
        self.assert_passed();
        assert!(self.complete, "not every execution was tried: {self}");
        let missing = self.coverage.missing();
        assert!(
            missing.is_empty(),
            "nobody died at {}: {self}",
            missing.join(", ")
        );
        self
    }

    /// The first failure; panics if there is none. For broken variants, which must fail.
    #[track_caller]
    pub fn expect_failure(&self) -> &Failure {
        self.failures
            .first()
            .unwrap_or_else(|| panic!("nothing failed, yet it should: {self}"))
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
