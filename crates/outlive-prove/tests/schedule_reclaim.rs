//! Safe reclamation under every interleaving within bounds, with deaths; and ways to get it wrong, each of
//! which must be found.

use outlive_prove::scenarios::reclaim;

#[test]
fn nobody_reads_what_is_free_under_every_interleaving() {
    for proof in reclaim::all() {
        let report = proof.run(false);
        println!("{report}");
        report.assert_passed();
        assert!(report.executions > 100, "{report}");
    }
}

#[test]
fn broken_reclamations_are_caught() {
    for (scenario, bounds, message) in reclaim::broken() {
        let report = scenario.explore(&bounds);
        let failure = report.expect_failure();
        assert!(failure.message.contains(message), "{failure}");
        println!("caught: {} after {}", failure.message, report.executions);
    }
}
