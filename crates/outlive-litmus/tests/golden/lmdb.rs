//! LMDB. Its transactions that write are executed one at a time, so it passes.

use crate::rows::{Row, assert_judged};
use outlive_litmus::driver;
use std::sync::Arc;

#[test]
fn levels() {
    for name in ["begin=deferred", "begin=immediate"] {
        let directory = tempfile::tempdir().unwrap();
        let target = format!("lmdb:{}?{name}", directory.path().display());
        let row = Row {
            name,
            level: "strict-serializable",
            violated: &[],
            permitted: &[],
        };
        assert_judged(&Arc::from(driver::open(&target).unwrap()), &row);
    }
}
