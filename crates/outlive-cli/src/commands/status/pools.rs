//! The pools of tasks of a pod, for `outlive pod status`: who works in them, at what, and what is still to be done.

use crate::failure::Failure;
use crate::output;
use crate::table::Table;
use outlive::pod::Pod;
use outlive_tasks::{PoolStatus, WorkerPool};
use serde::Serialize;

/// A pool, as programs read it.
#[derive(Serialize)]
pub struct Pool {
    name: String,
    /// How many workers it has room for, and how many it wants.
    capacity: u32,
    wanted: u32,
    /// How many live.
    living: u32,
    /// How many of them wait for something to do.
    waiting: u32,
    /// How many tasks are ready in all deques.
    ready: u64,
    /// How many jobs there are, about, and which of them are open.
    jobs: u64,
    open: Vec<String>,
    /// How far more than half of the workers have come.
    frontier: u64,
    workers: Vec<Worker>,
}

/// A worker, or one that died and whose place nobody has taken.
#[derive(Serialize)]
struct Worker {
    /// As "id.generation".
    instance: String,
    lives: bool,
    queued: u64,
    /// What it is about.
    running: Option<String>,
    /// How many heartbeats it is behind the frontier.
    behind: u64,
}

/// The pools of `pod`, by name.
///
/// # Errors
/// If one is damaged.
pub fn pools(pod: &Pod) -> Result<Vec<Pool>, Failure> {
    let names = WorkerPool::names(pod).map_err(Failure::new)?;
    let pool = |name: String| match WorkerPool::inspect(pod, &name) {
        Ok(status) => Some(Ok(Pool::of(name, &status))),
        // It was destroyed meanwhile.
        Err(_) if !WorkerPool::names(pod).is_ok_and(|names| names.contains(&name)) => None,
        Err(error) => Some(Err(Failure::new(format_args!("the pool {name}: {error}")))),
    };
    names.into_iter().filter_map(pool).collect()
}

impl Pool {
    fn of(name: String, status: &PoolStatus) -> Self {
        let workers = status.workers.iter().map(|worker| Worker {
            instance: worker.worker.to_string(),
            lives: worker.lives,
            queued: worker.queued,
            running: worker.running.as_ref().map(|(task, _)| task.clone()),
            behind: status.frontier.saturating_sub(worker.heartbeat),
        });
        Self {
            name,
            capacity: status.capacity,
            wanted: status.wanted.min(status.capacity),
            living: status.living(),
            waiting: status.barrier.waiting,
            ready: status.ready,
            jobs: status.jobs,
            open: status.open.clone(),
            frontier: status.frontier,
            workers: workers.collect(),
        }
    }

    /// Says it to people.
    pub fn tell(&self) -> Result<(), Failure> {
        output::line(format_args!(
            "\npool {}: {} workers of {} wanted, {} of them wait; {} tasks ready; {}",
            self.name,
            self.living,
            self.wanted,
            self.waiting,
            self.ready,
            match &self.open[..] {
                [] => "no job is open".into(),
                open => format!("open: {}", open.join(", ")),
            }
        ))?;
        let mut table = Table::new(["WORKER", "QUEUED", "BEHIND", "RUNNING"]);
        for worker in &self.workers {
            let running = worker.running.as_deref().unwrap_or("-");
            table.row([
                match worker.lives {
                    true => worker.instance.clone(),
                    false => format!("{}, dead", worker.instance),
                },
                worker.queued.to_string(),
                worker.behind.to_string(),
                running.into(),
            ]);
        }
        match table.rows() {
            0 => Ok(()),
            _ => table.lines().try_for_each(output::line),
        }
    }
}
