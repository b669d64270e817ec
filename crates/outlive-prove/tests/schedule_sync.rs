//! Locks, the mutex and recovery under every interleaving within bounds, with deaths; and ways to get them
//! wrong, each of which must be found.

use outlive_prove::scenarios::sync;

#[test]
fn locks_and_recovery_hold_under_every_interleaving() {
    for proof in sync::all() {
        let report = proof.run(false);
        println!("{report}");
        report.assert_passed();
        assert!(report.executions > 100 && report.deaths > 0, "{report}");
    }
}

#[test]
fn broken_locks_and_recoveries_are_caught() {
    for (scenario, bounds, message) in sync::broken() {
        let report = scenario.explore(&bounds);
        let failure = report.expect_failure();
        assert!(failure.message.contains(message), "{failure}");
        println!("caught: {}", failure.message);
    }
}
