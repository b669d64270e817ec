//! Where a child runs: its host, how it is launched there, and what it is told of it.

use crate::membership::{InstanceId, Level, Status, Tables};
use std::ffi::OsString;
use std::io;
use std::process::{Child as Spawned, Command, ExitStatus};

/// The place of a process in a pod, as its supervisor told it.
///
/// ```no_run
/// use outlive::supervise::Place;
///
/// let place = Place::from_env().expect("started by a supervisor");
/// println!("process {} of {} on host {}", place.id, place.pod.display(), place.host);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The pod, by the name under which it is opened.
    pub pod: OsString,
    /// The host that the process is on.
    pub host: InstanceId,
    /// The id that it joins under.
    pub id: InstanceId,
}

/// A process was not told its place, or not in words that can be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the environment variable {variable} {problem}; start this program under a supervisor or set it"
)]
pub struct NoPlace {
    /// Which variable.
    pub variable: &'static str,
    /// What is wrong with it.
    pub problem: &'static str,
}

impl Place {
    /// The environment variable with the pod's name.
    pub const POD: &'static str = "OUTLIVE_POD";
    /// The environment variable with the host's id.
    pub const HOST: &'static str = "OUTLIVE_HOST";
    /// The environment variable with the process's id.
    pub const ID: &'static str = "OUTLIVE_ID";

    /// The place that the environment of this process names.
    ///
    /// # Errors
    /// If a variable is not set or is not an id.
    pub fn from_env() -> Result<Self, NoPlace> {
        Ok(Self {
            pod: variable(Self::POD)?,
            host: number(Self::HOST)?,
            id: number(Self::ID)?,
        })
    }

    /// Names this place in the environment of `command`.
    pub fn to_env(&self, command: &mut Command) {
        command
            .env(Self::POD, &self.pod)
            .env(Self::HOST, self.host.to_string())
            .env(Self::ID, self.id.to_string());
    }
}

fn variable(name: &'static str) -> Result<OsString, NoPlace> {
    std::env::var_os(name).ok_or(NoPlace {
        variable: name,
        problem: "is not set",
    })
}

fn number(name: &'static str) -> Result<InstanceId, NoPlace> {
    let value = variable(name)?;
    value
        .to_str()
        .and_then(|value| value.parse().ok())
        .ok_or(NoPlace {
            variable: name,
            problem: "is not the number of an id",
        })
}

/// Starts programs on hosts.
///
/// The default, [`ThisMachine`], starts a process here, for hosts that are groups of processes. Pods of real machines bring
/// their own: by ssh, by Slurm, by a cluster manager.
pub trait Launch: Send {
    /// Starts `command` so that it runs at `place`, which stands in the command's environment already
    /// ([`Command::get_envs`]). Must not wait for it.
    ///
    /// # Errors
    /// If it could not be started. That counts as a failure of the child.
    fn launch(&self, place: &Place, command: Command) -> io::Result<Box<dyn Launched>>;
}

/// A handle on something launched: the process itself, or a program (an ssh client, say) that ends when
/// it ends.
pub trait Launched: Send {
    /// Its status if it has ended; reaps it. Must not wait.
    ///
    /// # Errors
    /// If that cannot be known.
    fn try_wait(&mut self) -> io::Result<Option<ExitStatus>>;
    /// Ends it by force, if it has not ended; for what is left of a child that is known to be dead.
    fn kill(&mut self);
    /// Its process id, if it is the child itself and on this operating system.
    fn pid(&self) -> Option<u32>;
}

/// Starts processes on the supervisor's own operating system, as its children.
///
/// They live on when the supervisor dies. The address space that a process shares with its parent
/// until it executes its program is of no concern: only the C library's code runs in it, which knows
/// nothing of the pod.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThisMachine;

impl Launch for ThisMachine {
    fn launch(&self, _place: &Place, mut command: Command) -> io::Result<Box<dyn Launched>> {
        Ok(Box::new(command.spawn()?))
    }
}

impl Launched for Spawned {
    fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        Self::try_wait(self)
    }

    fn kill(&mut self) {
        // Only fails if it has ended.
        let _ = Self::kill(self);
    }

    fn pid(&self) -> Option<u32> {
        Some(self.id())
    }
}

/// A child whose host failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The child's id.
    pub id: InstanceId,
    /// The host that failed.
    pub host: InstanceId,
    /// The host that it was meant for at first.
    pub home: InstanceId,
}

/// A host that has not failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Survivor {
    /// Its id.
    pub host: InstanceId,
    /// How many of the supervisor's children run on it, or are on their way.
    pub children: usize,
}

/// Decides on which host a child whose host failed is started again; `None`: on none for now, ask
/// again.
pub trait Placement: Send {
    /// The host for `lost`. `survivors`, ordered by id, is never empty.
    fn place(&mut self, lost: &Lost, survivors: &[Survivor]) -> Option<InstanceId>;
}

impl<F> Placement for F
where
    F: FnMut(&Lost, &[Survivor]) -> Option<InstanceId> + Send,
{
    fn place(&mut self, lost: &Lost, survivors: &[Survivor]) -> Option<InstanceId> {
        self(lost, survivors)
    }
}

/// The survivor with the fewest children; of several the one with the lowest id. The default.
pub fn fewest(_lost: &Lost, survivors: &[Survivor]) -> Option<InstanceId> {
    survivors
        .iter()
        .min_by_key(|survivor| (survivor.children, survivor.host))
        .map(|survivor| survivor.host)
}

/// The host that it was meant for at first, which comes back to life by that: for hosts that are groups
/// of processes on one machine.
pub fn home(lost: &Lost, _survivors: &[Survivor]) -> Option<InstanceId> {
    Some(lost.home)
}

/// How a host stands, for who wants to start something on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HostStanding {
    /// It has living processes.
    Lives,
    /// Nobody is on it, and it did not fail: the first process brings it to life.
    Vacant,
    /// It failed.
    Failed,
    /// It is being joined, fenced or buried: one has to wait.
    Unsettled,
}

/// How the host `id` stands. A host without a living process is about to end, and is not taken for a
/// survivor however its word still stands.
pub(super) fn standing(tables: Tables, id: InstanceId) -> HostStanding {
    if id >= tables.extent().ids {
        // Joining will say so.
        return HostStanding::Vacant;
    }
    let Ok(state) = tables.generations().state(id) else {
        return HostStanding::Failed;
    };
    let has_processes = || {
        tables
            .writers()
            .any(|(_, of)| of.level == Some(Level::Process) && u32::from(of.host) == id)
    };
    match state.status {
        Status::Free | Status::Left => HostStanding::Vacant,
        Status::Dead | Status::Recovered | Status::Retired => HostStanding::Failed,
        _ if state.level != Some(Level::Host) => HostStanding::Vacant,
        Status::Live if has_processes() => HostStanding::Lives,
        Status::Live | Status::Joining | Status::Fencing => HostStanding::Unsettled,
    }
}
