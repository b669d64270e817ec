//! The time to detection of bugs, and the agreement of the judges.

use super::judge::{Judged, Recorded, first_wrong, judge};
use super::store::{Clients, Crashes};
use super::{CHECKER, workload};
use crate::cost::emulated;
use crate::row::Row;
use crate::{Run, StudyError};
use outlive_litmus::run::{self, Limit, Options, Outcome, TestReport};
use outlive_litmus::suite;
use outlive_litmus::test::Test;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The bugs of FORD that `pandora` can have, each with the test that finds it, and the crashes that
/// it needs.
const BUGS: [(&str, &str, Crashes); 5] = [
    ("covert-latches", "litmus-2", Crashes::NEVER),
    ("relaxed-latches", "litmus-2", Crashes::NEVER),
    ("complicit-aborts", "litmus-1", Crashes::NEVER),
    ("logging-without-latching", "litmus-3", Crashes::LATCHING),
    ("lost-decision", "litmus-3", Crashes::LATCHING),
];

/// The tests of the sound store: one of each family of the thesis.
const TESTS: [&str; 3] = ["litmus-1", "litmus-2", "litmus-3"];

/// Returns the shipped test `name`.
pub fn test(name: &str) -> Test {
    let found = suite::tests().into_iter().find(|it| it.name == name);
    found.expect("a shipped test")
}

pub fn options(seed: u64, limit: Duration) -> Options {
    Options {
        clients: workload::CLIENTS,
        limit: Limit::Time(limit),
        seed,
        ..Options::default()
    }
}

/// Runs a test, and records it. Returns its report and the history.
fn recorded(
    store: &Clients,
    test: Test,
    options: &Options,
) -> Result<(TestReport, String), StudyError> {
    let recorded = Recorded::begin()?;
    let driver = recorded.recording.driver(store.driver().clone());
    let stop = AtomicBool::new(false);
    let report = run::run(&driver, &[test], options, &stop, &mut |_| ());
    let mut report = report.map_err(StudyError::void_of)?;
    let text = recorded.end()?;
    Ok((report.tests.remove(0), text))
}

/// The results of one bug.
#[derive(Default)]
struct Found {
    /// The time and the transactions until an assertion failed.
    ours: Vec<(f64, f64)>,
    /// The runs whose history was found wrong.
    same: usize,
    /// The runs whose history is proved to be wrong.
    proved: usize,
    anomalies: Vec<String>,
    /// The time and the transactions of the shortest wrong beginning of a random history.
    random: Vec<(f64, f64)>,
    seeds: usize,
}

/// Searches for each bug.
pub fn bugs(run: &mut Run<'_>, lab: &Path) -> Result<(), StudyError> {
    let count = run.effort().of(1, 4, 5);
    let seeds = run.effort().of(1, 1, 5);
    let limit = Duration::from_secs(run.effort().of(20, 5, 30));
    let length = Duration::from_secs(run.effort().of(1, 2, 10));
    for (bug, name, crashes) in BUGS.into_iter().take(count) {
        let mut found = Found::default();
        for seed in 1..=seeds {
            run.go_on()?;
            run.begin(&format!("{bug}, {name}, seed {seed} of {seeds}"));
            let store = Clients::new(lab, Some(bug), crashes, seed)?;
            let (report, text) = recorded(&store, test(name), &options(seed, limit))?;
            found.seeds += 1;
            if let Some(it) = report.violations.iter().min_by_key(|it| it.after) {
                found
                    .ours
                    .push((it.after.as_secs_f64(), it.executions as f64));
            }
            let judged = judge(&text)?;
            found.same += usize::from(!judged.anomalies.is_empty());
            found.proved += usize::from(judged.has_halves);
            found.anomalies.extend(judged.anomalies);
            drop(store);
            run.begin(&format!(
                "{bug}, random transactions, seed {seed} of {seeds}"
            ));
            if let Some(it) = random(lab, (bug, crashes), seed, length)? {
                let seconds = it.last.as_secs_f64() + it.seconds;
                found.random.push((seconds, it.transactions as f64));
            }
        }
        let rows = found.rows(bug, name);
        run.answer(rows);
    }
    Ok(())
}

/// Records random transactions, and judges them.
fn random(
    lab: &Path,
    (bug, crashes): (&str, Crashes),
    seed: u64,
    length: Duration,
) -> Result<Option<Judged>, StudyError> {
    let store = Clients::new(lab, Some(bug), crashes, seed)?;
    let recorded = Recorded::begin()?;
    let driver = recorded.recording.driver(store.driver().clone());
    workload::run(&driver, seed, length)?;
    drop(driver);
    first_wrong(&recorded.end()?)
}

impl Found {
    fn rows(mut self, bug: &str, name: &str) -> Vec<Row> {
        let case = format!("the bug {bug}: {name} beside random transactions");
        let (ours, peer) = (median(&self.ours), median(&self.random));
        let row = |metric, unit, of: fn((f64, f64)) -> f64| Row {
            ours: ours.map(of),
            peer: peer.map(of),
            peer_name: Some(CHECKER.into()),
            ..Row::new(&case, metric, unit)
        };
        self.anomalies.sort();
        self.anomalies.dedup();
        let names = match self.anomalies.is_empty() {
            true => "no anomaly".into(),
            false => self.anomalies.join(", "),
        };
        let judged = format!("the bug {bug}: {name}, the same run recorded ({names})");
        let rows = [
            row(
                "time to detection (median of those that detect it)",
                "s",
                |it| it.0,
            ),
            row(
                "transactions to detection (median of the same)",
                "transactions",
                |it| it.1,
            ),
            Row::new(&case, "seeds that detect it", format!("of {}", self.seeds))
                .ours(self.ours.len() as f64)
                .peer(CHECKER, self.random.len() as f64),
            Row::new(&judged, "runs found wrong", format!("of {}", self.seeds))
                .ours(self.ours.len() as f64)
                .peer(CHECKER, self.same as f64),
            Row::new(
                &judged,
                "runs in which halves of two transactions were read",
                "runs",
            )
            .ours(self.proved as f64),
        ];
        rows.map(emulated).into()
    }
}

/// Returns the median by the first number; `None` if there is none.
fn median(all: &[(f64, f64)]) -> Option<(f64, f64)> {
    let mut all = all.to_vec();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    all.get(all.len().saturating_sub(1) / 2).copied()
}

/// Runs tests on the store without a bug, whose clients die, and judges their histories.
pub fn sound(run: &mut Run<'_>, lab: &Path) -> Result<(), StudyError> {
    let limit = Duration::from_millis(run.effort().of(800, 1500, 10_000));
    let (mut violations, mut anomalies, mut transactions, mut deaths) = (0, 0, 0, 0);
    for (seed, name) in (1..).zip(TESTS) {
        run.go_on()?;
        run.begin(&format!("no bug, clients die, {name}"));
        let store = Clients::new(lab, None, Crashes::ANYWHERE, seed)?;
        let (report, text) = recorded(&store, test(name), &options(seed, limit))?;
        let judged = judge(&text)?;
        violations += report.violations.len();
        anomalies += judged.anomalies.len() + usize::from(judged.has_halves);
        transactions += judged.transactions;
        deaths += report.count(Outcome::Lost) + report.count(Outcome::Unknown);
    }
    if deaths == 0 {
        return Err(StudyError::void("no client died in a transaction"));
    }
    let case = format!("no bug, {deaths} clients died in {transactions} transactions");
    run.answer([emulated(
        Row::new(case, "anomalies found", "anomalies")
            .ours(violations as f64)
            .peer(CHECKER, anomalies as f64),
    )]);
    Ok(())
}
