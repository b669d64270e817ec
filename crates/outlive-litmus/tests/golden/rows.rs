//! Rows of the table: a store with a setting, the level that it gives, and the tests that fail.

use outlive_litmus::driver::{Driver, conformance};
use outlive_litmus::run::{self, Judgement, Kind, Limit, Options, Report, Survival};
use outlive_litmus::run::{Outage, TestReport, Verdict};
use outlive_litmus::suite;
use outlive_litmus::test::Test;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// The time for a test in which no violation is expected.
const CLEAN: Duration = Duration::from_millis(250);
/// The longest time for a test that does not show the expected result earlier.
const LONGEST: Duration = Duration::from_secs(64);

/// A row.
pub struct Row {
    /// The setting, for messages.
    pub name: &'static str,
    /// The level.
    pub level: &'static str,
    /// The tests that find a wrong state or a stale read.
    pub violated: &'static [&'static str],
    /// The tests that may find one, because of a bug in the store that shows rarely. They do not
    /// count for the level.
    pub permitted: &'static [&'static str],
}

/// Executes the suite, and asserts that exactly the tests of the row fail, and the level.
///
/// A test with an expected violation ends when it has found one, or runs again for twice the time.
pub fn assert_judged(driver: &Arc<dyn Driver>, row: &Row) {
    let name = row.name;
    if let Err(violation) = conformance::check(&**driver) {
        panic!("{name}: {violation}");
    }
    let begin = Instant::now();
    let tests = suite::tests();
    for expected in row.violated.iter().chain(row.permitted) {
        assert!(
            tests.iter().any(|it| it.name == *expected),
            "no test {expected}"
        );
    }
    let run = |test: &Test| run_test(driver, test, row.violated.contains(&&*test.name));
    let mut tests: Vec<TestReport> = tests.iter().map(run).collect();
    let executions: u64 = tests.iter().map(|it| it.executions).sum();
    for test in &mut tests {
        if row.permitted.contains(&&*test.name) && is_wrong(test) {
            eprintln!("{name}: {} found a known bug", test.name);
            test.verdict = Verdict::Passed;
            test.violations.clear();
        }
    }
    let wrong = tests.iter().filter(|it| is_wrong(it)).map(|it| &*it.name);
    let wrong: Vec<&str> = wrong.collect();
    let report = Report {
        seed: 0,
        crashes: false,
        tests: tests.clone(),
    };
    let judgement = Judgement::new(&report);
    eprintln!(
        "{name}: {judgement} after {executions} executions in {:.1} s, violated: {}",
        begin.elapsed().as_secs_f64(),
        wrong.join(", ")
    );
    let mut expected = row.violated.to_vec();
    expected.sort_by_key(|it| tests.iter().position(|test| test.name == *it));
    assert_eq!(wrong, expected, "{name}: {tests:#?}");
    assert_eq!(judgement.to_string(), row.level, "{name}: {tests:#?}");
    assert_eq!(
        judgement.levels, judgement.not_refuted,
        "{name}: {tests:#?}"
    );
}

/// Returns whether the test has shown a wrong state or a stale read. An assertion that failed while
/// other transactions ran may itself be subject to a weak level.
fn is_wrong(test: &TestReport) -> bool {
    { test.violations.iter() }.any(|it| it.kind != Kind::ConcurrentRead)
}

/// Runs a test until it has the expected result.
pub fn run_test(driver: &Arc<dyn Driver>, test: &Test, is_violated: bool) -> TestReport {
    let mut time = CLEAN;
    loop {
        let options = options(Limit::Time(time));
        let tests = std::slice::from_ref(test);
        let report = run::run(
            driver,
            tests,
            &options,
            &AtomicBool::new(false),
            &mut |_| (),
        );
        let report = report.unwrap().tests.remove(0);
        let is_done = match report.verdict {
            Verdict::NotExercised(_) => false,
            _ => is_wrong(&report) == is_violated,
        };
        let is_last = matches!(report.verdict, Verdict::Blocked(_)) || is_wrong(&report);
        if is_done || is_last || time >= LONGEST {
            return report;
        }
        time *= 2;
    }
}

/// Kills the server while clients write, until a write is lost or for `kills` times.
pub fn survive(driver: &Arc<dyn Driver>, server: &dyn Outage, kills: u64) -> Survival {
    let options = options(Limit::Instances(1));
    let survival = run::survive(driver, server, kills, &options, &AtomicBool::new(false)).unwrap();
    eprintln!("{survival:?}");
    assert!(
        survival.acknowledged > 0 && survival.blocked.is_none(),
        "{survival:?}"
    );
    survival
}

fn options(limit: Limit) -> Options {
    Options {
        clients: 4,
        limit,
        seed: 0,
        crashes: false,
        patience: Duration::from_secs(30),
    }
}
