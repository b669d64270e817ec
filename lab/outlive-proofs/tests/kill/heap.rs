//! The allocators and their recovery, killed after every instruction; and broken variants.

use outlive_proofs::heap::{buddy_sweeps as buddy, sweeps as heap};
use outlive_prove::kill::{Plan, assert_clean, assert_found};

#[test]
fn the_buddy_allocator_survives_a_kill_at_every_instruction() {
    assert_clean(buddy::add_to, &Plan::quick());
}

#[test]
fn cells_that_are_written_apart_from_the_transaction_are_found() {
    assert_found(buddy::broken());
}

#[test]
fn small_objects_survive_a_kill_at_every_instruction() {
    // The points of `heap.owe` are passed only in the recovery of few images, so a sample of three
    // recoveries misses them.
    assert_clean(heap::add_to, &Plan::quick());
}

#[test]
fn small_objects_that_are_not_noted_first_are_found() {
    assert_found(heap::broken());
}
