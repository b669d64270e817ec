//! Tasks under every interleaving within bounds and many beyond, with deaths; and broken variants,
//! each of which must be found.

use outlive_proofs::tasks::engine::scenarios;
use outlive_prove::proof::{assert_caught, assert_hold};

#[test]
fn tasks_are_done_once_under_interleavings_and_deaths() {
    let coverage = assert_hold(scenarios::all(), |report| report.executions > 50);
    println!("{coverage}");
}

#[test]
fn wrong_ways_are_caught() {
    assert_caught(scenarios::broken());
}
