//! How a pool stands.

use super::load::{Advice, Band, Load};
use crate::frontier::Frontier;
use crate::jobs::Root;
use crate::layout::Layout;
use crate::slot::Occupant;
use crate::{JobState, PoolError, Status};
use core::ops::RangeInclusive;
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
    /// How many it can be [asked](super::WorkerPool::request) to have: as many as it has room for, or those within which it
    /// [resizes itself](super::Options::elastic).
    pub room: RangeInclusive<u32>,
    /// Whether it resizes itself.
    pub is_elastic: bool,
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
    /// Whether it works [besides](super::WorkerPool::work_besides) those whom the pool wants.
    pub is_guest: bool,
    /// How many tasks its deque has.
    pub queued: u64,
    /// What it is about.
    pub running: Option<(String, Status)>,
    /// Its heartbeat.
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
            room: super::trigger::room(layout),
            is_elastic: layout.elastic().is_some(),
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

    /// How many of them work [besides](super::WorkerPool::work_besides) those whom the pool wants.
    pub fn guests(&self) -> u32 {
        let guests = { self.workers.iter() }.filter(|worker| worker.lives && worker.is_guest);
        guests.count() as u32
    }

    /// How many live of those whom the pool wants: all but the guests.
    pub fn own(&self) -> u32 {
        self.living() - self.guests()
    }

    /// What a launcher should do: the paper's two triggers.
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
