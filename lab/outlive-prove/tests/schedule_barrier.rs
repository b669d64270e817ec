//! The group barrier under every interleaving within bounds, with deaths; and ways to get it wrong, each of
//! which must be found.

use outlive_prove::scenarios::{assert_caught, assert_hold, barrier};

#[test]
fn a_barrier_holds_under_every_interleaving() {
    let coverage = assert_hold(barrier::all(), |report| report.executions > 100);
    println!("{coverage}");
    let mut missing = coverage.missing();
    missing.retain(|point| point.starts_with("barrier::"));
    assert!(missing.is_empty(), "nobody died at {missing:?}");
}

#[test]
fn broken_barriers_are_caught() {
    assert_caught(barrier::broken());
}
