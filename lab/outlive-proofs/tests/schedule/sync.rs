//! Locks, the mutex and recovery under every interleaving within bounds, with deaths; and broken
//! variants, each of which must be found.

use outlive_proofs::locks::scenarios;
use outlive_prove::proof::{assert_caught, assert_hold};

#[test]
fn locks_and_recovery_hold_under_every_interleaving() {
    assert_hold(scenarios::all(), |report| {
        report.executions > 100 && report.deaths > 0
    });
}

#[test]
fn broken_locks_and_recoveries_are_caught() {
    assert_caught(scenarios::broken());
}
