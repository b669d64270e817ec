//! Rows of stores that are served by a [`Server`].

use crate::rows::{Row, judge, options};
use crate::servers::Server;
use outlive_litmus::run::{self, Limit, Survival};
use std::sync::atomic::AtomicBool;

/// Executes the suite for each row, and asserts that exactly the tests of the row fail, and its
/// level.
pub fn assert_judged(server: &Server, rows: &[Row]) {
    let judge = |row: &Row| judge(&server.driver(row.parameters), row).err();
    let problems: Vec<String> = rows.iter().filter_map(judge).collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// Kills the server while clients write, until a write is lost or for `kills` times.
pub fn survive(server: &Server, parameters: &str, kills: u64) -> Survival {
    let (driver, options) = (&server.driver(parameters), options(Limit::Instances(1)));
    let survival = run::survive(driver, server, kills, &options, &AtomicBool::new(false)).unwrap();
    eprintln!("{parameters}: {survival:?}");
    assert!(
        survival.acknowledged > 0 && survival.blocked.is_none(),
        "{survival:?}"
    );
    survival
}
