//! Which attempts count: one word for each unit, written once.
//!
//! After a worker's death another worker may re-execute its task, whether the worker died right
//! before its work counted or right after. So the work on a unit counts by one compare-and-swap of
//! the unit's *result*, from 0 to the name of the attempt that did it
//! ([`Place::result`](crate::table::Place)), and by nothing else. The task's own end says only that
//! the task must not run again.
//!
//! | death | left behind | the next holder of the task |
//! | --- | --- | --- |
//! | before the compare-and-swap | an attempt that no result names | makes another, which counts |
//! | after it, before the task is done | a result | finds it, and does nothing ([`once`](Results::once)) |
//! | after the task is done | a result | the task has no next holder |
//!
//! # Why every unit counts exactly once
//!
//! *At most once*: a result changes once. *At least once*: the phase's job is complete when all its
//! tasks are done, and a task is done after its unit has a result. *By one at a time*: a running
//! task has one holder. A worker takes the task over only when the holder's death is proven and its
//! log is settled ([`outlive_tasks::engine`]). So an attempt uses plain stores, and the worker that
//! takes over sees all of them, and also the result, which it checks first.
//!
//! *Orderings.* The compare-and-swap releases the work on the unit; so does the end of the task. A
//! thread that has seen the job's end has acquired all results. A worker that finds a result while
//! the phase is running has acquired the stores of that attempt.

use outlive::memory::{Memory, Native, Offset, Ordering};

outlive::memory::crash_points! {
    /// The crash points of a commit.
    pub enum CommitPoint for "mapreduce.commit" {
        /// Everything is written; nothing counts.
        Ready,
        /// The attempt counts.
        Committed,
    }
}

/// The results of units; a result is 0 until its unit is done.
#[derive(Clone, Copy, Debug)]
pub struct Results<M: Memory = Native> {
    memory: M,
    at: Offset,
    count: u64,
}

/// The error if another attempt has committed a unit that only this worker could commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unit {unit} was committed by another attempt, though its task has one holder; the segment is damaged: run `outlive pod check`"
)]
pub struct Overtaken {
    /// The unit that the other attempt has committed.
    pub unit: u64,
}

impl<M: Memory> Results<M> {
    /// Creates the results of `count` units at `at`, which must be zeroed memory at first.
    pub fn new(memory: M, at: Offset, count: u64) -> Self {
        Self { memory, at, count }
    }

    /// Returns the size in bytes of the results of `count` units.
    pub const fn bytes(count: u64) -> u64 {
        count * 8
    }

    /// Returns the number of units.
    pub fn count(self) -> u64 {
        self.count
    }

    /// Returns the result of `unit`; 0 if the unit is not done or does not exist.
    #[inline]
    pub fn result(self, unit: u64) -> u64 {
        if unit >= self.count {
            return 0;
        }
        self.memory.load(self.at + unit * 8, Ordering::Acquire)
    }

    /// Returns the number of units that are done.
    pub fn done(self) -> u64 {
        let done = |unit: &u64| self.result(*unit) != 0;
        (0..self.count).filter(done).count() as u64
    }

    /// Executes `unit`, unless it is done: calls `make`, and stores the result that `make` returns,
    /// which is not 0. The caller must hold the unit's task. Returns whether this call executed the
    /// unit.
    ///
    /// # Errors
    /// The errors of `make`; [`Overtaken`] if the caller was not the only one to work on the unit.
    ///
    /// # Crash
    /// The effect of `make` counts wholly or not at all. The task's next holder calls this again.
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

    /// Marks `unit` as done with `result`. Returns whether it was not done before.
    #[doc(hidden)]
    pub fn commit(self, unit: u64, result: u64) -> bool {
        assert!(result != 0 && unit < self.count);
        let memory = self.memory;
        memory.crash_point(CommitPoint::Ready);
        // Release: all work on the unit. Relaxed on failure: another attempt's result is not used.
        let order = (Ordering::Release, Ordering::Relaxed);
        let done = memory.compare_exchange(self.at + unit * 8, 0, result, order.0, order.1);
        memory.crash_point(CommitPoint::Committed);
        done.is_ok()
    }
}
