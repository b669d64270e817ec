//! The heap of small objects under every interleaving within bounds, with deaths; and broken
//! variants, each of which must be found.

use outlive_proofs::heap::scenarios;
use outlive_prove::proof::{assert_caught, assert_hold};

#[test]
fn small_objects_hold_under_every_interleaving() {
    assert_hold(scenarios::all(), |report| {
        report.executions > 100 && report.deaths > 0
    });
}

#[test]
fn broken_collectors_and_frees_are_caught() {
    assert_caught(scenarios::broken());
}
