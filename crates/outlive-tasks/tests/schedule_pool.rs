//! Names and judgements under many interleavings with deaths; and ways to get them wrong, each of which must be found.

use outlive_prove::scenarios::{assert_caught, assert_hold};
use outlive_tasks::proofs::scenarios;

#[test]
fn jobs_are_complete_when_they_are_under_interleavings_and_deaths() {
    let coverage = assert_hold(scenarios::all(), |report| report.executions >= 60);
    println!("{coverage}");
}

#[test]
fn broken_pools_are_caught() {
    assert_caught(scenarios::broken());
}
