//! The pools of workers in a pod, as `outlive pod status` and `outlive pod watch` show them, and which of them is meant.

use crate::table::Table;
use outlive::pod::Pod;
use outlive_tasks::{PoolError, PoolStatus, WorkerPool};
use serde::Serialize;
use std::fmt;
use std::path::{Path, PathBuf};

/// Why it is not known which pool of a pod is meant.
#[derive(Debug)]
pub enum NoPool {
    /// The names cannot be read.
    Unreadable(PoolError),
    /// The pod, which is here, has none.
    None(PathBuf),
    /// It has none that is called so, but these.
    Unknown(PathBuf, String, Vec<String>),
    /// It has these.
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

/// The name of the pool of `pod`, which is at `path`: the one that is called `name`, or the only one.
pub fn choose(pod: &Pod, path: &Path, name: Option<&str>) -> Result<String, NoPool> {
    let mut there = WorkerPool::names(pod).map_err(NoPool::Unreadable)?;
    match name {
        Some(name) if there.iter().any(|it| it == name) => Ok(name.into()),
        Some(name) => Err(NoPool::Unknown(path.into(), name.into(), there)),
        None if there.len() > 1 => Err(NoPool::Several(path.into(), there)),
        None => there.pop().ok_or_else(|| NoPool::None(path.into())),
    }
}

/// A pool of workers, as JSON has it.
#[derive(Serialize)]
pub struct Pool {
    name: String,
    /// Why the rest could not be read.
    damaged: Option<String>,
    capacity: u32,
    wanted: u32,
    living: u32,
    /// How many of the living work besides those whom it wants.
    guests: u32,
    /// How many tasks are ready in all deques.
    ready: u64,
    jobs: u64,
    /// The jobs that are not over.
    open: Vec<String>,
    /// How far more than half of the workers have come.
    frontier: u64,
    /// How many workers wait at the barrier.
    waiting: u32,
    workers: Vec<Worker>,
}

#[derive(Serialize)]
struct Worker {
    slot: u32,
    /// The instance, as "id.generation".
    instance: String,
    lives: bool,
    /// Whether it works besides those whom the pool wants.
    is_guest: bool,
    queued: u64,
    /// The function of the task that it is at.
    task: Option<String>,
    /// How many heartbeats it is behind the frontier.
    behind: u64,
}

impl Pool {
    /// Those of `pod`.
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
            // Who wants as many as will come says so by more than there is room for.
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

    /// It in lines, for people.
    pub fn lines(&self) -> Vec<String> {
        if let Some(why) = &self.damaged {
            return vec![format!("pool {}: {why}", self.name)];
        }
        let open = match self.open.as_slice() {
            [] => "none open".into(),
            open => format!("open: {}", open.join(", ")),
        };
        let mut lines = vec![format!(
            "pool {}: {} workers{}, {} wanted, room for {}; {} wait; {} tasks ready; {} jobs, {open}",
            self.name,
            self.living,
            match self.guests {
                0 => String::new(),
                1 => " (1 of them a guest)".into(),
                guests => format!(" ({guests} of them guests)"),
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
                    (true, true) => "lives, a guest",
                    (false, false) => "dead",
                    (false, true) => "dead, a guest",
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
