//! The worker pools of a pod, as `outlive pod status` and `outlive pod watch` show them, and the
//! choice of one of them.

use crate::table::Table;
use outlive::pod::Pod;
use outlive_tasks::{PoolError, PoolStatus, WorkerPool};
use serde::Serialize;
use std::fmt;
use std::path::{Path, PathBuf};

/// The reason why no pool of a pod can be chosen.
#[derive(Debug)]
pub enum NoPool {
    /// The names cannot be read.
    Unreadable(PoolError),
    /// The pod at this path has no pool.
    None(PathBuf),
    /// The pod has no pool with this name, but these.
    Unknown(PathBuf, String, Vec<String>),
    /// The pod has these pools, and no name was given.
    Several(PathBuf, Vec<String>),
}

impl fmt::Display for NoPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(error) => error.fmt(f),
            Self::None(pod) => write!(f, "{} has no pool of workers", pod.display()),
            Self::Unknown(pod, name, there) => write!(
                f,
                "{} has no pool `{name}`; it has {}",
                pod.display(),
                match there.is_empty() {
                    true => "none".into(),
                    false => there.join(", "),
                }
            ),
            Self::Several(pod, there) => write!(
                f,
                "{} has several pools; choose one with --pool: {}",
                pod.display(),
                there.join(", ")
            ),
        }
    }
}

/// Returns the name of the chosen pool of `pod`, which is at `path`: `name`, or that of the only
/// pool.
pub fn choose(pod: &Pod, path: &Path, name: Option<&str>) -> Result<String, NoPool> {
    let mut there = WorkerPool::names(pod).map_err(NoPool::Unreadable)?;
    match name {
        Some(name) if there.iter().any(|it| it == name) => Ok(name.into()),
        Some(name) => Err(NoPool::Unknown(path.into(), name.into(), there)),
        None if there.len() > 1 => Err(NoPool::Several(path.into(), there)),
        None => there.pop().ok_or_else(|| NoPool::None(path.into())),
    }
}

/// A worker pool, for JSON.
#[derive(Serialize)]
pub struct Pool {
    name: String,
    /// The error, if the other fields could not be read.
    damaged: Option<String>,
    capacity: u32,
    wanted: u32,
    living: u32,
    /// The number of additional workers among the living, which do not count as wanted.
    guests: u32,
    /// The number of ready tasks in all deques.
    ready: u64,
    jobs: u64,
    /// The jobs that are not over.
    open: Vec<String>,
    /// The heartbeat that more than half of the workers have reached.
    frontier: u64,
    /// The number of workers that wait at the barrier.
    waiting: u32,
    workers: Vec<Worker>,
}

#[derive(Serialize)]
struct Worker {
    slot: u32,
    /// The instance, as "id.generation".
    instance: String,
    lives: bool,
    /// Whether it is additional to the workers that the pool wants.
    is_guest: bool,
    queued: u64,
    /// The function of its current task.
    task: Option<String>,
    /// The number of heartbeats that it is behind the frontier.
    behind: u64,
}

impl Pool {
    /// Returns the pools of `pod`.
    pub fn all(pod: &Pod) -> Result<Vec<Self>, PoolError> {
        if pod.heap().is_none() {
            return Ok(Vec::new());
        }
        let names = WorkerPool::names(pod)?;
        Ok(names.into_iter().map(|name| Self::of(pod, name)).collect())
    }

    fn of(pod: &Pod, name: String) -> Self {
        match WorkerPool::inspect(pod, &name) {
            Ok(status) => Self::new(name, &status),
            Err(error) => Self {
                name,
                damaged: Some(error.to_string()),
                capacity: 0,
                wanted: 0,
                living: 0,
                guests: 0,
                ready: 0,
                jobs: 0,
                open: Vec::new(),
                frontier: 0,
                waiting: 0,
                workers: Vec::new(),
            },
        }
    }

    fn new(name: String, status: &PoolStatus) -> Self {
        let workers = status.workers.iter().map(|worker| Worker {
            slot: worker.slot,
            instance: worker.worker.to_string(),
            lives: worker.lives,
            is_guest: worker.is_guest,
            queued: worker.queued,
            task: { worker.running.as_ref() }.map(|(task, _)| task.trim_matches('`').to_owned()),
            behind: status.frontier.saturating_sub(worker.heartbeat),
        });
        Self {
            name,
            damaged: None,
            capacity: status.capacity,
            // A pool that wants all workers that come has a number above its capacity.
            wanted: status.wanted.min(status.capacity),
            living: status.living(),
            guests: status.guests(),
            ready: status.ready,
            jobs: status.jobs,
            open: status.open.clone(),
            frontier: status.frontier,
            waiting: status.barrier.waiting,
            workers: workers.collect(),
        }
    }

    /// Returns the description of the pool in lines.
    pub fn lines(&self) -> Vec<String> {
        if let Some(why) = &self.damaged {
            return vec![format!("pool {}: {why}", self.name)];
        }
        let open = match self.open.as_slice() {
            [] => "none open".into(),
            open => format!("open: {}", open.join(", ")),
        };
        let mut lines = vec![format!(
            "pool {}: {} workers{}, {} wanted, at most {}; {} waiting; {} tasks ready; {} jobs, \
             {open}",
            self.name,
            self.living,
            match self.guests {
                0 => String::new(),
                1 => " (1 of them additional)".into(),
                guests => format!(" ({guests} of them additional)"),
            },
            self.wanted,
            self.capacity,
            self.waiting,
            self.ready,
            self.jobs,
        )];
        if self.workers.is_empty() {
            return lines;
        }
        let mut table = Table::new(["WORKER", "INSTANCE", "", "QUEUED", "BEHIND", "TASK"]);
        for worker in &self.workers {
            table.row([
                worker.slot.to_string(),
                worker.instance.clone(),
                match (worker.lives, worker.is_guest) {
                    (true, false) => "lives",
                    (true, true) => "lives, additional",
                    (false, false) => "dead",
                    (false, true) => "dead, additional",
                }
                .into(),
                worker.queued.to_string(),
                worker.behind.to_string(),
                worker.task.clone().unwrap_or_else(|| "-".into()),
            ]);
        }
        lines.extend(table.lines());
        lines
    }
}
