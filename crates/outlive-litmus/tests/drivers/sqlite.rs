//! SQLite.

use super::{assert_aborted, assert_conforms, begin_and_read};
use outlive_litmus::driver::{self, Driver, StepError};
use tempfile::TempDir;

/// Opens a database in a directory of its own.
fn database(parameters: &str) -> (TempDir, Box<dyn Driver>) {
    let directory = tempfile::tempdir().unwrap();
    let target = format!("sqlite:{}/db{parameters}", directory.path().display());
    let driver = driver::open(&target).unwrap();
    (directory, driver)
}

fn assert_conforms_with(parameters: &str) {
    let (_directory, driver) = database(parameters);
    assert_conforms(&*driver);
}

#[test]
fn a_database_conforms() {
    assert_conforms_with("");
}

#[test]
fn a_database_with_a_write_ahead_log_conforms() {
    assert_conforms_with("?journal=wal&begin=immediate&synchronous=normal");
}

#[test]
fn a_database_with_a_shared_cache_conforms() {
    assert_conforms_with("?cache=shared&read=uncommitted&busy=10");
}

#[test]
fn a_write_after_an_outdated_read_is_an_abort() {
    let (_directory, driver) = database("?journal=wal");
    driver.create().unwrap();
    driver.set(&[(1, Some(10))]).unwrap();
    let (mut late, mut early) = (driver.connect().unwrap(), driver.connect().unwrap());
    assert_eq!(begin_and_read(&mut *late, 1), Some(10));
    early.begin().unwrap();
    early.write(1, 11).unwrap();
    early.commit().unwrap();
    assert_eq!(late.read(1), Ok(Some(10)));
    assert_aborted(late.write(1, 12));
    assert_eq!(begin_and_read(&mut *late, 1), Some(11));
}

#[test]
fn a_commit_under_a_readers_lock_is_an_abort() {
    let (_directory, driver) = database("?journal=delete&busy=0");
    driver.create().unwrap();
    driver.set(&[(1, Some(10))]).unwrap();
    let (mut reader, mut writer) = (driver.connect().unwrap(), driver.connect().unwrap());
    assert_eq!(begin_and_read(&mut *reader, 1), Some(10));
    writer.begin().unwrap();
    writer.write(1, 11).unwrap();
    assert_aborted(writer.commit());
    drop(reader);
    assert_eq!(begin_and_read(&mut *writer, 1), Some(10));
}

#[test]
fn uncommitted_values_are_read_with_a_shared_cache_only() {
    let found = ["?cache=shared&read=uncommitted", "?journal=wal"].map(|parameters| {
        let (_directory, driver) = database(parameters);
        driver.create().unwrap();
        driver.set(&[(1, Some(10))]).unwrap();
        let (mut reader, mut writer) = (driver.connect().unwrap(), driver.connect().unwrap());
        writer.begin().unwrap();
        writer.write(1, 11).unwrap();
        begin_and_read(&mut *reader, 1)
    });
    assert_eq!(found, [Some(11), Some(10)]);
}

#[test]
fn targets_and_foreign_files_are_refused() {
    let refusal = |target: &str| driver::open(target).err().unwrap().to_string();
    assert!(refusal("sqlite:").contains("write `sqlite:PATH`"));
    assert!(refusal("sqlite::memory:").contains("write `sqlite:PATH`"));
    assert!(refusal("sqlite:/x?begin=later").contains("`begin=later` is not one of deferred"));
    assert!(refusal("sqlite:/x?read=uncommitted").contains("cache=shared"));

    let (directory, driver) = database("");
    std::fs::write(
        directory.path().join("db"),
        "something else, not a database",
    )
    .unwrap();
    let error = driver.create().unwrap_err().to_string();
    assert!(error.contains("not a database"), "{error}");

    let missing = format!("sqlite:{}/missing/db", directory.path().display());
    let error = driver::open(&missing).unwrap().create().unwrap_err();
    assert!(error.to_string().contains("unable to open"), "{error}");
}

#[test]
fn a_table_of_another_user_is_refused_and_kept() {
    let (_directory, driver) = database("");
    driver.create().unwrap();
    driver.set(&[(5, Some(50))]).unwrap();
    let violation = driver::conformance::check(&*driver).unwrap_err();
    assert!(violation.problem.contains("DROP TABLE"), "{violation}");
    let mut client = driver.connect().unwrap();
    assert_eq!(begin_and_read(&mut *client, 5), Some(50));
}

#[test]
fn a_removed_table_is_a_lost_connection() {
    let (_directory, driver) = database("");
    driver.create().unwrap();
    let mut client = driver.connect().unwrap();
    driver.destroy().unwrap();
    client.begin().unwrap();
    assert!(matches!(client.read(1), Err(StepError::Lost(reason)) if reason.contains("no such")));
}
