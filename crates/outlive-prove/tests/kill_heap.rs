//! The buddy allocator, killed after every instruction, and its recovery too; and ways to get it wrong,
//! each of which must be found.

#[path = "../../outlive/tests/buddy/mod.rs"]
mod buddy;
#[path = "../../outlive/tests/pod/mod.rs"]
mod pod;

use buddy::{BYTES, Case};
use outlive::heap::buddy::{BuddyAllocatePoint, BuddyFreePoint};
use outlive::recovery::{RecoverPoint, RedoPoint};
use outlive_memory::PersistenceDomain;
use outlive_prove::kill::{Crash, Marked, Plan, Suite, Sweep, sweep, unless_forbidden};

/// Number 0 is the victim; 1 and 2 recover; 3 is whoever died before.
struct Killed(Case, PersistenceDomain);

impl Sweep for Killed {
    fn name(&self) -> String {
        format!("buddy {:?}, {}", self.0, self.1)
    }

    fn size(&self) -> u64 {
        BYTES
    }

    fn domain(&self) -> PersistenceDomain {
        self.1
    }

    fn prepare(&self, memory: Marked) {
        self.0.prepare(memory);
    }

    fn operate(&self, memory: Marked) {
        let pod = buddy::pod(memory);
        self.0.operate(&pod, &pod.act_as(0));
    }

    fn recover(&self, memory: Marked, crash: &Crash) {
        let pod = buddy::pod(memory);
        for id in 0..=crash.recoverers_lost {
            if pod.status(id).may_write() {
                pod.declare_dead(id);
            }
        }
        let survivor = pod.act_as(1 + crash.recoverers_lost);
        pod.recoverers.recover_all(&survivor).unwrap();
    }

    fn check(&self, memory: Marked, crash: &Crash) -> Result<(), String> {
        self.0.check(&buddy::pod(memory), crash.returned)
    }
}

#[test]
fn the_buddy_allocator_survives_a_kill_at_every_instruction() {
    let mut suite = Suite::new();
    for case in Case::SOUND {
        suite.add(Killed(case, PersistenceDomain::Flushed));
    }
    suite.add(Killed(Case::AllocateInto, PersistenceDomain::WriteBack));
    suite.declare::<BuddyAllocatePoint>();
    suite.declare::<BuddyFreePoint>();
    suite.declare::<RedoPoint>().declare::<RecoverPoint>();
    let swept = suite.run(&Plan::quick(), |_| true, |report| println!("{report}"));
    if let Some(report) = unless_forbidden(swept) {
        report.assert_clean();
    }
}

#[test]
fn cells_that_are_written_apart_from_the_transaction_are_found() {
    let findings = [
        (Case::PublishesFirst, "no allocated block starts there"),
        (Case::PublishesAfterwards, "has leaked"),
        (Case::ClearsAfterwards, "no allocated block starts there"),
    ];
    for (case, finding) in findings {
        let mut plan = Plan::quick();
        plan.most_failures = 1;
        let swept = sweep(&Killed(case, PersistenceDomain::Flushed), &plan);
        let Some(report) = unless_forbidden(swept) else {
            return;
        };
        let failure = report.failures.first();
        let failure = failure.unwrap_or_else(|| panic!("{case:?} was not found"));
        assert!(failure.message.contains(finding), "{failure}");
    }
}
