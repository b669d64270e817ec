//! The results of litmus tests as JSON.

use super::explanations::{Explained, Printed};
use super::outage::Survived;
use outlive_litmus::explain::Explanation;
use outlive_litmus::run::{Crash, Executed, Judgement, Outcome, Survival, TestReport, Violation};
use outlive_litmus::test::Family;
use serde::Serialize;

/// The report of `outlive litmus run` and `judge`.
#[derive(Debug, Serialize)]
pub struct Report {
    target: String,
    /// Only `judge` has a level.
    #[serde(skip_serializing_if = "Option::is_none")]
    level: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    not_refuted: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    missing: Option<Vec<String>>,
    /// The families to which the run was narrowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    only: Option<Vec<&'static str>>,
    /// Only with commands that kill the store.
    #[serde(skip_serializing_if = "Option::is_none")]
    survival: Option<Survived>,
    faults: Vec<&'static str>,
    seed: u64,
    left: Option<String>,
    tests: Vec<Test>,
}

#[derive(Debug, Serialize)]
struct Test {
    name: String,
    family: &'static str,
    forbidden_from: Vec<String>,
    verdict: &'static str,
    reason: Option<String>,
    seconds: f64,
    instances: u64,
    executions: u64,
    outcomes: Outcomes,
    overlaps: u64,
    conflicts: u64,
    trials: u64,
    exercised: u64,
    assertions: u64,
    undecided: u64,
    crashes: Vec<Crashed>,
    kills: u64,
    violations: Vec<Violated>,
}

/// The number of executions by outcome.
#[derive(Debug, Serialize)]
struct Outcomes {
    committed: u64,
    aborted: u64,
    aborted_by_user: u64,
    refused: u64,
    crashed: u64,
    lost: u64,
    unknown: u64,
}

/// The value of an object or a read.
#[derive(Debug, Serialize)]
pub struct Named {
    name: String,
    value: Option<i64>,
}

#[derive(Debug, Serialize)]
struct Crashed {
    transaction: String,
    after: String,
    within_commit: bool,
    crashes: u64,
}

#[derive(Debug, Serialize)]
struct Violated {
    kind: &'static str,
    after_seconds: f64,
    executions: u64,
    state: Vec<Named>,
    transactions: Vec<Ran>,
    #[serde(skip_serializing_if = "Option::is_none")]
    explanation: Option<Printed>,
    repeat: String,
}

#[derive(Debug, Serialize)]
struct Ran {
    transaction: String,
    outcome: &'static str,
    values: Vec<Named>,
    crashed: bool,
    begin_us: f64,
    end_us: f64,
}

impl Report {
    /// Returns the report of a run; `repeat` is the command that repeats a test.
    pub fn new(
        target: &str,
        run: &Explained<'_>,
        faults: Vec<&'static str>,
        repeat: &impl Fn(&TestReport) -> String,
    ) -> Self {
        Self {
            target: target.into(),
            level: None,
            not_refuted: None,
            missing: None,
            only: None,
            survival: None,
            faults,
            seed: run.report.seed,
            left: run.report.left.clone(),
            tests: { run.tests() }
                .map(|(it, explanations)| Test::new(it, explanations, &repeat(it)))
                .collect(),
        }
    }

    /// Adds the level, the families to which the run was narrowed, and the result of kills of the
    /// store.
    pub fn judged(
        self,
        judgement: &Judgement,
        only: &[Family],
        survival: Option<&Survival>,
    ) -> Self {
        let names = judgement.not_refuted.iter().map(ToString::to_string);
        Self {
            level: Some(judgement.to_string()),
            not_refuted: Some(names.collect()),
            missing: Some(judgement.missing.clone()),
            only: Some(only.iter().map(|it| it.name()).collect()),
            survival: survival.map(Survived::from),
            ..self
        }
    }
}

impl Test {
    fn new(test: &TestReport, explanations: &[Explanation], repeat: &str) -> Self {
        let violations = { test.violations.iter().enumerate() }
            .map(|(at, it)| Violated::new(it, explanations.get(at), repeat));
        Self {
            name: test.name.clone(),
            family: test.family.name(),
            forbidden_from: test
                .forbidden_from
                .iter()
                .map(ToString::to_string)
                .collect(),
            verdict: test.verdict.name(),
            reason: test.verdict.reason().map(str::to_owned),
            seconds: test.elapsed.as_secs_f64(),
            instances: test.instances,
            executions: test.executions,
            outcomes: Outcomes::new(test),
            overlaps: test.overlaps,
            conflicts: test.conflicts,
            trials: test.trials,
            exercised: test.exercised,
            assertions: test.assertions,
            undecided: test.undecided,
            crashes: test.crashes.iter().map(Crashed::new).collect(),
            kills: test.kills,
            violations: violations.collect(),
        }
    }
}

impl Outcomes {
    fn new(test: &TestReport) -> Self {
        Self {
            committed: test.count(Outcome::Committed),
            aborted: test.count(Outcome::Aborted),
            aborted_by_user: test.count(Outcome::AbortedByUser),
            refused: test.count(Outcome::Refused),
            crashed: test.count(Outcome::Crashed),
            lost: test.count(Outcome::Lost),
            unknown: test.count(Outcome::Unknown),
        }
    }
}

impl Named {
    pub fn all(values: &[(String, Option<i64>)]) -> Vec<Self> {
        let one = |(name, value): &(String, Option<i64>)| Self {
            name: name.clone(),
            value: *value,
        };
        values.iter().map(one).collect()
    }
}

impl Crashed {
    fn new(crash: &Crash) -> Self {
        Self {
            transaction: crash.transaction.clone(),
            after: crash.after.clone(),
            within_commit: crash.within_commit,
            crashes: crash.crashes,
        }
    }
}

impl Violated {
    fn new(violation: &Violation, explanation: Option<&Explanation>, repeat: &str) -> Self {
        Self {
            kind: violation.kind.name(),
            after_seconds: violation.after.as_secs_f64(),
            executions: violation.executions,
            state: Named::all(&violation.state),
            transactions: violation.transactions.iter().map(Ran::new).collect(),
            explanation: explanation.map(Printed::new),
            repeat: repeat.into(),
        }
    }
}

impl Ran {
    fn new(executed: &Executed) -> Self {
        Self {
            transaction: executed.transaction.clone(),
            outcome: executed.outcome.name(),
            values: Named::all(&executed.values),
            crashed: executed.crashed_after.is_some(),
            begin_us: executed.begin.as_secs_f64() * 1e6,
            end_us: executed.end.as_secs_f64() * 1e6,
        }
    }
}
