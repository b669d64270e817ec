//! Verbs and the recovery of servers under every interleaving within bounds; and broken variants,
//! each of which must be found.

use outlive_proofs::store::scenarios;
use outlive_prove::proof::{assert_caught, assert_hold};

#[test]
fn verbs_and_recoveries_hold_under_interleavings() {
    let coverage = assert_hold(scenarios::all(), |report| report.executions > 1);
    println!("{coverage}");
}

#[test]
fn broken_verbs_are_caught() {
    assert_caught(scenarios::broken());
}
