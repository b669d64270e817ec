//! The group barrier, killed after every instruction, and the burial of the dead too; and ways to get it
//! wrong, each of which must be found.

use outlive_prove::kill::{Plan, assert_clean, assert_found};
use outlive_prove::sweeps::barrier;

#[test]
fn a_barrier_survives_a_kill_at_every_instruction() {
    assert_clean(barrier::add_to, &Plan::quick());
}

#[test]
fn steps_that_are_not_told_and_counts_that_are_kept_are_found() {
    assert_found(barrier::broken());
}
