//! The servers of a store and their recovery, killed after every instruction; and broken variants.

use outlive_proofs::store::{restoration_sweeps, sweeps};
use outlive_prove::kill::{Plan, Sample, assert_clean, assert_found};

#[test]
fn servers_survive_a_kill_at_every_instruction() {
    assert_clean(sweeps::add_to, &Plan::quick());
}

/// A restoration has some thousand instructions, and so has its recovery.
#[test]
fn restorations_survive_a_kill_at_every_instruction() {
    let mut plan = Plan::quick();
    plan.real_kills = Sample::UpTo(2);
    plan.recoveries = Sample::UpTo(1);
    assert_clean(restoration_sweeps::add_to, &plan);
}

#[test]
fn broken_servers_are_found() {
    assert_found(sweeps::broken());
}
