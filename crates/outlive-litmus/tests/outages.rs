//! Tests go on around outages of the store, and find violations that the outages cause.

#[allow(dead_code)]
mod reference;

use outlive_litmus::driver::Driver;
use outlive_litmus::run::{self, Limit, Options, Outages, Outcome, TestReport, Verdict};
use outlive_litmus::suite;
use reference::{Kind, Memory, Power};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Runs a test while the store is killed `each` times.
fn run_killed(
    (kind, test): (Kind, &str),
    each: u64,
    patience: Duration,
    change: impl FnOnce(&mut Power),
) -> TestReport {
    let memory = Memory::new(kind);
    let mut power = memory.power();
    change(&mut power);
    let driver: Arc<dyn Driver> = Arc::new(memory);
    let tests: Vec<_> = { suite::tests().into_iter() }
        .filter(|it| it.name == test)
        .collect();
    let options = Options {
        limit: Limit::Time(Duration::from_secs(6)),
        patience,
        ..Options::default()
    };
    let outages = Some(Outages {
        outage: &power,
        each,
    });
    let stop = AtomicBool::new(false);
    let report =
        run::run_with_outages(&driver, &tests, &options, outages, &stop, &mut |_| ()).unwrap();
    report.tests.into_iter().next().expect("one test")
}

const PATIENCE: Duration = Duration::from_secs(30);

#[test]
fn assertions_hold_around_outages() {
    for test in ["litmus-1", "lost-update", "predicate-write-skew"] {
        let report = run_killed((Kind::Optimistic, test), 5, PATIENCE, |_| ());
        assert_eq!(report.verdict, Verdict::Passed, "{report:#?}");
        assert_eq!(report.kills, 5);
        let interrupted = report.count(Outcome::Lost) + report.count(Outcome::Unknown);
        assert!(interrupted >= 5, "{report:#?}");
    }
}

#[test]
fn halves_of_transactions_after_an_outage_are_found() {
    let change = |it: &mut Power| it.loses_halves = true;
    let patience = Duration::from_secs(5);
    let report = run_killed((Kind::Optimistic, "litmus-1"), 100, patience, change);
    assert_eq!(report.verdict, Verdict::Violated, "{report:#?}");
}

#[test]
fn a_lock_that_survives_its_transaction_blocks() {
    let change = |it: &mut Power| it.keeps_lock = true;
    let patience = Duration::from_millis(200);
    let report = run_killed((Kind::Serial, "litmus-1"), 3, patience, change);
    assert!(matches!(report.verdict, Verdict::Blocked(_)), "{report:#?}");
}

#[test]
fn an_outage_that_hits_nothing_is_an_error() {
    let patience = Duration::from_millis(100);
    let change = |it: &mut Power| it.misses = true;
    let report = run_killed((Kind::Optimistic, "litmus-1"), 3, patience, change);
    let reason = report.verdict.reason().unwrap_or_default();
    assert!(
        reason.contains("no client lost its connection"),
        "{report:#?}"
    );
}
