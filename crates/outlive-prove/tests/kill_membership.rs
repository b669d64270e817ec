//! Membership, killed at every instruction.

use outlive_prove::kill::{KillError, Plan, sweep};
use outlive_prove::sweeps::membership;

#[test]
fn telling_burying_and_taking_roles_survive_a_death_at_every_instruction() {
    for operation in membership::all() {
        match sweep(&*operation, &Plan::quick()) {
            Ok(report) => {
                println!("{report}");
                report.assert_clean();
            }
            Err(KillError::PtraceForbidden(why)) => println!("skipped: {why}"),
            Err(error) => panic!("{}: {error}", operation.name()),
        }
    }
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
