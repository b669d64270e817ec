//! What the sweeps over a pool have in common: who is in the world, who dies, who goes on, and what must hold in any event.
//!
//! The victim is number 0; 1 and 2 go on, the second if the first dies too; 3 has prepared the memory.

use super::world::{SHAPE, World, bytes};
use crate::PoolError;
use crate::layout::{Hand, Shape};
use core::fmt::Debug;
use outlive_prove::kill::{Crash, Marked, Sweep};

/// What a victim is about in a pool, and what survivors make of it.
pub(super) trait Case: Copy + Debug + Sync {
    /// What the sweeps are called, before the name of the case.
    const WHAT: &'static str;
    /// How many slabs the heap has room for.
    const SLABS: u64 = 52;
    /// Whether two runs from the same memory execute the same instructions.
    const IS_DETERMINISTIC: bool = true;

    /// How the pool is made.
    fn shape(self) -> Shape {
        SHAPE
    }

    /// What was done in the new world before.
    fn prepare(self, world: &World<Marked>);

    /// What the victim does.
    fn operate(self, world: &World<Marked>, hand: Hand<'_, Marked>) -> Result<(), PoolError>;

    /// What is to be seen while nobody knows yet that the victim is dead: by panicking if it is not.
    fn look(self, _world: &World<Marked>, _crash: &Crash) {}

    /// What a survivor does, who knows who is dead.
    fn survive(self, world: &World<Marked>, hand: Hand<'_, Marked>, crash: &Crash);

    /// What must hold then, besides that the world is sound.
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
        done.expect("it can be done");
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
