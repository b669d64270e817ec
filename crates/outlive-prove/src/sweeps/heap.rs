//! The heap of small objects, and its recovery too; and ways to get it wrong, each of which a sweep must find.

use crate::fixtures::heap::{self, Case, bytes};
use crate::kill::{Crash, Marked, Suite, Sweep};
use outlive::heap::{
    HeapAllocatePoint, HeapCollectPoint, HeapFreePoint, HeapGiveBackPoint, HeapLargePoint,
    HeapOwePoint, HeapRecoverPoint, HeapRefillPoint,
};
use outlive_memory::PersistenceDomain;

/// Adds the sweeps of this file.
pub fn add_to(suite: &mut Suite) {
    for case in Case::SOUND {
        suite.add(Killed(case, PersistenceDomain::Flushed));
    }
    suite.add(Killed(Case::Allocate, PersistenceDomain::WriteBack));
    suite.add(Killed(Case::FreeOwn, PersistenceDomain::WriteBack));
    suite
        .declare::<HeapAllocatePoint>()
        .declare::<HeapFreePoint>()
        .declare::<HeapRefillPoint>()
        .declare::<HeapCollectPoint>()
        .declare::<HeapGiveBackPoint>()
        .declare::<HeapLargePoint>()
        .declare::<HeapOwePoint>()
        .declare::<HeapRecoverPoint>();
}

/// Sweeps of allocations and frees that are not noted first: they must fail, each with a part of what must be
/// said.
pub fn broken() -> Vec<(Box<dyn Sweep>, &'static str)> {
    [
        (Case::PublishesFirst, "is reached 2 times"),
        (Case::ForgetsTheNote, "has leaked"),
        (Case::FreesWithoutNote, "has leaked"),
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
        format!("heap {:?}, {}", self.0, self.1)
    }

    fn size(&self) -> u64 {
        bytes(self.0.slabs())
    }

    fn domain(&self) -> PersistenceDomain {
        self.1
    }

    fn prepare(&self, memory: Marked) {
        self.0.prepare(memory);
    }

    fn operate(&self, memory: Marked) {
        let pod = heap::pod(memory);
        self.0.operate(&pod, &pod.act_as(0));
    }

    fn recover(&self, memory: Marked, crash: &Crash) {
        let pod = heap::pod(memory);
        for id in 0..=crash.recoverers_lost {
            if pod.status(id).may_write() {
                pod.declare_dead(id);
            }
        }
        self.0.recover(&pod, 1 + crash.recoverers_lost);
    }

    fn check(&self, memory: Marked, crash: &Crash) -> Result<(), String> {
        self.0.check(&heap::pod(memory), crash.returned)
    }
}
