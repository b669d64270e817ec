//! The drivers of the crate. Those of databases with a server are checked in tests/golden, which
//! starts the servers; here are the targets that they refuse.

#[cfg(feature = "etcd")]
mod etcd;
mod exec;
#[cfg(feature = "lmdb")]
mod lmdb;
#[cfg(feature = "redis")]
mod redis;
#[cfg(any(feature = "mariadb", feature = "postgres"))]
mod sql;
#[cfg(feature = "sqlite")]
mod sqlite;

use outlive_litmus::driver::{Connection, Driver, StepError, conformance};

/// Executes the checks of drivers.
#[track_caller]
fn assert_conforms(driver: &dyn Driver) {
    if let Err(violation) = conformance::check(driver) {
        panic!("{violation}");
    }
}

/// Begins a transaction, which reads `key`.
fn begin_and_read(client: &mut dyn Connection, key: u64) -> Option<i64> {
    client.begin().unwrap();
    client.read(key).unwrap()
}

#[track_caller]
fn assert_aborted<T>(outcome: Result<T, StepError>) {
    assert!(matches!(outcome, Err(StepError::Aborted(_))));
}
