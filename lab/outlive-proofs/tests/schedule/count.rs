//! Counting under every interleaving within bounds and many beyond, with deaths; and broken
//! variants, each of which must be found.

use outlive_proofs::wordcount::scenarios;
use outlive_prove::proof::{assert_caught, assert_hold};

#[test]
fn units_count_once_under_interleavings_and_deaths() {
    let coverage = assert_hold(scenarios::all(), |report| report.executions > 100);
    println!("{coverage}");
}

#[test]
fn broken_counts_are_caught() {
    assert_caught(scenarios::broken());
}
