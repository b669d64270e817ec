//! A pod with worker processes that can be killed.

use super::text;
use outlive::heap::LocalHeap;
use outlive::membership::{Settings, Status};
use outlive::pod::{Pod, PodOptions};
use outlive::supervise::Stop;
use outlive_tasks::{Volunteer, WorkerPool};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The longest wait for an event that should take seconds.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// The number of ids of the pod.
pub(super) const IDS: u32 = 256;

const POD: &str = "OUTLIVE_CHAOS_POD";
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

/// A pod in /dev/shm that is destroyed, and its children killed, when this is dropped.
pub struct Scene {
    path: PathBuf,
    /// The pod.
    pub pod: Pod,
    command: Box<dyn Fn() -> Command>,
    children: Vec<(Child, u32)>,
}

impl std::fmt::Debug for Scene {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Scene({}, {:?})", self.path.display(), self.children)
    }
}

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
        let path = format!("/dev/shm/outlive-tasks-{name}-{}", std::process::id());
        let settings = Settings {
            uid: std::fs::metadata("/proc/self").map_err(text)?.uid(),
            heartbeat: Duration::from_millis(20),
            poll: Duration::from_millis(40),
            ..Settings::default()
        };
        let options = PodOptions::new().size(bytes).ids(IDS).settings(settings);
        let pod = Pod::create(&path, options).map_err(text)?;
        Ok(Self {
            path: path.into(),
            pod,
            command: Box::new(command),
            children: Vec::new(),
        })
    }

    /// Starts a child with `threads` workers.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(&mut self, threads: u32, role: Role) -> Result<(), String> {
        let child = (self.command)()
            .env(POD, &self.path)
            .env(THREADS, threads.to_string())
            .env(ROLE, (role as u32).to_string())
            // An interrupt is for the driver, which ends in good order.
            .process_group(0)
            .stdout(Stdio::null())
            .spawn()
            .map_err(text)?;
        self.children.push((child, threads));
        Ok(())
    }

    /// Returns the number of children.
    pub fn children(&self) -> usize {
        self.children.len()
    }

    /// Kills a child, and returns the number of its workers.
    ///
    /// # Errors
    /// If it had ended by itself.
    pub fn kill(&mut self, index: usize) -> Result<u32, String> {
        let (mut child, threads) = self.children.remove(index);
        if let Some(status) = child.try_wait().map_err(text)? {
            return Err(format!("a worker process ended by itself: {status}"));
        }
        child.kill().map_err(text)?;
        child.wait().map_err(text)?;
        Ok(threads)
    }

    /// Kills all children, and waits until everything that they had in hand is recovered. `others`
    /// are the ids of the live members.
    ///
    /// # Errors
    /// If a child had ended by itself, or not all are recovered in time.
    pub fn end(&mut self, others: &[u32]) -> Result<(), String> {
        while !self.children.is_empty() {
            self.kill(0)?;
        }
        let generations = self.pod.tables().generations();
        let is_settled = |id: u32| {
            generations.state(id).is_ok_and(|state| {
                let may_write = state.status.may_write() && !others.contains(&id);
                state.status != Status::Dead && !may_write
            })
        };
        let until = Instant::now() + PATIENCE;
        while !(0..IDS).all(is_settled) {
            if Instant::now() >= until {
                return Err(format!(
                    "the dead members are not recovered within {PATIENCE:?}"
                ));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
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
        let mut blocks = match pool {
            Some(pool) => pool.blocks(heap).map_err(text)?,
            None => Vec::new(),
        };
        let whole = self.pod.heap().ok_or("the pod has no heap")?;
        let logs = self.pod.logs();
        blocks.extend((0..IDS).flat_map(|id| whole.retired(logs.of(id))));
        let roots = self.pod.roots().list().map_err(text)?;
        blocks.extend(roots.iter().map(|root| root.offset));
        let report = whole.check_reachable(blocks);
        match report.is_clean() {
            true => Ok(()),
            false => Err(report.to_string()),
        }
    }
}

impl Scene {
    /// Kills all children, in whatever state.
    pub fn clear(&mut self) {
        for (mut child, _) in self.children.drain(..) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.clear();
        // The kernel may still be ending a victim, which holds its lock on the side file until
        // then.
        let until = Instant::now() + Duration::from_secs(10);
        while Pod::destroy(&self.path).map_or(true, |kept| kept.is_some())
            && self.path.exists()
            && Instant::now() < until
        {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Works until it is killed, as a child does. Returns `false` if this process is not a child.
///
/// # Errors
/// If it cannot work.
pub fn work() -> Result<bool, String> {
    let Ok(path) = std::env::var(POD) else {
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
