//! Every interleaving at small sizes, with deaths.
//!
//! A [`Scenario`] defines the actions of two to four threads over a memory of a few KiB, which of
//! them may die, the fabric manager's reaction to a death, and the conditions that must hold at the
//! end. [`Scenario::explore`] tries every execution within [`Bounds`]: threads interleave at every
//! access, a load reads any value that release and acquire allow it to (the engine's model is in
//! `engine/views.rs`), and any access of a mortal thread may be its last. [`Scenario::sample`]
//! draws executions at random where there are too many. A failing execution comes with a trace and
//! with a schedule that [`Scenario::replay`] runs again.
//!
//! A waiting loop must call [`spin_hint`](outlive_memory::Memory::spin_hint): its thread then runs
//! again when one of the words that it read since the last hint has a new value, and sees that
//! value. If no thread can run, that is a failure.

mod bounds;
pub(crate) mod coverage;
pub(crate) mod engine;
mod ghost;
pub(crate) mod handle;
mod report;
mod scenario;
pub(crate) mod trace;

pub use bounds::Bounds;
pub use coverage::Coverage;
pub(crate) use engine::capture_panic;
pub use ghost::Ghost;
pub(crate) use handle::memory_of_the_engine;
pub use handle::{Plan, Proving, Scheduled, World};
pub use report::{Failure, ScheduleReport};
pub use scenario::{End, Scenario};

/// Returns a scenario over [`Scheduled`] memory.
pub fn scenario<R: Send + 'static>(name: &str) -> Scenario<Scheduled, R> {
    Scenario::new(name)
}
