//! Lost caches: every set of lines that may be lost is tried.
//!
//! [`Exploring`] is memory in the write-back domain, whose hosts keep dirty lines in caches that
//! die with them. A scenario over it is a [`Scenario`] as for [scheduled](crate::schedule) memory,
//! run by the same engine: threads interleave within the bounds on preemptions, and a mortal
//! thread's host may die at any moment, also after the thread has ended. Each death leaves every
//! image of the memory that the [rules](CacheRules) allow, which the hooks, the survivors and the
//! check must handle. Between live hosts the memory is sequentially consistent here: orderings are
//! the subject of the scheduled memory.
//!
//! The preparation has reached memory before the threads start. Hooks and check run on a host that
//! does not die; but a hook's store that is not [persisted](outlive_memory::Memory::persist) can be
//! lost by a host that takes its line over.
//!
//! A reader that builds on another host's store persists it first, *and loads it again*: the writer
//! may have died, and its line fallen back, between the load and the write-back.
//!
//! ```
//! use outlive_memory::{Memory, Offset, Ordering::*};
//! use outlive_prove::{explore, schedule::Bounds};
//!
//! const DATA: Offset = Offset::new(0);
//! const FLAG: Offset = Offset::new(64);
//! explore::scenario("publication")
//!     .mortal("writer", |m| {
//!         m.store(DATA, 7u64, Relaxed);
//!         m.persist(DATA, 8); // without it the check can find a flag and no data
//!         m.store(FLAG, 1u64, Release);
//!         m.persist(FLAG, 8);
//!     })
//!     .check(|m, end| {
//!         let published = m.load::<u64>(FLAG, Acquire) == 1;
//!         assert!(!published || m.load::<u64>(DATA, Relaxed) == 7);
//!         assert!(published || end.result(0).is_none(), "what was done is lost");
//!     })
//!     .explore(&Bounds::default())
//!     .assert_proven();
//! ```

pub(crate) mod caches;
mod rules;

use crate::schedule::{Plan, Proving, Scenario, World, memory_of_the_engine};
use caches::Caches;
pub use rules::{CacheRules, Tearing, Transfers, WriteBacks};

/// Memory in the write-back domain, whose hosts' caches die with them.
///
/// The handle stands for the memory of the execution that runs on this operating-system thread;
/// outside the closures of a [`Scenario`] every access panics.
#[derive(Clone, Copy, Debug)]
pub struct Exploring(());

impl Proving for Exploring {
    fn handle() -> Self {
        Self(())
    }

    fn world(plan: &Plan) -> World {
        World::caches(Caches::new(plan.rules, plan.size, &plan.hosts, plan.actors))
    }
}

memory_of_the_engine!(Exploring, WriteBack);

/// Returns a scenario over [`Exploring`] memory.
pub fn scenario<R: Send + 'static>(name: &str) -> Scenario<Exploring, R> {
    Scenario::new(name)
}
