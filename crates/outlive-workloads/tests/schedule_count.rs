//! The work list and the counting under every interleaving within bounds and many beyond, with deaths; and ways to get
//! them wrong, each of which must be found.

use outlive_prove::scenarios::{assert_caught, assert_hold};
use outlive_workloads::scenarios;

#[test]
fn units_count_once_under_interleavings_and_deaths() {
    let coverage = assert_hold(scenarios::all(), |report| report.executions > 100);
    println!("{coverage}");
}

#[test]
fn broken_lists_and_counts_are_caught() {
    assert_caught(scenarios::broken());
}
