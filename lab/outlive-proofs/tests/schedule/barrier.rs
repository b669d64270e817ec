//! The group barrier under every interleaving within bounds, with deaths; and broken variants, each
//! of which must be found.

use outlive_proofs::barrier::scenarios;
use outlive_prove::proof::{assert_caught, assert_hold};

#[test]
fn a_barrier_holds_under_every_interleaving() {
    let coverage = assert_hold(scenarios::all(), |report| report.executions > 100);
    println!("{coverage}");
    let mut missing = coverage.missing();
    missing.retain(|point| point.starts_with("barrier::"));
    assert!(missing.is_empty(), "no thread died at {missing:?}");
}

#[test]
fn broken_barriers_are_caught() {
    assert_caught(scenarios::broken());
}
