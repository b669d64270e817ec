//! The cost of assertions, and of a history, for each committed transaction.

use super::CHECKER;
use super::detection::{options, test};
use super::judge::{Recorded, judge};
use super::store::{Clients, Crashes};
use crate::cost::{Cost, Costs, Metric, emulated};
use crate::paired::Comparison;
use crate::row::{Goal, Row};
use crate::{Run, StudyError, clock};
use outlive_litmus::driver::Driver;
use outlive_litmus::run::{self, Outcome};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The test that runs.
const TEST: &str = "litmus-2";
const CPU: Metric = ("processor time of a transaction", |cost| cost.cpu * 1e6);
const WALL: Metric = ("time from one transaction to the next", |cost| {
    cost.wall * 1e6
});

/// What is done with the transactions.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Nothing,
    /// Assertions are evaluated, as in each run of a litmus test.
    Assertions,
    /// They are recorded, without assertions.
    Recorded,
    /// The record is judged.
    Judged,
}

/// A judged history.
struct Judgement {
    transactions: f64,
    /// The length of the file.
    bytes: f64,
    /// The memory that the judge needed in addition.
    memory: f64,
}

/// The resident memory of this process at the beginning of a measurement.
struct Memory(f64);

impl Memory {
    /// Resets the peak to the memory that is resident now.
    fn reset() -> Result<Self, StudyError> {
        // SAFETY: the call has no preconditions. Freed memory that stays resident would hide the
        // memory that is needed next.
        unsafe { libc::malloc_trim(0) };
        let reset = fs::write("/proc/self/clear_refs", "5");
        reset.map_err(StudyError::io("resetting the peak of the memory"))?;
        Ok(Self(peak()?))
    }

    /// Returns by how much the peak since then is higher, in bytes.
    fn peak_since(&self) -> Result<f64, StudyError> {
        Ok((peak()? - self.0).max(0.0))
    }
}

/// Returns the peak of the resident memory of this process, in bytes.
fn peak() -> Result<f64, StudyError> {
    let status = fs::read_to_string("/proc/self/status");
    let status = status.map_err(StudyError::io("reading the peak of the memory"))?;
    let line = status.lines().find_map(|it| it.strip_prefix("VmHWM:"));
    let kibibytes = line.and_then(|it| it.trim().strip_suffix(" kB")?.parse::<f64>().ok());
    kibibytes
        .map(|it| it * 1024.0)
        .ok_or_else(|| StudyError::void("the kernel does not report the peak of the memory"))
}

pub fn study(run: &mut Run<'_>, lab: &Path) -> Result<(), StudyError> {
    let rounds = run.effort().of(2, 3, 21);
    let length = Duration::from_millis(run.effort().of(300, 1000, 2000));
    let store = Clients::new(lab, None, Crashes::NEVER, 1)?;
    let mut histories = Vec::new();
    let uses = [
        (
            Use::Assertions,
            "assertions are evaluated",
            Some(Goal::ratio_at_most(1.1)),
        ),
        (Use::Recorded, "recorded in a file", None),
        (Use::Judged, "recorded in a file, and judged by adya", None),
    ];
    for (of, name, goal) in uses {
        let case = format!("{TEST}, its transactions {name}");
        let mut seed = 0;
        let mut measure = |of| {
            seed += 1;
            cost(store.driver(), of, seed, length, &mut histories)
        };
        let mut other = 1000;
        let costs = Costs::measure(
            run,
            (&case, rounds),
            || measure(of),
            || {
                other += 1;
                cost(store.driver(), Use::Nothing, other, length, &mut Vec::new())
            },
        )?;
        for ((metric, select), goal) in [(CPU, goal), (WALL, None)] {
            let comparison = Comparison {
                case: &case,
                metric,
                unit: "us",
                peer: "the transactions alone",
                paper: None,
                goal,
            };
            run.answer(comparison.rows(&costs.paired(select)).map(emulated));
        }
    }
    let sum = |of: fn(&Judgement) -> f64| histories.iter().map(of).sum::<f64>();
    let transactions = sum(|it| it.transactions);
    let row = |metric, of| {
        Row::new("a history", metric, "bytes per transaction").peer(CHECKER, sum(of) / transactions)
    };
    run.answer([
        row("length in the file", |it| it.bytes),
        row("memory of the judge at its peak", |it| it.memory),
    ]);
    Ok(())
}

/// Runs the test. Returns the cost of a committed transaction, startup of the clients included.
fn cost(
    driver: &Arc<dyn Driver>,
    of: Use,
    seed: u64,
    length: Duration,
    histories: &mut Vec<Judgement>,
) -> Result<Cost, StudyError> {
    let recorded = match of {
        Use::Recorded | Use::Judged => Some(Recorded::begin()?),
        Use::Nothing | Use::Assertions => None,
    };
    let driver = match &recorded {
        Some(it) => it.recording.driver(driver.clone()),
        None => driver.clone(),
    };
    let before = clock::process_cpu_seconds() + clock::children_cpu_seconds();
    let (tests, stop) = ([test(TEST)], AtomicBool::new(false));
    let options = options(seed, length);
    let report = match of {
        Use::Assertions => run::run(&driver, &tests, &options, &stop, &mut |_| ()),
        _ => run::run_without_assertions(&driver, &tests, &options, &stop, &mut |_| ()),
    };
    let report = report.map_err(StudyError::void_of)?.tests.remove(0);
    let committed = report.count(Outcome::Committed);
    if committed == 0 || !report.violations.is_empty() {
        return Err(StudyError::void(format!(
            "a run has ended with {:?}",
            report.verdict
        )));
    }
    if let Some(recorded) = recorded {
        let text = recorded.end()?;
        if of == Use::Judged {
            let before = Memory::reset()?;
            let judged = judge(&text)?;
            if !judged.anomalies.is_empty() {
                return Err(StudyError::void(format!(
                    "adya has found {:?}",
                    judged.anomalies
                )));
            }
            histories.push(Judgement {
                transactions: judged.transactions as f64,
                bytes: text.len() as f64,
                memory: before.peak_since()?,
            });
        }
    }
    let after = clock::process_cpu_seconds() + clock::children_cpu_seconds();
    Ok(Cost {
        wall: report.elapsed.as_secs_f64() / committed as f64,
        cpu: (after - before) / committed as f64,
    })
}
