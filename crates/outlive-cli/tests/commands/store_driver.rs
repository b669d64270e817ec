//! The driver of litmus tests for stores of this project.

use crate::store_rows::Bank;
use crate::support::{Running, command, edge::within, outlive};
use outlive_cli::target;
use outlive_litmus::driver::{Connection, Driver, StepError, conformance};
use std::cell::RefCell;
use std::time::Duration;

/// Creates a store, and opens a driver of it.
fn store(name: &str) -> (Bank, [Running; 2], Box<dyn Driver>) {
    let (bank, memory) = Bank::new(name);
    let driver = open(&bank, "?keys=5000").unwrap();
    (bank, memory, driver)
}

fn open(bank: &Bank, parameters: &str) -> Result<Box<dyn Driver>, String> {
    let target = format!("outlive-store:{}{parameters}", bank.path());
    target::open(&target).map_err(|error| error.to_string())
}

/// Creates the table with object 1, and connects twice.
fn prepared(driver: &dyn Driver) -> [Box<dyn Connection>; 2] {
    driver.create().unwrap();
    driver.set(&[(1, Some(10)), (2, Some(20))]).unwrap();
    [(); 2].map(|()| driver.connect().unwrap())
}

#[track_caller]
fn assert_aborted<T: PartialEq + std::fmt::Debug>(outcome: Result<T, StepError>) {
    assert!(matches!(outcome, Err(StepError::Aborted(_))), "{outcome:?}");
}

#[test]
fn a_store_conforms() {
    let (_bank, _memory, driver) = store("driver");
    if let Err(violation) = conformance::check(&*driver) {
        panic!("{violation}");
    }
}

/// Each connection is a compute server. Its death in a transaction leaves latches, which stand in
/// the way of no other one.
#[test]
fn a_store_behind_killed_processes_conforms() {
    let (bank, _memory) = Bank::new("driver-exec");
    let program = command([""; 0]).get_program().display().to_string();
    let store = format!("outlive-store:{}?keys=5000", bank.path());
    let driver = target::open(&format!("exec:'{program}' litmus serve '{store}'")).unwrap();
    if let Err(violation) = conformance::check(&*driver) {
        panic!("{violation}");
    }
    drop(driver);
    let status = outlive(["store", "status", bank.path()]).succeeds();
    assert!(status.contains("failed"), "{status}");
    outlive(["litmus", "serve", "oracle:x"]).fails(2, "`outlive-store:PATH`");
}

/// Requires that a store with this protocol is judged as the table of `docs/litmus.md` says.
#[track_caller]
fn assert_strictly_serializable(protocol: &str) {
    let name = format!("judged-{protocol}");
    let (bank, _memory) = Bank::with(&name, &["--protocol", protocol]);
    let target = format!("outlive-store:{}?keys=5000", bank.path());
    let judge = ["litmus", "judge", &target, "--seconds", "25"];
    let expect = ["--expect", "strict-serializable", "--json"];
    let printed = outlive(judge.into_iter().chain(expect)).succeeds();
    let judged: serde_json::Value = serde_json::from_str(&printed).unwrap();
    let tests = judged["tests"].as_array().unwrap();
    assert!(tests.len() >= 60, "{printed}");
    assert!(
        tests.iter().all(|it| it["verdict"] == "passed"),
        "{printed}"
    );
}

#[test]
fn pandora_is_judged_strictly_serializable() {
    assert_strictly_serializable("pandora");
}

#[test]
fn ford_is_judged_strictly_serializable() {
    assert_strictly_serializable("ford");
}

#[test]
fn conflicts_are_aborts() {
    let (_bank, _memory, driver) = store("driver-conflicts");
    let [mut a, mut b] = prepared(&*driver);
    a.begin().unwrap();
    a.write(1, 11).unwrap();
    b.begin().unwrap();
    assert_aborted(b.read(1)); // its latch is held
    b.begin().unwrap();
    assert_aborted(b.write(1, 12));
    a.commit().unwrap();

    b.begin().unwrap();
    assert_eq!(b.read(1), Ok(Some(11)));
    b.write(2, 21).unwrap();
    a.begin().unwrap();
    a.write(1, 13).unwrap();
    a.commit().unwrap();
    assert_aborted(b.commit()); // object 1 has changed
    b.begin().unwrap();
    assert_eq!((b.read(1), b.read(2)), (Ok(Some(13)), Ok(Some(20))));
    b.commit().unwrap();

    assert!(matches!(a.commit(), Err(StepError::Lost(reason)) if reason.contains("was begun")));
}

#[test]
fn a_dropped_connection_releases_its_latches() {
    let (_bank, _memory, driver) = store("driver-drop");
    let [mut a, mut b] = prepared(&*driver);
    a.begin().unwrap();
    a.write(1, 11).unwrap();
    a.insert(3, 30).unwrap();
    drop(a);
    b.begin().unwrap();
    b.write(1, 12).unwrap();
    b.insert(3, 31).unwrap();
    b.commit().unwrap();
}

#[test]
fn a_store_without_memory_is_a_lost_connection() {
    let (_bank, memory, driver) = store("driver-lost");
    let [client, _] = prepared(&*driver);
    drop(memory);
    let client = RefCell::new(client);
    within(Duration::from_secs(60), "the loss", || {
        let mut client = client.borrow_mut();
        let read = client.begin().and_then(|()| client.read(1));
        // Up to the loss, a transaction reads the value, or is aborted.
        matches!(read.and_then(|_| client.abort()), Err(StepError::Lost(_)))
    });
}

#[test]
fn foreign_tables_and_paths_are_refused() {
    let (bank, _memory, driver) = store("driver-foreign");
    bank.says("table", &["outlive_litmus", "--keys", "100"]);
    bank.says("put", &["outlive_litmus", "7", "70", "--numbers"]);
    let error = driver.create().unwrap_err().to_string();
    assert!(error.contains("is not empty"), "{error}");
    assert!(conformance::check(&*driver).is_err());
    assert_eq!(
        bank.says("get", &["outlive_litmus", "7", "--numbers"]),
        "70\n"
    );

    let refusal = |parameters: &str| open(&bank, parameters).err().unwrap();
    assert!(refusal("?kees=5").contains("known are keys"));
    assert!(refusal("-missing").contains("-missing"));
}
