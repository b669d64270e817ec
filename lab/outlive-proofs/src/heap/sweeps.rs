//! The heap of small objects and its recovery; and broken variants, which a sweep must find.

use super::slabs::{self, Case};
use crate::cases::{self, Killed};
use crate::pod::Pod;
use outlive::heap::{
    HeapAllocatePoint, HeapCollectPoint, HeapFreePoint, HeapGiveBackPoint, HeapLargePoint,
    HeapOwePoint, HeapRecoverPoint, HeapRefillPoint,
};
use outlive::membership::Member;
use outlive_memory::PersistenceDomain;
use outlive_prove::kill::{Marked, Suite, Sweep};

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

/// Returns the sweeps of allocations and frees that are not noted first. They must fail, each with
/// a part of the expected message.
pub fn broken() -> Vec<(Box<dyn Sweep>, &'static str)> {
    cases::broken([
        (Case::PublishesFirst, "is reached 2 times"),
        (Case::ForgetsTheNote, "has leaked"),
        (Case::FreesWithoutNote, "has leaked"),
    ])
}

impl cases::Case for Case {
    const ROOM: &'static str = "heap";
    type World = slabs::World<Marked>;

    fn pod(world: &Self::World) -> &Pod<Marked> {
        world
    }

    fn bytes(self) -> u64 {
        slabs::bytes(self.slabs())
    }

    fn world(self, memory: Marked) -> Self::World {
        slabs::pod(memory)
    }

    fn prepare(self, memory: Marked) {
        self.prepare(memory);
    }

    fn operate(self, world: &Self::World, victim: &Member<Marked>) {
        self.operate(world, victim);
    }

    fn recover(self, world: &Self::World, by: u32) {
        self.recover(world, by);
    }

    fn check(self, world: &Self::World, returned: bool) -> Result<(), String> {
        self.check(world, returned)
    }
}
