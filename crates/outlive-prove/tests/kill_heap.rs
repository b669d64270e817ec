//! The buddy allocator, killed after every instruction, and its recovery too; and ways to get it wrong,
//! each of which must be found.

mod support;

use outlive_prove::sweeps::buddy;

#[test]
fn the_buddy_allocator_survives_a_kill_at_every_instruction() {
    support::assert_clean(buddy::add_to);
}

#[test]
fn cells_that_are_written_apart_from_the_transaction_are_found() {
    support::assert_found(buddy::broken());
}
