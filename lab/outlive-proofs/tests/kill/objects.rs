//! Named objects and their recovery, killed after every instruction; and broken variants.

use outlive_proofs::objects::sweeps;
use outlive_prove::kill::{Plan, Sample, assert_clean, assert_found};

/// As the other suites, except for the recoveries that are swept in turn: these take long.
#[test]
fn objects_survive_a_kill_at_every_instruction() {
    let mut plan = Plan::quick();
    plan.recoveries = Sample::UpTo(3);
    plan.real_kills = Sample::UpTo(3);
    assert_clean(sweeps::add_to, &plan);
}

#[test]
fn broken_objects_are_found() {
    assert_found(sweeps::broken());
}
