//! Memory pools under every interleaving within bounds; and a broken variant, which must be found.

use outlive_proofs::memory_pool::{move_scenarios, object_scenarios, replica_scenarios, scenarios};
use outlive_prove::proof::{assert_caught, assert_hold};

#[test]
fn memory_pools_hold_under_interleavings() {
    let coverage = assert_hold(scenarios::all(), |report| report.executions > 1);
    println!("{coverage}");
}

#[test]
fn broken_memory_pools_are_caught() {
    assert_caught(scenarios::broken());
}

#[test]
fn leased_objects_hold_under_interleavings() {
    let coverage = assert_hold(object_scenarios::all(), |report| report.executions > 1);
    println!("{coverage}");
}

#[test]
fn broken_leased_objects_are_caught() {
    assert_caught(object_scenarios::broken());
}

#[test]
fn moves_of_slices_hold_under_interleavings() {
    let coverage = assert_hold(move_scenarios::all(), |report| report.executions > 1);
    println!("{coverage}");
}

#[test]
fn broken_moves_are_caught() {
    assert_caught(move_scenarios::broken());
}

#[test]
fn replicas_hold_under_interleavings() {
    let coverage = assert_hold(replica_scenarios::all(), |report| report.executions > 1);
    println!("{coverage}");
}

#[test]
fn broken_replicas_are_caught() {
    assert_caught(replica_scenarios::broken());
}
