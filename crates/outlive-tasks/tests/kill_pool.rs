//! Jobs, names and judgements, killed after every instruction, and their recovery too; and ways to get them wrong.

use outlive_prove::kill::{Plan, Sample, assert_clean, assert_found};
use outlive_tasks::proofs::sweeps;

#[test]
fn jobs_end_once_after_a_kill_at_every_instruction() {
    let mut plan = Plan::quick();
    plan.recoveries = Sample::UpTo(1);
    // A recovery here does all the work that is left: a hundred thousand instructions, one by one.
    plan.patience = 600;
    assert_clean(sweeps::add_to, &plan);
}

#[test]
fn wrong_ways_are_found() {
    assert_found(sweeps::broken());
}
