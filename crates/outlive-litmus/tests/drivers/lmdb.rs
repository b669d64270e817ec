//! LMDB.

use super::{assert_aborted, assert_conforms, begin_and_read};
use outlive_litmus::driver::{self, Driver};
use tempfile::TempDir;

/// Opens an environment in a directory of its own.
fn environment(parameters: &str) -> (TempDir, Box<dyn Driver>) {
    let directory = tempfile::tempdir().unwrap();
    let target = format!("lmdb:{}/env{parameters}", directory.path().display());
    let driver = driver::open(&target).unwrap();
    (directory, driver)
}

#[test]
fn an_environment_conforms() {
    for parameters in ["", "?begin=immediate"] {
        let (_directory, driver) = environment(parameters);
        assert_conforms(&*driver);
    }
}

#[test]
fn a_write_after_an_outdated_read_is_an_abort() {
    let (_directory, driver) = environment("");
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
fn targets_and_a_second_opening_are_refused() {
    let refusal = |target: &str| driver::open(target).err().unwrap().to_string();
    assert!(refusal("lmdb:").contains("write `lmdb:PATH`"));
    assert!(refusal("lmdb:/x?begin=later").contains("not one of deferred, immediate"));

    let (directory, driver) = environment("");
    driver.create().unwrap();
    let again = format!("lmdb:{}/env", directory.path().display());
    let error = driver::open(&again).unwrap().create().unwrap_err();
    assert!(
        error.problem.contains("already open in this program"),
        "{error}"
    );
}

#[test]
fn a_table_of_another_user_is_refused_and_kept() {
    let (_directory, driver) = environment("");
    driver.create().unwrap();
    driver.set(&[(5, Some(50))]).unwrap();
    let violation = driver::conformance::check(&*driver).unwrap_err();
    assert!(violation.problem.contains("mdb_drop"), "{violation}");
    let mut client = driver.connect().unwrap();
    assert_eq!(begin_and_read(&mut *client, 5), Some(50));
}
