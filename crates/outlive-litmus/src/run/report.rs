//! The results of a run.

use super::crashes::Crash;
use super::execution::Outcome;
use crate::level::{Isolation, Level};
use crate::test::{Family, Test};
use std::time::Duration;

/// The results of a run, by test.
#[derive(Clone, Debug)]
pub struct Report {
    /// The seed of the clients' choices.
    pub seed: u64,
    /// Whether clients crashed.
    pub crashes: bool,
    /// The tests, in their order.
    pub tests: Vec<TestReport>,
    /// The reason why the driver's table was not removed.
    pub left: Option<String>,
    /// Whether the run was stopped before its end. The tests that had not ended are
    /// [`Verdict::NotExercised`], unless they had found a violation.
    pub is_stopped: bool,
}

impl Report {
    /// Returns the tests during which the store blocked.
    pub fn blocked(&self) -> impl Iterator<Item = &TestReport> {
        let is_blocked = |it: &&TestReport| matches!(it.verdict, Verdict::Blocked(_));
        self.tests.iter().filter(is_blocked)
    }

    /// Returns the tests that ended with an error.
    pub fn failed(&self) -> impl Iterator<Item = &TestReport> {
        let has_failed = |it: &&TestReport| matches!(it.verdict, Verdict::Failed(_));
        self.tests.iter().filter(has_failed)
    }

    /// Returns the tests that found a violation.
    pub fn violated(&self) -> impl Iterator<Item = &TestReport> {
        { self.tests.iter() }.filter(|it| !it.violations.is_empty())
    }
}

/// The results of a test.
#[derive(Clone, Debug)]
pub struct TestReport {
    /// The name of the test.
    pub name: String,
    /// The sentence that explains the test.
    pub about: String,
    /// The kind of anomaly that the test looks for.
    pub family: Family,
    /// The weakest levels that forbid a failing assertion.
    pub forbidden_from: Vec<Level>,
    /// The result, with its reason.
    pub verdict: Verdict,
    /// The number of executions of transactions, retries included.
    pub executions: u64,
    /// The number of instances. With shared objects, this is the number of executions without
    /// retries, divided by the number of transactions.
    pub instances: u64,
    /// The number of executions by outcome.
    pub outcomes: Vec<(Outcome, u64)>,
    /// The number of executions that were concurrent with another one on the same objects.
    pub overlaps: u64,
    /// The number of executions that were concurrent with another one that conflicts with it: both
    /// use an object, and one of them writes it.
    pub conflicts: u64,
    /// The number of instances on objects of their own, or of rounds on shared objects.
    pub trials: u64,
    /// The number of trials that could have shown a violation: a transaction committed, and
    /// conflicting transactions without an order between them were concurrent.
    pub exercised: u64,
    /// The number of assertions that were evaluated.
    pub assertions: u64,
    /// The number of instances whose assertion was not evaluated, because it names more than 8
    /// transactions whose outcomes are unknown.
    pub undecided: u64,
    /// The crashes by statement; empty in a run without crashes.
    pub crashes: Vec<Crash>,
    /// The number of times that the store was killed, and clients lost their connections by it.
    pub kills: u64,
    /// The number of kills of the store that were planned.
    pub planned_kills: u64,
    /// The violations: the first of each kind. A violation of [`Kind::State`] ends the test.
    pub violations: Vec<Violation>,
    /// The duration of the test.
    pub elapsed: Duration,
}

impl TestReport {
    /// Returns whether an outcome was seen that `level` forbids.
    pub fn refutes(&self, level: Level) -> bool {
        let is_forbidden = self.is_forbidden_at(level);
        { self.violations.iter() }.any(|it| it.kind.is_refutation(level, is_forbidden))
    }

    /// Returns whether `level` forbids a failing assertion.
    pub fn is_forbidden_at(&self, level: Level) -> bool {
        { self.forbidden_from.iter() }.any(|&it| level.implies(it))
    }

    /// Returns whether a planned crash of a client or kill of the store has not happened, although
    /// no violation ended the test.
    pub fn lacks_crashes(&self) -> bool {
        let lacks = self.crashes.iter().any(|it| it.crashes == 0);
        self.verdict != Verdict::Violated && (lacks || self.kills < self.planned_kills)
    }

    /// Returns the number of executions with this outcome.
    pub fn count(&self, outcome: Outcome) -> u64 {
        let of_it = self.outcomes.iter().filter(|(it, _)| *it == outcome);
        of_it.map(|(_, count)| count).sum()
    }

    /// Returns the report of a test that was not executed.
    pub(super) fn not_run(test: &Test, verdict: Verdict) -> Self {
        Self {
            name: test.name.clone(),
            about: test.about.clone(),
            family: test.family,
            forbidden_from: test.forbidden_from.clone(),
            verdict,
            executions: 0,
            instances: 0,
            outcomes: Outcome::ALL.map(|it| (it, 0)).to_vec(),
            overlaps: 0,
            conflicts: 0,
            trials: 0,
            exercised: 0,
            assertions: 0,
            undecided: 0,
            crashes: Vec::new(),
            kills: 0,
            planned_kills: 0,
            violations: Vec::new(),
            elapsed: Duration::ZERO,
        }
    }
}

/// The result of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// No violation was seen, and enough trials were exercised.
    Passed,
    /// A violation was seen.
    Violated,
    /// No violation was seen, but this proves nothing, for this reason.
    NotExercised(String),
    /// The store lacks an operation.
    NotApplicable(String),
    /// The store did not answer, or an object could not be written after a crash.
    Blocked(String),
    /// The test ended with an error, of the driver for example.
    Failed(String),
}

impl Verdict {
    /// Returns the name of the verdict in reports.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Violated => "violated",
            Self::NotExercised(_) => "not exercised",
            Self::NotApplicable(_) => "not applicable",
            Self::Blocked(_) => "blocked",
            Self::Failed(_) => "failed",
        }
    }

    /// Returns the reason, if the verdict has one.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Passed | Self::Violated => None,
            Self::NotExercised(why)
            | Self::NotApplicable(why)
            | Self::Blocked(why)
            | Self::Failed(why) => Some(why),
        }
    }
}

/// The part of a store's work that a violation shows to be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The state, or values that committed transactions returned.
    State,
    /// An assertion that ran concurrently with the test failed, and the state was right when all
    /// transactions had ended: the transaction of the assertion saw a part of another one, or the
    /// state was wrong for some time.
    ConcurrentRead,
    /// The assertion failed after all transactions had ended, and held when it was evaluated again:
    /// it read an earlier state.
    StaleRead,
    /// After all transactions had ended, an object had a value that was written only by
    /// transactions which the store reported as aborted, or whose clients crashed before the
    /// commit. This is independent of the test's assertion.
    AbortedWrite,
}

impl Kind {
    /// Returns the name of the kind in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::State => "state wrong",
            Self::ConcurrentRead => "assertion read skewed",
            Self::StaleRead => "assertion read stale",
            Self::AbortedWrite => "aborted write visible",
        }
    }

    /// Returns whether a violation refutes `level`, which forbids a failing assertion or does not.
    pub(crate) fn is_refutation(self, level: Level, is_forbidden: bool) -> bool {
        let has = |isolation| level.implies(Level::new(isolation, false));
        match self {
            // The assertion has read the write of an aborted transaction (G1a).
            Self::AbortedWrite => has(Isolation::ReadCommitted),
            _ if !is_forbidden => false,
            Self::State => true,
            // Below these levels, the assertion itself may see a part of another transaction.
            Self::ConcurrentRead => has(Isolation::RepeatableRead) || has(Isolation::Snapshot),
            // Weaker levels with real time allow stale reads.
            Self::StaleRead => {
                level.real_time && (has(Isolation::RepeatableRead) || has(Isolation::Snapshot))
            }
        }
    }
}

/// A violation.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The part of the store's work that is wrong.
    pub kind: Kind,
    /// The objects and their values, as the transaction of the assertion read them; empty if the
    /// assertion is about returned values only.
    pub state: Vec<(String, Option<i64>)>,
    /// The transactions on these objects since they were set to their initial values, by their
    /// beginning.
    pub transactions: Vec<Executed>,
    /// The time until the violation was detected.
    pub after: Duration,
    /// The number of executions until the violation was detected.
    pub executions: u64,
}

/// A transaction that a client has executed.
#[derive(Clone, Debug)]
pub struct Executed {
    /// The name of the transaction.
    pub transaction: String,
    /// The end of the transaction.
    pub outcome: Outcome,
    /// The names of its reads and counts, and the values that they returned.
    pub values: Vec<(String, Option<i64>)>,
    /// The position after which the client crashed; see [`Crash`].
    pub crashed_after: Option<usize>,
    /// The time of its beginning, from the beginning of the first one of `transactions`.
    pub begin: Duration,
    /// The time of its end, from the same moment.
    pub end: Duration,
}
