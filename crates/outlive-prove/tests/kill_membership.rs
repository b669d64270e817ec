//! Membership, killed at every instruction; joining and leaving, by real deaths.

use outlive_prove::kill::{Plan, Sample, assert_clean};
use outlive_prove::sweeps::{joining, membership};

#[test]
fn telling_burying_and_taking_roles_survive_a_death_at_every_instruction() {
    assert_clean(membership::add_to, &Plan::quick());
}

#[test]
fn joining_and_leaving_survive_real_deaths() {
    let mut plan = Plan::quick();
    // A recovery here is the join and leave of two processes: half a million instructions, one by one.
    plan.real.recoveries = Sample::UpTo(1);
    assert_clean(joining::add_to, &plan);
}
