//! A pod with child processes that can be killed.

use super::text;
use outlive::membership::{Settings, Status};
use outlive::memory::Offset;
use outlive::pod::{Pod, PodOptions};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The time limit for an event that should take seconds.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// The number of ids of the pod, which bounds the number of processes and threads.
const POD_IDS: u32 = 256;

/// The environment variable with the path of the pod, for a child.
const POD: &str = "OUTLIVE_CHAOS_POD";

/// Returns the path of the pod for which this process was started, or `None` if it is not a child.
pub fn pod_of_child() -> Option<String> {
    std::env::var(POD).ok()
}

/// A pod in /dev/shm that is destroyed, and its children killed, when this is dropped.
pub struct Processes {
    path: PathBuf,
    /// The pod.
    pub pod: Pod,
    command: Box<dyn Fn() -> Command>,
    /// Each child with its label.
    children: Vec<(Child, u32)>,
}

impl std::fmt::Debug for Processes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Processes({}, {:?})", self.path.display(), self.children)
    }
}

impl Processes {
    /// Creates a pod of `bytes`, named after this process and `name`. `command` makes the command
    /// of a child.
    ///
    /// # Errors
    /// If there is not enough memory, or a file of that name exists.
    pub fn new(
        name: &str,
        bytes: u64,
        command: impl Fn() -> Command + 'static,
    ) -> Result<Self, String> {
        let path = format!("/dev/shm/outlive-{name}-{}", std::process::id());
        let settings = Settings {
            uid: std::fs::metadata("/proc/self").map_err(text)?.uid(),
            heartbeat: Duration::from_millis(20),
            poll: Duration::from_millis(40),
            ..Settings::default()
        };
        let options = PodOptions::new()
            .size(bytes)
            .ids(POD_IDS)
            .settings(settings);
        let pod = Pod::create(&path, options).map_err(text)?;
        Ok(Self {
            path: path.into(),
            pod,
            command: Box::new(command),
            children: Vec::new(),
        })
    }

    /// Starts a child with the label `label`. `environment` is added to its environment.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(
        &mut self,
        label: u32,
        output: Stdio,
        environment: &[(&str, String)],
    ) -> Result<(), String> {
        let child = (self.command)()
            .env(POD, &self.path)
            .envs(environment.iter().map(|(name, value)| (name, value)))
            // An interrupt of the terminal must reach only the driver, which then ends the run.
            .process_group(0)
            .stdout(output)
            .spawn()
            .map_err(text)?;
        self.children.push((child, label));
        Ok(())
    }

    /// Returns the number of children.
    pub fn children(&self) -> usize {
        self.children.len()
    }

    /// Kills a child, and returns its label.
    ///
    /// # Errors
    /// If it had ended by itself.
    pub fn kill(&mut self, index: usize) -> Result<u32, String> {
        let (mut child, label) = self.children.remove(index);
        if let Some(status) = child.try_wait().map_err(text)? {
            return Err(format!("a worker process ended by itself: {status}"));
        }
        child.kill().map_err(text)?;
        child.wait().map_err(text)?;
        Ok(label)
    }

    /// Kills all children, and waits until all dead members are recovered. `others` are the ids of
    /// the live members.
    ///
    /// # Errors
    /// If a child had ended by itself, or a dead member is not recovered within [`PATIENCE`].
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
        while !(0..POD_IDS).all(is_settled) {
            if Instant::now() >= until {
                return Err(format!(
                    "the dead members are not recovered within {PATIENCE:?}"
                ));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Checks that the allocated blocks are exactly `blocks`, the retired blocks, and the blocks of
    /// the pod's roots. No child may be active.
    ///
    /// # Errors
    /// The differences, if there are any.
    pub fn demand_only(&self, blocks: impl IntoIterator<Item = Offset>) -> Result<(), String> {
        let whole = self.pod.heap().ok_or("the pod has no heap")?;
        let logs = self.pod.logs();
        let retired = (0..POD_IDS).flat_map(|id| whole.retired(logs.of(id)));
        let roots = self.pod.roots().list().map_err(text)?;
        let roots = roots.iter().map(|root| root.offset);
        let report = whole.check_reachable(blocks.into_iter().chain(retired).chain(roots));
        match report.is_clean() {
            true => Ok(()),
            false => Err(report.to_string()),
        }
    }

    /// Checks the invariants of the pod.
    ///
    /// # Errors
    /// The violations, if there are any.
    pub fn demand_clean_pod(&self) -> Result<(), String> {
        let check = self.pod.check();
        match check.is_clean() {
            true => Ok(()),
            false => Err(format!("{:#?}", check.violations)),
        }
    }

    /// Kills all children that still run.
    pub fn clear(&mut self) {
        for (mut child, _) in self.children.drain(..) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        self.clear();
        // The kernel may still be ending a victim, which holds its lock on the side file until
        // then.
        let until = Instant::now() + Duration::from_secs(10);
        while Pod::destroy_forcibly(&self.path).map_or(true, |kept| kept.is_some())
            && self.path.exists()
            && Instant::now() < until
        {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
