//! Membership, killed at every instruction.

mod support;

use outlive_prove::sweeps::membership;

#[test]
fn telling_burying_and_taking_roles_survive_a_death_at_every_instruction() {
    support::assert_clean(membership::add_to);
}

#[test]
fn joining_and_leaving_survive_real_deaths() {
    use outlive_prove::kill::{sweep_for_real, unless_forbidden};
    let plan = Plan::quick();
    if let Some(report) = unless_forbidden(sweep_for_real(&membership_joining(), &plan)) {
        println!("{report}");
        report.assert_clean();
    }
}

fn membership_joining() -> outlive_prove::sweeps::joining::ComeAndGo {
    outlive_prove::sweeps::joining::ComeAndGo
}
