//! Workers that do not come out of a task, as an observer sees them.
//!
//! Nothing of it stands in the pool: whoever looks remembers by which tenure (see [`status`](crate::status)) each worker
//! holds which task, and since when it has seen that. A task that is tried again, or taken over from a dead worker, has
//! its whole time once more; what a task takes in all, with its retries, is not limited.

use super::WorkerPool;
use crate::worker::shown;
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
    /// Who it is.
    pub worker: Instance,
    /// The number of its slot.
    pub slot: u32,
    /// The task with its arguments, for people.
    pub task: String,
    /// How often the task was begun before.
    pub attempt: u8,
    /// For how long the observer has seen it in the worker's hands.
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

/// One observer's notes of who is in which task, and since when: for a limit to the time that a worker may take for one.
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
    /// The time of the last look.
    looked: Option<Instant>,
    /// For each slot what was seen there last.
    seen: Vec<Option<Seen>>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    held: Held,
    since: Instant,
    is_told: bool,
}

/// A worker's hold of a task: no two are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    worker: Instance,
    task: Offset,
    tenure: Status,
}

impl Deadlines {
    /// Of an observer who has seen nothing yet.
    pub fn new(limit: Duration) -> Self {
        Self {
            limit,
            looked: None,
            seen: Vec::new(),
        }
    }

    /// Looks at all workers of `pool`. Returns those that have held their task for the limit, and
    /// were not returned for it before: to be reported, and
    /// [fenced](outlive::membership::Process::fence) if that is wanted. A worker that is fenced has died in its task: it counts
    /// for the [crash limit](super::Options::crash_limit), and another one does the task again.
    ///
    /// The observer must look at least twice within the limit. A longer interval between two looks counts
    /// as half the limit: a suspended machine or a paused container stops the workers as well.
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
            // The note of a task that is over may lead to another worker's.
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
