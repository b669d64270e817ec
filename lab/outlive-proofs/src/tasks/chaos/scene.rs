//! A pool with worker processes that can be killed.

use super::text;
use crate::killing::{Processes, pod_of_child};
use core::ops::{Deref, DerefMut};
use outlive::heap::LocalHeap;
use outlive::pod::Pod;
use outlive::supervise::Stop;
use outlive_tasks::{Volunteer, WorkerPool};
use std::process::{Command, Stdio};

const THREADS: &str = "OUTLIVE_CHAOS_THREADS";
const ROLE: &str = "OUTLIVE_CHAOS_ROLE";
const POOL: &str = "pool";

/// The role of a child's workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// They work.
    Works,
    /// They stand by, and work when they are needed.
    StandsBy,
    /// They work in addition to the workers that the pool needs.
    Besides,
}

impl Role {
    const ALL: [Self; 3] = [Self::Works, Self::StandsBy, Self::Besides];
}

/// [Processes] whose threads are workers of one pool. The label of a child is the number of its
/// workers.
#[derive(Debug)]
pub struct Scene(Processes);

impl Scene {
    /// The name of the pool that children work in.
    pub const POOL: &str = POOL;

    /// Creates a pod of `bytes`, named after this process and `name`. `command` makes the command
    /// of a child, which calls [`work`](super::work).
    ///
    /// # Errors
    /// If there is not enough memory, or such a pod exists.
    pub fn new(
        name: &str,
        bytes: u64,
        command: impl Fn() -> Command + 'static,
    ) -> Result<Self, String> {
        Processes::new(&format!("tasks-{name}"), bytes, command).map(Self)
    }

    /// Starts a child with `threads` workers.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(&mut self, threads: u32, role: Role) -> Result<(), String> {
        let environment = [
            (THREADS, threads.to_string()),
            (ROLE, (role as u32).to_string()),
        ];
        self.0.start(threads, Stdio::null(), &environment)
    }

    /// Checks that the allocated blocks are exactly those reachable from `pool`, from the lists of
    /// retired blocks, and from the pod's roots. No worker may be active.
    ///
    /// # Errors
    /// The differences, if there are any.
    pub fn demand_nothing_leaks(
        &self,
        heap: &LocalHeap<'_>,
        pool: Option<WorkerPool>,
    ) -> Result<(), String> {
        self.0.demand_only(match pool {
            Some(pool) => pool.blocks(heap).map_err(text)?,
            None => Vec::new(),
        })
    }
}

impl Deref for Scene {
    type Target = Processes;

    fn deref(&self) -> &Processes {
        &self.0
    }
}

impl DerefMut for Scene {
    fn deref_mut(&mut self) -> &mut Processes {
        &mut self.0
    }
}

/// Works until it is killed, as a child does. Returns `false` if this process is not a child.
///
/// # Errors
/// If it cannot work.
pub fn work() -> Result<bool, String> {
    let Some(path) = pod_of_child() else {
        return Ok(false);
    };
    let number = |name: &str| -> Result<u32, String> {
        let said = std::env::var(name).map_err(text)?;
        said.parse().map_err(text)
    };
    let threads = number(THREADS)?;
    let role = Role::ALL.get(number(ROLE)? as usize);
    let role = role.ok_or("there is no such role")?;
    let pod = Pod::open(path).map_err(text)?;
    // As a host of its own, with any id: in a long run every id is used again and again.
    let process = Volunteer::new().join(&pod).map_err(text)?;
    let worker = || -> Result<(), String> {
        let member = process.enter(None, "worker").map_err(text)?;
        let heap = member.heap(&pod).map_err(text)?;
        let pool = WorkerPool::open(&pod, POOL).map_err(text)?;
        let stop = Stop::default();
        let worked = match role {
            Role::Works => pool.work(&heap, &stop).map(drop),
            Role::StandsBy => pool.stand_by(&heap, &stop).map(drop),
            Role::Besides => pool.work_besides(&heap, &stop).map(drop),
        };
        worked.map_err(text)
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().try_for_each(|worker| {
            let ended = worker.join();
            ended.unwrap_or_else(|_| Err("a worker panicked".into()))
        })
    })?;
    Ok(true)
}
