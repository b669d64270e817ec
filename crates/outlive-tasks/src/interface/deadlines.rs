//! Detection of workers that do not finish a task, by an observer.
//!
//! This state is not in the pool. For each worker, the observer remembers the task that the worker
//! holds, the tenure (see [`status`](crate::engine::status)), and the time at which it first saw
//! that tenure. The time starts again for a task that is retried, or taken over from a dead worker.
//! The total time of a task with its retries is not limited.

use super::WorkerPool;
use crate::pool::worker::shown;
use crate::{PoolError, Status, Task};
use core::fmt;
use core::time::Duration;
use outlive::membership::{Generations, Instance};
use outlive::memory::Offset;
use std::time::Instant;

/// A worker that has held a task for longer than it should.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Overdue {
    /// The overdue worker.
    pub worker: Instance,
    /// The number of the worker's slot.
    pub slot: u32,
    /// The task with its arguments, as text.
    pub task: String,
    /// The number of earlier attempts of the task.
    pub attempt: u8,
    /// The time for which the observer has seen the worker hold the task.
    pub since: Duration,
}

impl fmt::Display for Overdue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            worker,
            task,
            since,
            ..
        } = self;
        write!(f, "worker {worker} has been in task {task} for {since:.1?}")
    }
}

/// An observer of workers: it finds those that hold a task for longer than a limit.
///
/// ```
/// # use outlive::membership::ProcessOptions;
/// # use outlive::pod::{Pod, PodOptions};
/// # use outlive_tasks::{Deadlines, Options, WorkerPool};
/// # use std::time::Duration;
/// # let path = format!("/dev/shm/outlive-doc-deadlines-{}", std::process::id());
/// # let pod = Pod::create(&path, PodOptions::new().size(32 << 20).ids(16))?;
/// # let process = pod.join(ProcessOptions::on_host(0))?;
/// # let member = process.enter(None, "observer")?;
/// # let heap = member.heap(&pod)?;
/// # let pool = WorkerPool::create(&pod, &heap, "pool", Options::new())?;
/// let mut deadlines = Deadlines::new(Duration::from_secs(5));
/// // Several times within the limit:
/// for overdue in deadlines.look(&pool, pod.tables().generations())? {
///     eprintln!("{overdue}; its host is fenced");
///     let _ = process.fence(overdue.worker);
/// }
/// # WorkerPool::destroy(&pod, &heap, "pool")?;
/// # drop(heap);
/// # drop(member);
/// # process.leave()?;
/// # Pod::destroy(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Deadlines {
    limit: Duration,
    /// The time of the last check.
    looked: Option<Instant>,
    /// The last observation of each slot.
    seen: Vec<Option<Seen>>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    held: Held,
    since: Instant,
    is_told: bool,
}

/// A worker's hold of a task. Two holds are never equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    worker: Instance,
    task: Offset,
    tenure: Status,
}

impl Deadlines {
    /// Returns an observer that has not checked any pool yet.
    pub fn new(limit: Duration) -> Self {
        Self {
            limit,
            looked: None,
            seen: Vec::new(),
        }
    }

    /// Checks all workers of `pool`. Returns those that have held their task for the limit, and
    /// were not returned for it before. The caller reports them, and may request that they are
    /// [fenced](outlive::membership::Process::fence). A fenced worker has died in its task: this
    /// counts for the [crash limit](super::Options::crash_limit), and another worker re-executes
    /// the task.
    ///
    /// The observer must check at least twice within the limit. A longer interval between two
    /// checks counts as half the limit: a suspended machine or a paused container stops the workers
    /// as well.
    ///
    /// # Errors
    /// If the pool is damaged.
    pub fn look(
        &mut self,
        pool: &WorkerPool,
        generations: Generations,
    ) -> Result<Vec<Overdue>, PoolError> {
        let (layout, now) = (pool.layout, Instant::now());
        let last = self.looked.replace(now).unwrap_or(now);
        let missed = (now - last).saturating_sub(self.limit / 2);
        let used = layout.slots.used();
        self.seen.resize(used as usize, None);
        let mut overdue = Vec::new();
        for (slot, seen) in (0..used).zip(&mut self.seen) {
            let view = layout.slots.look(slot)?;
            let owner = view.owner.map(|owner| owner.worker);
            let worker = owner.filter(|worker| !generations.is_gone(*worker));
            // The slot may still refer to a task that is over, whose descriptor another worker
            // uses.
            let running = view
                .running
                .filter(|(_, status)| status.state().is_held() && status.runner() == slot);
            let Some((worker, (task, tenure))) = worker.zip(running) else {
                *seen = None;
                continue;
            };
            let held = Held {
                worker,
                task,
                tenure,
            };
            let known = seen.take().filter(|known| known.held == held);
            let mut known = known.unwrap_or(Seen {
                held,
                since: now,
                is_told: false,
            });
            known.since = now.min(known.since + missed);
            let since = now - known.since;
            if since >= self.limit && !known.is_told {
                known.is_told = true;
                overdue.push(Overdue {
                    worker,
                    slot,
                    task: shown(pool.registry, Task::new(layout.memory, task)),
                    attempt: tenure.attempt(),
                    since,
                });
            }
            *seen = Some(known);
        }
        Ok(overdue)
    }
}
