//! Membership under every interleaving within bounds, with deaths; and broken variants, each of
//! which must be found.

use outlive_proofs::membership::{group_log, scenarios as membership};
use outlive_prove::explore::{CacheRules, Tearing, Transfers};
use outlive_prove::proof::{assert_caught, assert_hold};
use outlive_prove::schedule::Bounds;

#[test]
fn events_are_told_once_under_every_interleaving() {
    for proof in group_log::all() {
        let report = proof.run(false);
        println!("{report}");
        report.assert_proven();
        assert!(report.executions > 100 && report.deaths > 0, "{report}");
    }
}

#[test]
fn membership_holds_under_every_interleaving() {
    let coverage = assert_hold(membership::all(), |report| {
        report.complete && report.deaths > 0
    });
    assert!(coverage.missing().is_empty(), "{coverage}");
}

#[test]
fn broken_memberships_are_caught() {
    assert_caught(membership::broken());
}

#[test]
fn broken_logs_are_caught() {
    assert_caught(group_log::broken());
}

/// Contract 7: segments in the write-back domain are refused, and this is one reason. A log that
/// holds there belongs among the proofs.
#[test]
fn the_log_does_not_hold_on_every_machine_that_loses_caches() {
    for tearing in [Tearing::Words, Tearing::Lines] {
        let scenario = group_log::in_lost_caches(CacheRules {
            tearing,
            ..CacheRules::default()
        });
        let report = scenario.explore(&Bounds::default().preemptions(1));
        let failure = report.expect_failure();
        println!("caught after {}: {}", report.executions, failure.message);
        assert!(failure.trace.contains("falls back"), "{failure}");
    }
}

#[test]
fn the_log_holds_where_whole_lines_go_through_memory() {
    let scenario = group_log::in_lost_caches(CacheRules {
        tearing: Tearing::Lines,
        transfers: Transfers::ThroughMemory,
        ..CacheRules::default()
    });
    let report = scenario.explore(&Bounds::default().preemptions(1));
    println!("{report}");
    report.assert_proven();
    assert!(report.images > 1, "{report}");
}
