//! The options of a new pool: its capacity and its limits.

use crate::Settings;
use crate::store::band::{Band, Elastic};
use crate::store::layout::Shape;
use core::ops::RangeInclusive;
use core::time::Duration;

/// The options of a new pool.
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
    /// Returns the defaults: 64 workers at most, all of them requested, and 64 open jobs at a time.
    /// A task that fails is tried three times. A task in which five workers died is poisoned.
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

    /// Sets the maximum number of workers at a time, at most 4094.
    pub fn capacity(mut self, workers: u32) -> Self {
        self.shape.slots.capacity = workers;
        self
    }

    /// Sets the number of workers that the pool first requests. Others leave again, or are on
    /// standby.
    pub fn workers(mut self, workers: u32) -> Self {
        self.shape.original = workers;
        self
    }

    /// Makes the pool resize itself within `workers` (MODC §3.1). It first requests the number set
    /// by [`workers`](Self::workers) before, or the minimum. Its workers request more workers if
    /// each has more ready tasks than `band` allows, and fewer if each has fewer and some wait.
    /// Workers that [stand by](super::WorkerPool::stand_by) come and go accordingly. Dead workers
    /// are not replaced up to the share in `band`.
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

    /// Sets the maximum number of open jobs at a time. Further jobs wait.
    pub fn open_jobs(mut self, jobs: u32) -> Self {
        self.shape.roots = jobs.clamp(1, 1 << 16);
        self
    }

    /// Sets the number of attempts of a task that fails, before its job fails.
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

    /// Sets the time after which a worker without heartbeats is [suspected](super::PoolStatus),
    /// while other workers have heartbeats.
    pub fn freeze(mut self, freeze: Duration) -> Self {
        self.shape.freeze = freeze;
        self
    }
}
