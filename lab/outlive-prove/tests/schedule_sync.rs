//! Locks, the mutex and recovery under every interleaving within bounds, with deaths; and ways to get them
//! wrong, each of which must be found.

use outlive_prove::scenarios::{assert_caught, assert_hold, sync};

#[test]
fn locks_and_recovery_hold_under_every_interleaving() {
    assert_hold(sync::all(), |report| {
        report.executions > 100 && report.deaths > 0
    });
}

#[test]
fn broken_locks_and_recoveries_are_caught() {
    assert_caught(sync::broken());
}
