//! Membership, killed at every instruction.

mod support;

use outlive_prove::sweeps::membership;

#[test]
fn telling_burying_and_taking_roles_survive_a_death_at_every_instruction() {
    support::assert_clean(membership::add_to);
}
