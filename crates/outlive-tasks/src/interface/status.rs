//! The state of a pool.

use crate::engine::slot::Occupant;
use crate::pool::frontier::Frontier;
use crate::pool::load::{Advice, Load};
use crate::pool::turn;
use crate::store::band::Band;
use crate::store::jobs::Root;
use crate::store::layout::Layout;
use crate::{JobState, PoolError, Status};
use core::ops::RangeInclusive;
use outlive::membership::Instance;
use outlive::pod::Pod;
use outlive::sync::View;

/// The state of a pool.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PoolStatus {
    /// The maximum number of workers.
    pub capacity: u32,
    /// The number of workers that the pool requests.
    pub wanted: u32,
    /// The number of workers that the pool requested at first.
    pub original: u32,
    /// The range of numbers of workers that can be [requested](super::WorkerPool::request): from 1
    /// to the capacity, or the range within which the pool [resizes
    /// itself](super::Options::elastic).
    pub room: RangeInclusive<u32>,
    /// Whether the pool resizes itself.
    pub is_elastic: bool,
    /// The workers, and dead ones that have not been replaced in their slots.
    pub workers: Vec<WorkerStatus>,
    /// The number of ready tasks in all deques.
    pub ready: u64,
    /// The approximate number of jobs.
    pub jobs: u64,
    /// The names of the open jobs.
    pub open: Vec<String>,
    /// The heartbeat that more than half of the workers have reached.
    pub frontier: u64,
    /// The state of the barrier at which idle workers wait.
    pub barrier: View,
}

/// The state of a worker.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WorkerStatus {
    /// The number of the worker's slot.
    pub slot: u32,
    /// The worker's instance.
    pub worker: Instance,
    /// Whether the worker lives.
    pub lives: bool,
    /// Whether the worker is a [guest](super::WorkerPool::work_besides), an additional worker.
    pub is_guest: bool,
    /// The number of tasks in the worker's deque.
    pub queued: u64,
    /// The task that the worker holds, as text, with its status.
    pub running: Option<(String, Status)>,
    /// The worker's number of heartbeats.
    pub heartbeat: u64,
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
            let Some(Occupant { worker, is_guest }) = view.owner else {
                continue;
            };
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
                is_guest,
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
            room: turn::room(layout),
            is_elastic: layout.elastic().is_some(),
            workers,
            ready,
            jobs: layout.jobs.len(),
            open,
            frontier: frontier.get(),
            barrier: layout.barrier.view()?,
        })
    }

    /// Returns the number of live workers.
    pub fn living(&self) -> u32 {
        self.workers.iter().filter(|worker| worker.lives).count() as u32
    }

    /// Returns the number of live [guests](super::WorkerPool::work_besides).
    pub fn guests(&self) -> u32 {
        let guests = { self.workers.iter() }.filter(|worker| worker.lives && worker.is_guest);
        guests.count() as u32
    }

    /// Returns the number of live workers, without guests.
    pub fn own(&self) -> u32 {
        self.living() - self.guests()
    }

    /// Returns the action that a launcher should take, by MODC's two triggers (MODC §3.1).
    pub fn advice(&self, band: Band) -> Advice {
        let count = |lives, is_guest| {
            let workers = self.workers.iter();
            let those = workers.filter(|it| (it.lives, it.is_guest) == (lives, is_guest));
            those.count() as u32
        };
        let living = self.living();
        let load = Load {
            living,
            guests: count(true, true),
            dead: count(false, false),
            ready: self.ready,
            waiting: self.barrier.waiting,
            is_open: !self.open.is_empty(),
        };
        let wanted = self.wanted.min(self.capacity);
        let room = self.capacity.saturating_sub(living);
        if load.has_lost(self.original, band) {
            return Advice::Replace((wanted.saturating_sub(load.own())).min(room));
        }
        load.advice(band, room)
    }
}
