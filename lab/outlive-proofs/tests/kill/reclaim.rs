//! Safe reclamation and its recovery, killed after every instruction; and broken variants.

use outlive_proofs::reclaim::sweeps;
use outlive_prove::kill::{Plan, Sample, assert_clean, assert_found};

#[test]
fn reclamation_survives_a_kill_at_every_instruction() {
    // The operations are long, since each ends a heap handle: fewer recoveries are swept in turn.
    let mut plan = Plan::quick();
    plan.recoveries = Sample::UpTo(4);
    assert_clean(sweeps::add_to, &plan);
}

#[test]
fn blocks_that_are_retired_or_freed_in_the_wrong_order_are_found() {
    assert_found(sweeps::broken());
}
