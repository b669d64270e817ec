//! The servers of a store and their recovery, killed after every instruction; and broken variants.

use outlive_proofs::store::sweeps;
use outlive_prove::kill::{Plan, assert_clean, assert_found};

#[test]
fn servers_survive_a_kill_at_every_instruction() {
    assert_clean(sweeps::add_to, &Plan::quick());
}

#[test]
fn broken_servers_are_found() {
    assert_found(sweeps::broken());
}
