//! Counting under every interleaving within bounds and many beyond, with deaths; and ways to get it wrong, each of which
//! must be found.

use outlive_prove::scenarios::{assert_caught, assert_hold};
use outlive_workloads::scenarios;

#[test]
fn units_count_once_under_interleavings_and_deaths() {
    let coverage = assert_hold(scenarios::all(), |report| report.executions > 100);
    println!("{coverage}");
}

#[test]
fn broken_counts_are_caught() {
    assert_caught(scenarios::broken());
}
