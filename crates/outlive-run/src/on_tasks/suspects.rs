//! Detects workers with frozen heartbeats while others advance (MODC §4), from the driver of a run.
//! They are only recorded for the report: deaths are reported by the kernel or by a fence.

use super::Record;
use outlive::membership::{Generations, Instance};
use outlive_tasks::WorkerPool;
use outlive_tasks::frontier::Watch;

/// The driver's observation of the workers' heartbeats.
pub(super) struct Suspects<'p> {
    record: Record,
    pool: &'p WorkerPool,
    watch: Watch,
    /// The currently suspected workers, each with the heartbeat at which it is frozen.
    now: Vec<(Instance, u64)>,
}

impl<'p> Suspects<'p> {
    pub fn new(record: Record, pool: &'p WorkerPool) -> Self {
        Self {
            record,
            pool,
            watch: Watch::default(),
            now: Vec::new(),
        }
    }

    /// Checks all workers, and records the run's own workers that have become suspected.
    pub fn look(&mut self, generations: Generations) {
        let (frontier, freeze) = self.pool.frontier();
        let frozen = self.watch.look(frontier, generations, freeze);
        let before = core::mem::take(&mut self.now);
        self.now = frozen.iter().map(|it| (it.worker, it.heartbeat)).collect();
        for (worker, _) in self.now.iter().filter(|it| !before.contains(it)) {
            if let Some(number) = self.record.worker_of(worker.id) {
                self.record.suspects(number);
            }
        }
    }
}
