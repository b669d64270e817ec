//! How a pool stands, and what its launcher should make of that.

use crate::frontier::Frontier;
use crate::jobs::Root;
use crate::layout::Layout;
use crate::{JobState, PoolError, Status};
use outlive::membership::Instance;
use outlive::pod::Pod;
use outlive::sync::View;

/// How a pool stands.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PoolStatus {
    /// How many workers it has room for.
    pub capacity: u32,
    /// How many it wants.
    pub wanted: u32,
    /// How many it wanted to begin with.
    pub original: u32,
    /// Its workers, and those that died and whose places nobody has taken.
    pub workers: Vec<WorkerStatus>,
    /// How many tasks are ready in all deques.
    pub ready: u64,
    /// How many jobs there are, about.
    pub jobs: u64,
    /// The jobs that are open.
    pub open: Vec<String>,
    /// How far more than half of the workers have come.
    pub frontier: u64,
    /// The barrier.
    pub barrier: View,
}

/// How a worker stands.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WorkerStatus {
    /// The number of its slot.
    pub slot: u32,
    /// Who it is.
    pub worker: Instance,
    /// Whether it lives.
    pub lives: bool,
    /// How many tasks its deque has.
    pub queued: u64,
    /// What it is about.
    pub running: Option<(String, Status)>,
    /// Its heartbeat.
    pub heartbeat: u64,
}

/// When a pool should be resized by itself (MODC §4).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Band {
    /// Which part of the original workers may fail, from 0 to 1.
    pub failed: f64,
    /// How few tasks may be ready for each worker.
    pub fewest: f64,
    /// How many may.
    pub most: f64,
}

impl Default for Band {
    /// A quarter of the workers may fail; 64 tasks may be ready for each, and none need be.
    fn default() -> Self {
        Self {
            failed: 0.25,
            fewest: 0.0,
            most: 64.0,
        }
    }
}

/// What a launcher should do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Nothing.
    Stay,
    /// So many of the original workers have failed that as many should be started.
    Replace(u32),
    /// Each worker has more to do than it should: start so many.
    Grow(u32),
    /// There is so little to do that so many can go: [`WorkerPool::resize`](super::WorkerPool::resize).
    Shrink(u32),
}

impl PoolStatus {
    pub(super) fn of(
        layout: Layout,
        pod: &Pod,
        name: impl Fn(crate::Task) -> String,
    ) -> Result<Self, PoolError> {
        let generations = pod.tables().generations();
        let mut workers = Vec::new();
        let mut ready = 0;
        for number in 0..layout.slots.used() {
            let view = layout.slots.look(number)?;
            ready += view.queued;
            let Some(worker) = view.owner else { continue };
            let lives = !generations.is_gone(worker);
            let running = view.running.filter(|(_, status)| status.state().is_held());
            let running = running.map(|(at, status)| {
                let task = crate::Task::new(layout.memory, at);
                (name(task), status)
            });
            workers.push(WorkerStatus {
                slot: number,
                worker,
                lives,
                queued: view.queued,
                running,
                heartbeat: view.heartbeat,
            });
        }
        let mut open = Vec::new();
        for number in 0..layout.roots {
            if let Some(job) = Root::of(layout, number).job()
                && job.state() == JobState::Open
            {
                open.push(String::from_utf8_lossy(&job.name()).into_owned());
            }
        }
        let frontier = Frontier::new(layout.memory, layout.frontier_at(), layout.slots);
        Ok(Self {
            capacity: layout.slots.settings().capacity,
            wanted: layout.wanted(),
            original: layout.original(),
            workers,
            ready,
            jobs: layout.jobs.len(),
            open,
            frontier: frontier.get(),
            barrier: layout.barrier.view()?,
        })
    }

    /// How many workers live.
    pub fn living(&self) -> u32 {
        self.workers.iter().filter(|worker| worker.lives).count() as u32
    }

    /// What a launcher should do: the paper's two triggers.
    pub fn advice(&self, band: Band) -> Advice {
        let (living, room) = (self.living(), self.capacity.saturating_sub(self.living()));
        let wanted = self.wanted.min(self.capacity);
        if self.original != u32::MAX {
            let original = f64::from(self.original);
            if f64::from(living) < original * (1.0 - band.failed) {
                return Advice::Replace((wanted.saturating_sub(living)).min(room));
            }
        }
        if living == 0 {
            return Advice::Stay;
        }
        let each = self.ready as f64 / f64::from(living);
        if each > band.most && room > 0 {
            return Advice::Grow(living.min(room));
        }
        let waiting = self.barrier.waiting.min(living.saturating_sub(1));
        if each < band.fewest && waiting > 0 && !self.open.is_empty() {
            return Advice::Shrink(waiting);
        }
        Advice::Stay
    }
}
