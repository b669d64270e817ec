//! The heap of small objects under every interleaving within bounds, with deaths; and ways to get it wrong,
//! each of which must be found.

use outlive_prove::scenarios::heap;

#[test]
fn small_objects_hold_under_every_interleaving() {
    for proof in heap::all() {
        let report = proof.run(false);
        println!("{report}");
        report.assert_passed();
        assert!(report.executions > 100 && report.deaths > 0, "{report}");
    }
}

#[test]
fn broken_collectors_and_frees_are_caught() {
    for (scenario, bounds, message) in heap::broken() {
        let report = scenario.explore(&bounds);
        let failure = report.expect_failure();
        assert!(failure.message.contains(message), "{failure}");
        println!("caught: {} after {}", failure.message, report.executions);
    }
}
