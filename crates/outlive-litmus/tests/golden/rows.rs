//! Rows of the table: a store with a setting, the level that it gives, and the tests that fail.

use outlive_litmus::driver::{Driver, conformance};
use outlive_litmus::run::{self, Judgement, Kind, Limit, Options, Report};
use outlive_litmus::run::{TestReport, Verdict};
use outlive_litmus::suite;
use outlive_litmus::test::Test;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// The time for a test in which no violation is expected.
const CLEAN: Duration = Duration::from_millis(60);
/// The longest time for a test that does not show the expected result earlier.
const LONGEST: Duration = Duration::from_secs(64);

/// A row.
pub struct Row {
    /// The parameters of the target.
    pub parameters: &'static str,
    /// The level.
    pub level: &'static str,
    /// Groups of the tests that find a wrong state or a stale read.
    pub violated: &'static [&'static [&'static str]],
    /// The tests that may find one, because of a bug in the store that shows rarely. They do not
    /// count for the level.
    pub permitted: &'static [&'static str],
}

/// Executes the suite, and compares the results with the row.
///
/// A test with an expected violation ends when it has found one, or runs again for twice the time.
pub fn judge(driver: &Arc<dyn Driver>, row: &Row) -> Result<(), String> {
    let begin = Instant::now();
    let problem = |problem: String| Err(format!("{}: {problem}", row.parameters));
    if let Err(violation) = conformance::check(&**driver) {
        return problem(violation.to_string());
    }
    let suite = suite::tests();
    let named = |name: &str| suite.iter().position(|it| it.name == name);
    let violated = row.violated.concat();
    for expected in violated.iter().chain(row.permitted) {
        assert!(named(expected).is_some(), "there is no test {expected}");
    }
    let run = |test: &Test| run_test(driver, test, violated.contains(&&*test.name));
    let mut tests: Vec<TestReport> = suite.iter().map(run).collect();
    let executions: u64 = tests.iter().map(|it| it.executions).sum();
    for test in &mut tests {
        if row.permitted.contains(&&*test.name) && is_wrong(test) {
            eprintln!("{}: {} found a known bug", row.parameters, test.name);
            test.verdict = Verdict::Passed;
            test.violations.clear();
        }
    }
    let report = Report {
        seed: 0,
        crashes: false,
        tests,
        left: None,
        is_stopped: false,
    };
    let judgement = Judgement::new(&report);
    let wrong = report.tests.iter().filter(|it| is_wrong(it));
    let wrong: Vec<&str> = wrong.map(|it| &*it.name).collect();
    eprintln!(
        "{}: {judgement}, {executions} executions in {:.1} s",
        row.parameters,
        begin.elapsed().as_secs_f64(),
    );
    let mut expected = violated;
    expected.sort_by_key(|it| named(it));
    if wrong != expected {
        return problem(format!("violated: {wrong:?}, and should be {expected:?}"));
    }
    if judgement.to_string() != row.level || judgement.levels != judgement.not_refuted {
        return problem(format!("{judgement:?}, and should be {}", row.level));
    }
    Ok(())
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

/// Returns the options of a run with this limit.
pub fn options(limit: Limit) -> Options {
    Options {
        clients: 4,
        limit,
        seed: 0,
        crashes: false,
        patience: Duration::from_secs(30),
    }
}
