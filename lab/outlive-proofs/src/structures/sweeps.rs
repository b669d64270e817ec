//! The map, the list and their recovery; and broken variants, each of which a sweep must find.

use super::fixture::{Case, REGION, World, bytes_for};
use crate::cases::{self, Killed};
use crate::pod::Pod;
use outlive::membership::Member;
use outlive::structures::{
    AddPagePoint, CreatePoint, DestroyPoint, DoublePoint, InsertPoint, OpenBucketsPoint,
    RemovePoint, ReplacePoint,
};
use outlive_memory::PersistenceDomain;
use outlive_prove::kill::{Marked, Suite, Sweep};

/// Adds the sweeps of this file.
pub fn add_to(suite: &mut Suite) {
    for case in Case::SOUND {
        suite.add(Killed(case, PersistenceDomain::Flushed));
    }
    suite
        .declare::<CreatePoint>()
        .declare::<DestroyPoint>()
        .declare::<InsertPoint>()
        .declare::<RemovePoint>()
        .declare::<ReplacePoint>()
        .declare::<OpenBucketsPoint>()
        .declare::<AddPagePoint>()
        .declare::<DoublePoint>();
}

/// Returns the sweeps that must fail, each with a part of the expected message.
pub fn broken() -> Vec<(Box<dyn Sweep>, &'static str)> {
    cases::broken([
        (Case::LinksFirst, "the list continues at"),
        (Case::ForgetsSeen, "took_effect: Some(false)"),
        (Case::ForgetsLinked, "took_effect: Some(false)"),
        (Case::DestroysWithoutNote, "has leaked"),
        (Case::ForgetsTheSeal, "there is no list or map at"),
    ])
}

impl cases::Case for Case {
    const ROOM: &'static str = "structures";
    type World = World<Marked>;

    fn pod(world: &Self::World) -> &Pod<Marked> {
        world
    }

    fn bytes(self) -> u64 {
        bytes_for::<Marked>(REGION)
    }

    fn world(self, memory: Marked) -> Self::World {
        Case::pod(self, memory)
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
