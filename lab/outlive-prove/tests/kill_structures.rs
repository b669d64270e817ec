//! The map and the list, killed after every instruction, and their recovery too; and ways to get them wrong,
//! each of which must be found.

use outlive_prove::kill::{Plan, Sample, assert_clean, assert_found};
use outlive_prove::sweeps::structures;

/// As the other suites, but for the recoveries that are swept in turn: these take their time.
#[test]
fn map_and_list_survive_a_kill_at_every_instruction() {
    let mut plan = Plan::quick();
    plan.recoveries = Sample::UpTo(3);
    plan.real_kills = Sample::UpTo(3);
    assert_clean(structures::add_to, &plan);
}

#[test]
fn broken_maps_and_lists_are_found() {
    assert_found(structures::broken());
}
