//! The common frame of the sweeps over a pool: its members, the victim, the survivors, and the
//! conditions that always hold.
//!
//! The victim is number 0; 1 and 2 continue, the second if the first dies too; 3 has prepared the
//! memory.

use super::world::{SHAPE, World, bytes};
use core::fmt::Debug;
use outlive_prove::kill::{Crash, Marked, Sweep};
use outlive_tasks::PoolError;
use outlive_tasks::internals::{Hand, Shape};

/// An operation of a victim in a pool, and the survivors' part in it.
pub(super) trait Case: Copy + Debug + Sync {
    /// The prefix of the sweeps' names.
    const WHAT: &'static str;
    /// The number of slabs of the heap.
    const SLABS: u64 = 52;
    /// Whether two runs from the same memory execute the same instructions.
    const IS_DETERMINISTIC: bool = true;

    /// Returns the shape of the pool.
    fn shape(self) -> Shape {
        SHAPE
    }

    /// Prepares the new world.
    fn prepare(self, world: &World<Marked>);

    /// Runs the victim's operation.
    fn operate(self, world: &World<Marked>, hand: Hand<'_, Marked>) -> Result<(), PoolError>;

    /// Checks the state while the victim's death is not known yet; panics if it is wrong.
    fn look(self, _world: &World<Marked>, _crash: &Crash) {}

    /// Acts as a survivor, after the dead members have been declared dead.
    fn survive(self, world: &World<Marked>, hand: Hand<'_, Marked>, crash: &Crash);

    /// Checks the final state. That the world is sound is checked in any case.
    fn check(
        self,
        world: &World<Marked>,
        hand: Hand<'_, Marked>,
        crash: &Crash,
    ) -> Result<(), String>;
}

/// The sweep of a case.
pub(super) struct OfPool<C>(pub C);

impl<C: Case> Sweep for OfPool<C> {
    fn name(&self) -> String {
        format!("{} {:?}", C::WHAT, self.0)
    }

    fn size(&self) -> u64 {
        bytes(C::SLABS)
    }

    fn is_deterministic(&self) -> bool {
        C::IS_DETERMINISTIC
    }

    fn prepare(&self, memory: Marked) {
        self.0
            .prepare(&World::create_warm(memory, C::SLABS, &self.0.shape()));
    }

    fn operate(&self, memory: Marked) {
        let world = World::open(memory);
        let victim = world.act_as(0);
        let local = world.local(&victim);
        let done = self.0.operate(&world, world.hand(&local));
        done.expect("the operation succeeds");
    }

    fn recover(&self, memory: Marked, crash: &Crash) {
        let world = World::open(memory);
        if world.status(0).may_write() {
            self.0.look(&world, crash);
        }
        for id in 0..=crash.recoverers_lost {
            world.die(id);
        }
        let survivor = world.act_as(1 + crash.recoverers_lost);
        let local = world.local(&survivor);
        self.0.survive(&world, world.hand(&local), crash);
        world.recoverers.recover_all(&survivor).unwrap();
    }

    fn check(&self, memory: Marked, crash: &Crash) -> Result<(), String> {
        let world = World::open(memory);
        let survivor = world.act_as(1 + crash.recoverers_lost);
        let local = world.local(&survivor);
        self.0.check(&world, world.hand(&local), crash)?;
        world.demand_sound(&local)
    }
}
