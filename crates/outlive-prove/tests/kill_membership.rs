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
