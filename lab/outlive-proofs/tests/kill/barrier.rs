//! The group barrier and the removal of dead members, killed after every instruction; and broken
//! variants, each of which must be found.

use outlive_proofs::barrier::sweeps;
use outlive_prove::kill::{Plan, assert_clean, assert_found};

#[test]
fn a_barrier_survives_a_kill_at_every_instruction() {
    assert_clean(sweeps::add_to, &Plan::quick());
}

#[test]
fn steps_that_are_not_told_and_counts_that_are_kept_are_found() {
    assert_found(sweeps::broken());
}
