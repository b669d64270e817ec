//! LMDB. Its transactions that write are executed one at a time, so it passes.

use crate::rows::{Row, judge};
use outlive_litmus::driver;
use std::sync::Arc;

#[test]
fn levels() {
    for parameters in ["begin=deferred", "begin=immediate"] {
        let directory = tempfile::tempdir().unwrap();
        let target = format!("lmdb:{}?{parameters}", directory.path().display());
        let row = Row {
            parameters,
            level: "strict-serializable",
            violated: &[],
            permitted: &[],
        };
        judge(&Arc::from(driver::open(&target).unwrap()), &row).unwrap();
    }
}
