//! Jobs, names, judgements and their recovery, killed after every instruction; and broken variants.

use outlive_proofs::tasks::pool::sweeps;
use outlive_prove::kill::{Plan, Sample, assert_clean, assert_found};

#[test]
fn jobs_end_once_after_a_kill_at_every_instruction() {
    let mut plan = Plan::quick();
    plan.recoveries = Sample::UpTo(1);
    // A recovery here does all the remaining work: a hundred thousand instructions, one by one.
    plan.patience = 600;
    assert_clean(sweeps::add_to, &plan);
}

#[test]
fn wrong_ways_are_found() {
    assert_found(sweeps::broken());
}
