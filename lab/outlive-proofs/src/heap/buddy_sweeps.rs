//! The buddy allocator and its recovery; and broken variants, each of which a sweep must find.

use super::buddy::{self, BYTES, Case};
use crate::cases::{self, Killed};
use crate::pod::Pod;
use outlive::heap::buddy::{BuddyAllocatePoint, BuddyFreePoint};
use outlive::membership::Member;
use outlive::recovery::{RecoverPoint, RedoPoint};
use outlive_memory::PersistenceDomain;
use outlive_prove::kill::{Marked, Suite, Sweep};

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

/// Returns sweeps that write cells outside the transaction and must fail, with parts of the
/// messages.
pub fn broken() -> Vec<(Box<dyn Sweep>, &'static str)> {
    cases::broken([
        (Case::PublishesFirst, "no allocated block starts there"),
        (Case::PublishesAfterwards, "has leaked"),
        (Case::ClearsAfterwards, "no allocated block starts there"),
    ])
}

impl cases::Case for Case {
    const ROOM: &'static str = "buddy";
    type World = Pod<Marked>;

    fn pod(world: &Self::World) -> &Pod<Marked> {
        world
    }

    fn bytes(self) -> u64 {
        BYTES
    }

    fn world(self, memory: Marked) -> Self::World {
        buddy::pod(memory)
    }

    fn prepare(self, memory: Marked) {
        self.prepare(memory);
    }

    fn operate(self, world: &Self::World, victim: &Member<Marked>) {
        self.operate(world, victim);
    }

    fn check(self, world: &Self::World, returned: bool) -> Result<(), String> {
        self.check(world, returned)
    }
}
