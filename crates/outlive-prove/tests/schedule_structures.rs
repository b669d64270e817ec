//! The list and the map under every interleaving within bounds and many beyond, with deaths; and ways to get them
//! wrong, each of which must be found.

use outlive_prove::scenarios::structures;
use outlive_prove::schedule::Coverage;

#[test]
fn list_and_map_hold_under_interleavings_and_deaths() {
    let mut coverage = Coverage::default();
    for proof in structures::all() {
        let report = proof.run(false);
        println!("{report}");
        report.assert_passed();
        coverage.merge(&report.coverage);
    }
    println!("{coverage}");
}

#[test]
fn broken_lists_and_maps_are_caught() {
    for (scenario, bounds, message) in structures::broken() {
        let report = scenario.explore(&bounds);
        let failure = report.expect_failure();
        println!("caught after {}: {}", report.executions, failure.message);
        assert!(failure.message.contains(message), "{failure}");
    }
}
