//! The map, the list and their recovery, killed after every instruction; and broken variants.

use outlive_proofs::structures::sweeps;
use outlive_prove::kill::{Plan, Sample, assert_clean, assert_found};

/// As the other suites, except for the recoveries that are swept in turn: these take long.
#[test]
fn map_and_list_survive_a_kill_at_every_instruction() {
    let mut plan = Plan::quick();
    plan.recoveries = Sample::UpTo(3);
    plan.real_kills = Sample::UpTo(3);
    assert_clean(sweeps::add_to, &plan);
}

#[test]
fn broken_maps_and_lists_are_found() {
    assert_found(sweeps::broken());
}
