//! Names and judgements under many interleavings with deaths; and broken variants.

use outlive_proofs::tasks::pool::scenarios;
use outlive_prove::proof::{assert_caught, assert_hold};

#[test]
fn jobs_are_complete_when_they_are_under_interleavings_and_deaths() {
    let coverage = assert_hold(scenarios::all(), |report| report.executions >= 60);
    println!("{coverage}");
}

#[test]
fn broken_pools_are_caught() {
    assert_caught(scenarios::broken());
}
