//! Tasks and their recovery, killed after every instruction; and broken variants.

use outlive_proofs::tasks::engine::sweeps;
use outlive_prove::kill::{Plan, Sample, assert_clean, assert_found};

#[test]
fn tasks_are_done_once_after_a_kill_at_every_instruction() {
    let mut plan = Plan::quick();
    plan.recoveries = Sample::UpTo(1);
    assert_clean(sweeps::add_to, &plan);
}

#[test]
fn wrong_ways_are_found() {
    assert_found(sweeps::broken());
}
