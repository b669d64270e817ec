//! Safe reclamation, killed after every instruction, and its recovery too; and ways to get it wrong, each
//! of which must be found.

mod support;

use outlive_prove::sweeps::reclaim;

#[test]
fn reclamation_survives_a_kill_at_every_instruction() {
    support::assert_clean(reclaim::add_to);
}

#[test]
fn blocks_that_are_retired_or_freed_in_the_wrong_order_are_found() {
    support::assert_found(reclaim::broken());
}
