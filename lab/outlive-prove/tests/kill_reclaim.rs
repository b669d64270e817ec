//! Safe reclamation, killed after every instruction, and its recovery too; and ways to get it wrong, each
//! of which must be found.

use outlive_prove::kill::{Plan, Sample, assert_clean, assert_found};
use outlive_prove::sweeps::reclaim;

#[test]
fn reclamation_survives_a_kill_at_every_instruction() {
    // The operations are long, for each ends a way to the heap: fewer of the recoveries are swept in turn.
    let mut plan = Plan::quick();
    plan.recoveries = Sample::UpTo(4);
    assert_clean(reclaim::add_to, &plan);
}

#[test]
fn blocks_that_are_retired_or_freed_in_the_wrong_order_are_found() {
    assert_found(reclaim::broken());
}
