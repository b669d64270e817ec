//! Memory pools and their recovery, killed after every instruction; and broken variants.

use outlive_proofs::memory_pool::{move_sweeps, object_sweeps, replica_sweeps, sweeps};
use outlive_prove::kill::{Plan, Sample, assert_clean, assert_found};

#[test]
fn memory_pools_survive_a_kill_at_every_instruction() {
    let mut plan = Plan::quick();
    plan.recoveries = Sample::UpTo(3);
    assert_clean(sweeps::add_to, &plan);
}

#[test]
fn broken_memory_pools_are_found() {
    assert_found(sweeps::broken());
}

#[test]
fn leased_objects_survive_a_kill_at_every_instruction() {
    let mut plan = Plan::quick();
    plan.recoveries = Sample::UpTo(3);
    assert_clean(object_sweeps::add_to, &plan);
}

#[test]
fn broken_leased_objects_are_found() {
    assert_found(object_sweeps::broken());
}

#[test]
fn moves_of_slices_survive_a_kill_at_every_instruction() {
    let mut plan = Plan::quick();
    plan.recoveries = Sample::UpTo(3);
    assert_clean(move_sweeps::add_to, &plan);
}

#[test]
fn broken_moves_are_found() {
    assert_found(move_sweeps::broken());
}

#[test]
fn replicas_survive_a_kill_at_every_instruction() {
    let mut plan = Plan::quick();
    plan.recoveries = Sample::UpTo(3);
    assert_clean(replica_sweeps::add_to, &plan);
}

#[test]
fn broken_replicas_are_found() {
    assert_found(replica_sweeps::broken());
}
