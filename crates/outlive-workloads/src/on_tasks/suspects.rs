//! Whose hearts stand still while those of others go on (MODC §4), as the driver of a run sees it: noted for the report, and no
//! more. Death is what the kernel or a fence tells.

use super::Record;
use outlive::membership::{Generations, Instance};
use outlive_tasks::WorkerPool;
use outlive_tasks::frontier::Watch;

/// The driver's look at the workers' hearts.
pub(super) struct Suspects<'p> {
    record: Record,
    pool: &'p WorkerPool,
    watch: Watch,
    /// Those that are suspected now, each by the heartbeat at which it stands.
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

    /// Looks, and notes the run's own workers that are suspected and were not before.
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
