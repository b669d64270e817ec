//! The work list and the counting under every interleaving within bounds and many beyond, with deaths; and ways to get
//! them wrong, each of which must be found.

use outlive_prove::schedule::Coverage;
use outlive_workloads::scenarios;

#[test]
fn units_count_once_under_interleavings_and_deaths() {
    let mut coverage = Coverage::default();
    for proof in scenarios::all() {
        let report = proof.run(false);
        println!("{report}");
        report.assert_passed();
        coverage.merge(&report.coverage);
    }
    println!("{coverage}");
}

#[test]
fn broken_lists_and_counts_are_caught() {
    for (scenario, bounds, message) in scenarios::broken() {
        let report = scenario.explore(&bounds);
        let failure = report.expect_failure();
        println!("caught after {}: {}", report.executions, failure.message);
        assert!(failure.message.contains(message), "{failure}");
    }
}
