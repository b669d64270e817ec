//! SQLite. Its transactions that write are executed one at a time; a transaction whose snapshot is
//! outdated at its first write is aborted.

use crate::rows::{Row, judge};
use outlive_litmus::driver;
use std::sync::Arc;

#[test]
fn levels() {
    // Of each isolation that the settings give, one: locks, and snapshots with a log.
    for parameters in [
        "journal=delete&synchronous=off",
        "journal=wal&synchronous=off",
    ] {
        let directory = tempfile::tempdir().unwrap();
        let target = format!("sqlite:{}/x.db?{parameters}", directory.path().display());
        let row = Row {
            parameters,
            level: "strict-serializable",
            violated: &[],
            permitted: &[],
        };
        judge(&Arc::from(driver::open(&target).unwrap()), &row).unwrap();
    }
}
