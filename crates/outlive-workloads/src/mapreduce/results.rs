//! What decides which attempts count: a word for each unit, written once.
//!
//! A task may be begun again, by another worker, after whoever ran it has died: right before what it did counts, or right
//! after. So what a unit's task does counts by one compare-and-swap, of the unit's *result*, from 0 to the name of the attempt
//! that made it ([`Place::result`](crate::table::Place)), and by nothing else. The task's own end says only that nobody is to run
//! it again.
//!
//! | death | what is left | whoever has the task next |
//! | --- | --- | --- |
//! | before the compare-and-swap | an attempt that no result names | makes another, which counts |
//! | after it, before the task is done | a result | finds it, and does nothing ([`once`](Results::once)) |
//! | after the task is done | a result | nobody has it |
//!
//! # Why every unit counts exactly once
//!
//! *At most once*: a result moves once. *At least once*: the phase's job is complete when all its tasks are done, and a task
//! is done after its unit has a result. *By one at a time*: a task that runs has one holder; who takes it over does so when the
//! holder's death is proven and its log is settled ([`outlive_tasks::engine`]). So what an attempt writes on the way it
//! writes with plain stores, and who takes over sees all of it, the result too, which it looks at first.
//!
//! *Orderings.* The compare-and-swap releases what was done for the unit; so does the end of the task. Whoever has seen the
//! job's end has acquired all results, and one who finds a result while the phase goes on has acquired what that attempt did.

use outlive::memory::{Memory, Native, Offset, Ordering};

outlive::memory::crash_points! {
    /// Where a commit may be cut short.
    pub enum CommitPoint for "mapreduce.commit" {
        /// All is written, nothing counts.
        Ready,
        /// It counts.
        Committed,
    }
}

/// The results of units, each of which is 0 until the unit is done.
#[derive(Clone, Copy, Debug)]
pub struct Results<M: Memory = Native> {
    memory: M,
    at: Offset,
    count: u64,
}

/// A unit that only this worker could commit is committed by another attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unit {unit} was committed by another attempt, though its task has one holder; the segment is damaged: run `outlive pod check`"
)]
pub struct Overtaken {
    /// The unit.
    pub unit: u64,
}

impl<M: Memory> Results<M> {
    /// Those of `count` units at `at`: zeroed memory at first.
    pub fn new(memory: M, at: Offset, count: u64) -> Self {
        Self { memory, at, count }
    }

    /// How many bytes those of `count` units take.
    pub const fn bytes(count: u64) -> u64 {
        count * 8
    }

    /// How many units there are.
    pub fn count(self) -> u64 {
        self.count
    }

    /// The result of `unit`; 0 while it is not done, and if there is no such unit.
    #[inline]
    pub fn result(self, unit: u64) -> u64 {
        if unit >= self.count {
            return 0;
        }
        self.memory.load(self.at + unit * 8, Ordering::Acquire)
    }

    /// How many units are done.
    pub fn done(self) -> u64 {
        let done = |unit: &u64| self.result(*unit) != 0;
        (0..self.count).filter(done).count() as u64
    }

    /// Does `unit`, unless it is done: what `make` did counts with the result that it returns, which is not 0. For who
    /// holds the unit's task. Returns whether it was this that did it.
    ///
    /// # Errors
    /// What `make` says; or [`Overtaken`], if the caller was not the only one.
    ///
    /// # Crash
    /// What `make` did counts wholly or not at all. Whoever has the task next calls this again.
    pub fn once<E: From<Overtaken>>(
        self,
        unit: u64,
        make: impl FnOnce() -> Result<u64, E>,
    ) -> Result<bool, E> {
        if self.result(unit) != 0 {
            return Ok(false);
        }
        let result = make()?;
        if self.commit(unit, result) {
            return Ok(true);
        }
        Err(Overtaken { unit }.into())
    }

    /// Says that `unit` is done, with `result`. Returns whether it was not before.
    pub(crate) fn commit(self, unit: u64, result: u64) -> bool {
        assert!(result != 0 && unit < self.count);
        let memory = self.memory;
        memory.crash_point(CommitPoint::Ready);
        // Release: all that was done for the unit. Relaxed on failure: nothing is done with another's result.
        let order = (Ordering::Release, Ordering::Relaxed);
        let done = memory.compare_exchange(self.at + unit * 8, 0, result, order.0, order.1);
        memory.crash_point(CommitPoint::Committed);
        done.is_ok()
    }
}
