//! The map and the list, killed after every instruction, and their recovery too; and ways to get them wrong,
//! each of which must be found.

mod support;

use outlive_prove::kill::{Plan, Sample, Suite, unless_forbidden};
use outlive_prove::sweeps::structures;

/// As the other suites, but for the recoveries that are swept in turn: these take their time.
#[test]
fn map_and_list_survive_a_kill_at_every_instruction() {
    let mut suite = Suite::new();
    structures::add_to(&mut suite);
    let mut plan = Plan::quick();
    plan.recoveries = Sample::UpTo(3);
    plan.real_kills = Sample::UpTo(3);
    let swept = suite.run(&plan, |_| true, |report| println!("{report}"));
    if let Some(report) = unless_forbidden(swept) {
        println!("{report}");
        report.assert_clean();
    }
}

#[test]
fn broken_maps_and_lists_are_found() {
    support::assert_found(structures::broken());
}
