//! The heap of small objects, and its recovery too; and ways to get it wrong, each of which a sweep must find.

use super::cases::{self, Killed};
use crate::fixtures::heap::{self, Case};
use crate::fixtures::pod::Pod;
use crate::kill::{Marked, Suite, Sweep};
use outlive::heap::{
    HeapAllocatePoint, HeapCollectPoint, HeapFreePoint, HeapGiveBackPoint, HeapLargePoint,
    HeapOwePoint, HeapRecoverPoint, HeapRefillPoint,
};
use outlive::membership::Member;
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
    cases::broken([
        (Case::PublishesFirst, "is reached 2 times"),
        (Case::ForgetsTheNote, "has leaked"),
        (Case::FreesWithoutNote, "has leaked"),
    ])
}

impl cases::Case for Case {
    const ROOM: &'static str = "heap";
    type World = heap::World<Marked>;

    fn pod(world: &Self::World) -> &Pod<Marked> {
        world
    }

    fn bytes(self) -> u64 {
        heap::bytes(self.slabs())
    }

    fn world(self, memory: Marked) -> Self::World {
        heap::pod(memory)
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
