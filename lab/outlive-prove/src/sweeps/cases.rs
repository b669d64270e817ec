//! The frame of a sweep over a fixture's cases: number 0 is the victim, 1 and 2 recover, and 3 is whoever died
//! before, or looks.

use crate::fixtures::pod::Pod;
use crate::kill::{Crash, Marked, Sweep};
use core::fmt::Debug;
use outlive::membership::Member;
use outlive_memory::PersistenceDomain;

/// An operation that is cut short, as a fixture has it.
pub(super) trait Case: Copy + Debug + Sync + 'static {
    /// What the names of the sweeps begin with.
    const ROOM: &'static str;
    /// The pod, and what stands in it.
    type World;

    /// The pod.
    fn pod(world: &Self::World) -> &Pod<Marked>;
    /// How large the memory is.
    fn bytes(self) -> u64;
    /// The pod over that memory, with the handlers that the case wants.
    fn world(self, memory: Marked) -> Self::World;
    /// Everything up to the operation.
    fn prepare(self, memory: Marked);
    /// The operation.
    fn operate(self, world: &Self::World, victim: &Member<Marked>);
    /// What must hold when everybody who died has been recovered.
    fn check(self, world: &Self::World, returned: bool) -> Result<(), String>;

    /// What the survivor of that number does.
    fn recover(self, world: &Self::World, by: u32) {
        let pod = Self::pod(world);
        pod.recoverers.recover_all(&pod.act_as(by)).unwrap();
    }
}

/// The sweep of a case.
pub(super) struct Killed<C>(pub(super) C, pub(super) PersistenceDomain);

/// The sweeps of broken cases, each with a part of what must be said.
pub(super) fn broken<C: Case, const N: usize>(
    cases: [(C, &'static str); N],
) -> Vec<(Box<dyn Sweep>, &'static str)> {
    let killed = |case| Box::new(Killed(case, PersistenceDomain::Flushed));
    cases
        .map(|(case, message)| -> (Box<dyn Sweep>, _) { (killed(case), message) })
        .into()
}

impl<C: Case> Sweep for Killed<C> {
    fn name(&self) -> String {
        format!("{} {:?}, {}", C::ROOM, self.0, self.1)
    }

    fn size(&self) -> u64 {
        self.0.bytes()
    }

    fn domain(&self) -> PersistenceDomain {
        self.1
    }

    fn prepare(&self, memory: Marked) {
        self.0.prepare(memory);
    }

    fn operate(&self, memory: Marked) {
        let world = self.0.world(memory);
        self.0.operate(&world, &C::pod(&world).act_as(0));
    }

    fn recover(&self, memory: Marked, crash: &Crash) {
        let world = self.0.world(memory);
        let pod = C::pod(&world);
        for id in 0..=crash.recoverers_lost {
            if pod.status(id).may_write() {
                pod.declare_dead(id);
            }
        }
        self.0.recover(&world, 1 + crash.recoverers_lost);
    }

    fn check(&self, memory: Marked, crash: &Crash) -> Result<(), String> {
        self.0.check(&self.0.world(memory), crash.returned)
    }
}
