//! How a pool is made: its room, and what it puts up with.

use super::{Band, Elastic};
use crate::Settings;
use crate::layout::Shape;
use core::ops::RangeInclusive;
use core::time::Duration;

/// How a pool is made.
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use]
pub struct Options {
    pub(super) shape: Shape,
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

impl Options {
    /// The defaults: a capacity of 64 workers, all of them requested, and of 64 jobs that are open
    /// at a time; a task that fails is tried three times, and one in which five workers died is
    /// poisoned.
    pub fn new() -> Self {
        Self {
            shape: Shape {
                slots: Settings::default(),
                roots: 64,
                tries: 3,
                crash_limit: 5,
                freeze: Duration::from_secs(10),
                original: u32::MAX,
                elastic: None,
                small: false,
            },
        }
    }

    /// How many workers there can be at a time, at most 4094.
    pub fn capacity(mut self, workers: u32) -> Self {
        self.shape.slots.capacity = workers;
        self
    }

    /// How many workers the pool wants to begin with: others that come leave again, or stand by.
    pub fn workers(mut self, workers: u32) -> Self {
        self.shape.original = workers;
        self
    }

    /// The pool resizes itself while it works, within `workers`, which begins with as many as [`workers`](Self::workers) said
    /// before, or the fewest (MODC §3.1). Its workers see to it: if they have more ready tasks each than `band` says, it wants
    /// more of them, and if they have fewer and some wait, fewer. Whoever [stands by](super::WorkerPool::stand_by) comes and
    /// goes accordingly. Of the dead, as many as `band` says are not replaced.
    ///
    /// ```
    /// use outlive_tasks::{Band, Options};
    ///
    /// let band = Band { fewest: 0.5, ..Band::default() };
    /// let options = Options::new().elastic(2..=8, band);
    /// ```
    pub fn elastic(mut self, workers: RangeInclusive<u32>, band: Band) -> Self {
        let least = (*workers.start()).max(1);
        let most = (*workers.end()).max(least);
        self.shape.original = match self.shape.original {
            u32::MAX => least,
            said => said.clamp(least, most),
        };
        self.shape.elastic = Some(Elastic { least, most, band });
        self
    }

    /// How many jobs can be open at a time; others wait.
    pub fn open_jobs(mut self, jobs: u32) -> Self {
        self.shape.roots = jobs.clamp(1, 1 << 16);
        self
    }

    /// How often a task that fails is tried before its job fails.
    pub fn tries(mut self, tries: u32) -> Self {
        self.shape.tries = tries.max(1);
        self
    }

    /// Sets the number of workers that may die in one task: 1 to 200, 5 by default. After them the
    /// task is poisoned: it is not run again, and its job fails with the task, its arguments, the
    /// dead workers, and how their processes ended, if a
    /// [`ProcessSupervisor`](outlive::supervise::ProcessSupervisor) has recorded it. Other jobs
    /// continue.
    ///
    /// Attempts that failed, and workers that [could not do it](crate::TaskError::unable), do not
    /// count. The pool remembers its last deaths only (four for each worker of its capacity, and
    /// enough for the limit; at most 256), so a task may kill more workers while many others die in
    /// other tasks.
    ///
    /// ```
    /// use outlive_tasks::Options;
    ///
    /// let options = Options::new().crash_limit(2);
    /// ```
    pub fn crash_limit(mut self, workers: u32) -> Self {
        self.shape.crash_limit = workers.clamp(1, 200);
        self
    }

    /// How long a worker's heart may stand still while those of others go on, before it is [suspected](super::PoolStatus).
    pub fn freeze(mut self, freeze: Duration) -> Self {
        self.shape.freeze = freeze;
        self
    }
}
