//! Membership, killed at every instruction; joining and leaving, by real deaths.

mod support;

use outlive_prove::sweeps::{joining, membership};

#[test]
fn telling_burying_and_taking_roles_survive_a_death_at_every_instruction() {
    support::assert_clean(membership::add_to);
}

#[test]
fn joining_and_leaving_survive_real_deaths() {
    support::assert_clean(joining::add_to);
}
