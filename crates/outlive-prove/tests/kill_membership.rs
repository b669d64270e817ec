//! Membership, killed at every instruction.

use outlive_prove::kill::{Plan, Suite, unless_forbidden};
use outlive_prove::sweeps::membership;

#[test]
fn telling_burying_and_taking_roles_survive_a_death_at_every_instruction() {
    let mut suite = Suite::new();
    membership::add_to(&mut suite);
    let report = suite.run(&Plan::quick(), |_| true, |_| {});
    if let Some(report) = unless_forbidden(report) {
        report.assert_clean();
    }
}
