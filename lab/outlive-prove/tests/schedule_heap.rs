//! The heap of small objects under every interleaving within bounds, with deaths; and ways to get it wrong,
//! each of which must be found.

use outlive_prove::scenarios::{assert_caught, assert_hold, heap};

#[test]
fn small_objects_hold_under_every_interleaving() {
    assert_hold(heap::all(), |report| {
        report.executions > 100 && report.deaths > 0
    });
}

#[test]
fn broken_collectors_and_frees_are_caught() {
    assert_caught(heap::broken());
}
