//! Histories of runs, read again by a reader of their own.

mod edn;
mod history;
#[allow(dead_code)]
#[path = "../reference/mod.rs"]
mod reference;

use history::{Operation, Transaction, lost_updates};
use outlive_litmus::driver::{Capabilities, Driver, DriverError, StepError};
use outlive_litmus::recording::{Recording, RecordingError};
use outlive_litmus::run::{self, Limit, Options, Report, Verdict};
use outlive_litmus::suite;
use outlive_litmus::test::Test;
use outlive_litmus::text;
use reference::{Kind, Memory};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tempfile::TempDir;

/// Returns the shipped tests with these names.
fn picked(names: &[&str]) -> Vec<Test> {
    let mut tests = suite::tests();
    tests.retain(|it| names.contains(&it.name.as_str()));
    assert_eq!(tests.len(), names.len());
    tests
}

fn options(crashes: bool) -> Options {
    Options {
        clients: 3,
        limit: Limit::Instances(300),
        seed: 11,
        crashes,
        patience: Duration::from_secs(30),
    }
}

/// A history in a folder of its own, which a drop removes.
struct Recorded {
    folder: TempDir,
    recording: Recording,
}

impl Recorded {
    fn begin() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let recording = Recording::create(&folder.path().join("history.edn")).unwrap();
        Self { folder, recording }
    }

    fn driver(&self, memory: Memory) -> Arc<dyn Driver> {
        self.recording.driver(Arc::new(memory))
    }

    /// Returns the transactions.
    fn end(self) -> Vec<Transaction> {
        let count = self.recording.finish().unwrap();
        let text = fs::read_to_string(self.folder.path().join("history.edn")).unwrap();
        let transactions = history::read(&text);
        assert_eq!(transactions.len() as u64, count);
        transactions
    }
}

fn run(driver: &Arc<dyn Driver>, tests: &[Test], options: &Options) -> Report {
    let stop = AtomicBool::new(false);
    run::run(driver, tests, options, &stop, &mut |_| ()).unwrap()
}

fn run_on(kind: Kind, tests: &[Test], options: &Options) -> (Report, Vec<Transaction>) {
    let recorded = Recorded::begin();
    let report = run(&recorded.driver(Memory::new(kind)), tests, options);
    (report, recorded.end())
}

#[test]
fn a_history_has_all_transactions_of_a_run_with_crashes() {
    let names = [
        "litmus-1-insert-delete",
        "litmus-2",
        "lost-update",
        "write-skew",
        "aborted-read",
    ];
    let (report, transactions) = run_on(Kind::Serial, &picked(&names), &options(true));
    for test in &report.tests {
        assert_eq!(test.verdict, Verdict::Passed, "{}", test.name);
    }
    let count = |kind| {
        transactions
            .iter()
            .filter(|it| it.completion == kind)
            .count() as u64
    };
    let of = |outcome| report.tests.iter().map(|it| it.count(outcome)).sum::<u64>();
    // The tester also reads states, and writes after crashes.
    assert!(count("ok") > of(run::Outcome::Committed));
    assert!(count("info") > 0 && count("info") >= of(run::Outcome::Unknown));
    assert!(count("fail") >= of(run::Outcome::Crashed) + of(run::Outcome::AbortedByUser));
    assert_eq!(lost_updates(&transactions), 0);
}

#[test]
fn a_history_and_an_assertion_show_the_same_anomaly() {
    let tests = picked(&["lost-update"]);
    for kind in [Kind::ReadCommitted, Kind::NoAtomicity] {
        let (report, transactions) = run_on(kind, &tests, &options(false));
        assert_eq!(report.tests[0].verdict, Verdict::Violated, "{kind:?}");
        assert!(lost_updates(&transactions) > 0, "{kind:?}");
    }
    let (report, transactions) = run_on(Kind::Snapshot, &tests, &options(false));
    assert_eq!(report.tests[0].verdict, Verdict::Passed);
    assert_eq!(lost_updates(&transactions), 0);
}

/// Executes a transaction that inserts or deletes the object 1, and one that reads it.
fn changed_and_read(driver: &Arc<dyn Driver>, deletes: bool) -> Result<Option<i64>, StepError> {
    let mut connection = driver.connect().unwrap();
    connection.begin()?;
    match deletes {
        true => connection.delete(1)?,
        false => connection.insert(1, -3)?,
    }
    connection.commit()?;
    connection.begin()?;
    let value = connection.read(1)?;
    connection.commit()?;
    Ok(value)
}

#[test]
fn an_absent_object_is_recorded_if_it_was_never_deleted() {
    let recorded = Recorded::begin();
    let driver = recorded.driver(Memory::new(Kind::Serial));
    driver.set(&[(1, None), (2, Some(7))]).unwrap();
    let mut connection = driver.connect().unwrap();
    connection.begin().unwrap();
    assert_eq!(connection.read(1), Ok(None));
    assert_eq!(connection.read(2), Ok(Some(7)));
    connection.commit().unwrap();
    assert_eq!(changed_and_read(&driver, false), Ok(Some(-3)));
    assert_eq!(changed_and_read(&driver, true), Ok(None));
    driver.set(&[(1, None)]).unwrap();
    connection.begin().unwrap();
    assert_eq!(connection.read(1), Ok(None));
    // Its client crashes.
    drop(connection);
    let operations = recorded.end().into_iter().map(|it| it.operations);
    let expected = [
        vec![Operation::Read(1, None), Operation::Read(2, None)],
        vec![Operation::Write(1, 99_999_997)],
        vec![Operation::Read(1, Some(99_999_997))],
        vec![Operation::Write(1, 200_000_000)],
        vec![],
        vec![Operation::Read(3, None)],
    ];
    assert!(operations.eq(expected));
}

#[test]
fn writes_of_a_store_that_cannot_abort_may_stay() {
    let recorded = Recorded::begin();
    let capabilities = Capabilities {
        abort: false,
        ..Capabilities::ALL
    };
    let driver = recorded.driver(Memory::with(Kind::NoAtomicity, capabilities));
    driver.set(&[(1, Some(0))]).unwrap();
    for writes in [true, false] {
        let mut connection = driver.connect().unwrap();
        connection.begin().unwrap();
        if writes {
            connection.write(1, 1).unwrap();
        }
    }
    let completions: Vec<String> = recorded.end().into_iter().map(|it| it.completion).collect();
    assert_eq!(completions, ["info", "fail"]);
}

#[test]
fn lines_wait_for_the_transactions_before_them() {
    let recorded = Recorded::begin();
    let driver = recorded.driver(Memory::new(Kind::Snapshot));
    driver.set(&[(1, Some(0))]).unwrap();
    let mut long = driver.connect().unwrap();
    long.begin().unwrap();
    let mut short = driver.connect().unwrap();
    for value in 1..100 {
        short.begin().unwrap();
        short.write(1, value).unwrap();
        short.commit().unwrap();
    }
    assert_eq!(long.read(1), Ok(Some(0)));
    long.commit().unwrap();
    let transactions = recorded.end();
    assert_eq!(transactions.len(), 100);
    let last = &transactions[99].operations;
    assert_eq!(*last, [Operation::Read(1, None)]);
}

#[test]
fn a_full_disk_ends_the_run() {
    let recording = Recording::create(Path::new("/dev/full")).unwrap();
    let driver = recording.driver(Arc::new(Memory::new(Kind::Serial)));
    let options = Options {
        limit: Limit::Time(Duration::from_secs(600)),
        ..options(false)
    };
    let report = run(&driver, &picked(&["litmus-2", "write-skew"]), &options);
    for test in &report.tests {
        let Verdict::Failed(reason) = &test.verdict else {
            panic!("{test:?}");
        };
        assert!(reason.contains("recorded"), "{reason}");
    }
    match recording.finish() {
        Err(RecordingError::Write { source, .. }) => {
            assert_eq!(source.kind(), ErrorKind::StorageFull);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_value_that_is_too_large_ends_the_run() {
    let test = "test large\nabout \"A large value.\"\nfamily direct-write\nobjects x = 0\n\
                transaction t1 { write x = 50000000 }\ntransaction t2 { write x = 1 }\n\
                always x = 0 or x = 1 or x = 50000000\nforbidden from read-uncommitted";
    let recorded = Recorded::begin();
    let driver = recorded.driver(Memory::new(Kind::Serial));
    let report = run(&driver, &text::parse(test).unwrap(), &options(false));
    assert!(
        matches!(report.tests[0].verdict, Verdict::Failed(_)),
        "{report:?}"
    );
    let result = recorded.recording.finish();
    assert!(
        matches!(result, Err(RecordingError::Value(50_000_000))),
        "{result:?}"
    );

    let recorded = Recorded::begin();
    let driver = recorded.driver(Memory::new(Kind::Serial));
    let set: Result<(), DriverError> = driver.set(&[(1, Some(-50_000_000))]);
    assert!(set.is_err());
    let error = recorded.recording.finish().unwrap_err().to_string();
    assert!(
        error.contains("-50000000") && error.contains("49999999"),
        "{error}"
    );
}
