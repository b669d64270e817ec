//! The frame of a sweep over a fixture's cases: 0 is the victim, 1 and 2 recover, 3 died or
//! observes.

use crate::pod::Pod;
use core::fmt::Debug;
use outlive::membership::Member;
use outlive_memory::PersistenceDomain;
use outlive_prove::kill::{Crash, Marked, Sweep};

/// An operation of a fixture that is cut short.
pub(super) trait Case: Copy + Debug + Sync + 'static {
    /// The prefix of the sweeps' names.
    const ROOM: &'static str;
    /// The pod, and the objects in it.
    type World;

    fn pod(world: &Self::World) -> &Pod<Marked>;
    /// The size of the memory, in bytes.
    fn bytes(self) -> u64;
    /// Opens the pod over that memory, with the recovery handlers that the case needs.
    fn world(self, memory: Marked) -> Self::World;
    /// Does everything that precedes the operation.
    fn prepare(self, memory: Marked);
    /// Runs the operation.
    fn operate(self, world: &Self::World, victim: &Member<Marked>);
    /// Checks the pod after all dead members have been recovered. `returned` says whether the
    /// operation had returned before its thread died.
    fn check(self, world: &Self::World, returned: bool) -> Result<(), String>;

    /// Recovers dead members as survivor `by`.
    fn recover(self, world: &Self::World, by: u32) {
        let pod = Self::pod(world);
        pod.recoverers.recover_all(&pod.act_as(by)).unwrap();
    }
}

/// Declares the cases of a fixture: those that must pass, which are listed in `SOUND`, and those
/// with a deliberate fault, which a sweep must find.
#[macro_export]
macro_rules! cases {
    (
        $(#[$doc:meta])*
        $vis:vis enum $name:ident { $($(#[$sound_doc:meta])* $sound:ident,)* }
        broken { $($(#[$broken_doc:meta])* $broken:ident,)* }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $vis enum $name {
            $($(#[$sound_doc])* $sound,)*
            $($(#[$broken_doc])* $broken,)*
        }

        impl $name {
            /// The cases that must pass.
            $vis const SOUND: [Self; [$(stringify!($sound)),*].len()] = [$(Self::$sound),*];
        }
    };
}

/// The sweep of a case.
pub(super) struct Killed<C>(pub(super) C, pub(super) PersistenceDomain);

/// Returns the sweeps of broken cases, each with a part of the expected message.
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
