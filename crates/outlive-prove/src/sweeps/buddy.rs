//! The buddy allocator, and its recovery too; and ways to get it wrong, each of which a sweep must find.

use crate::fixtures::buddy::{self, BYTES, Case};
use crate::kill::{Crash, Marked, Suite, Sweep};
use outlive::heap::buddy::{BuddyAllocatePoint, BuddyFreePoint};
use outlive::recovery::{RecoverPoint, RedoPoint};
use outlive_memory::PersistenceDomain;

/// Adds the sweeps of this file.
pub fn add_to(suite: &mut Suite) {
    for case in Case::SOUND {
        suite.add(Killed(case, PersistenceDomain::Flushed));
    }
    suite.add(Killed(Case::AllocateInto, PersistenceDomain::WriteBack));
    suite.declare::<BuddyAllocatePoint>();
    suite.declare::<BuddyFreePoint>();
    suite.declare::<RedoPoint>().declare::<RecoverPoint>();
}

/// Sweeps of cells that are written apart from the transaction: they must fail, each with a part of what
/// must be said.
pub fn broken() -> Vec<(Box<dyn Sweep>, &'static str)> {
    [
        (Case::PublishesFirst, "no allocated block starts there"),
        (Case::PublishesAfterwards, "has leaked"),
        (Case::ClearsAfterwards, "no allocated block starts there"),
    ]
    .map(|(case, message)| -> (Box<dyn Sweep>, _) {
        (Box::new(Killed(case, PersistenceDomain::Flushed)), message)
    })
    .into()
}

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
