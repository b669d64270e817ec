//! Counting and its recovery, killed after every instruction; and broken variants.

use outlive_proofs::wordcount::sweeps;
use outlive_prove::kill::{Plan, Sample, assert_clean, assert_found};

#[test]
fn counts_are_exact_after_a_kill_at_every_instruction() {
    let mut plan = Plan::quick();
    plan.recoveries = Sample::UpTo(3);
    assert_clean(sweeps::add_to, &plan);
}

#[test]
fn wrong_counts_are_found() {
    assert_found(sweeps::broken());
}
