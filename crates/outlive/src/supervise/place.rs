//! The place of a child: its host, how it is launched there, and how it learns of it.

use crate::membership::{InstanceId, Level, Status, Tables};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid,
};
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child as Spawned, Command, ExitStatus};

/// The place of a process in a pod, as given by its supervisor.
///
/// ```no_run
/// use outlive::supervise::Place;
///
/// let place = Place::from_env().expect("started by a supervisor");
/// println!("process {} of {} on host {}", place.id, place.pod.display(), place.host);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The name under which the pod is opened.
    pub pod: OsString,
    /// The host of the process.
    pub host: InstanceId,
    /// The id under which the child joins.
    pub id: InstanceId,
}

/// The environment of a process does not name its place, or not in a valid form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the environment variable {variable} {problem}; start this program under a supervisor, or set \
     a valid value"
)]
pub struct NoPlace {
    /// The name of the variable.
    pub variable: &'static str,
    /// The problem with its value.
    pub problem: &'static str,
}

impl Place {
    /// The environment variable with the pod's name.
    pub const POD: &'static str = "OUTLIVE_POD";
    /// The environment variable with the host's id.
    pub const HOST: &'static str = "OUTLIVE_HOST";
    /// The environment variable with the process's id.
    pub const ID: &'static str = "OUTLIVE_ID";

    /// Returns the place that the environment of this process names.
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
            problem: "is not an id (a whole number)",
        })
}

/// Starts programs on hosts.
///
/// The default, [`ThisMachine`], starts a process here, for hosts that are groups of processes.
/// Pods of several machines need an implementation of their own, which uses ssh, Slurm or a cluster
/// manager.
pub trait Launch: Send {
    /// Starts `command` so that it runs at `place`, which is already in the command's environment
    /// ([`Command::get_envs`]). Must not wait for it.
    ///
    /// # Errors
    /// If it could not be started. This counts as a failure of the child.
    fn launch(&self, place: &Place, command: Command) -> io::Result<Box<dyn Launched>>;
}

/// A handle to a launched program: the child itself, or a program (an ssh client, for example) that
/// ends when the child ends.
pub trait Launched: Send {
    /// Returns its status if it has ended, and reaps it. Must not wait.
    ///
    /// # Errors
    /// If its status cannot be determined.
    fn try_wait(&mut self) -> io::Result<Option<ExitStatus>>;
    /// Ends it by force, if it has not ended; for the remains of a child that is known to be dead.
    fn kill(&mut self);
    /// Returns its process id, if it is the child itself and on this operating system.
    fn pid(&self) -> Option<u32>;
}

/// Starts processes on the supervisor's own operating system, as its children.
///
/// They survive the supervisor's death. A process shares its parent's address space until it
/// executes its program. This is harmless: only the C library's code runs then, which does not
/// access the pod.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThisMachine;

impl Launch for ThisMachine {
    fn launch(&self, _place: &Place, mut command: Command) -> io::Result<Box<dyn Launched>> {
        let child = command.spawn()?;
        let pidfd = pidfd_of_child(&child);
        Ok(Box::new(Started { child, pidfd }))
    }
}

/// A child process. Its pidfd never refers to another process. Its pid may do so when the program
/// has reaped the child, or ignores SIGCHLD.
#[derive(Debug)]
struct Started {
    child: Spawned,
    /// `None` if the kernel or a filter refuses it.
    pidfd: Option<OwnedFd>,
}

/// Returns a pidfd of `child`.
fn pidfd_of_child(child: &Spawned) -> Option<OwnedFd> {
    let pid = Pid::from_raw(child.id().cast_signed())?;
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).ok()?;
    // The child may have been reaped before, and its pid be another process's.
    let flags = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    waitid(WaitId::PidFd(pidfd.as_fd()), flags).ok()?;
    Some(pidfd)
}

impl Launched for Started {
    fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    fn kill(&mut self) {
        let killed = self
            .pidfd
            .as_ref()
            .map(|pidfd| pidfd_send_signal(pidfd, Signal::KILL));
        match killed {
            Some(Ok(()) | Err(Errno::SRCH)) => {}
            _ => Launched::kill(&mut self.child),
        }
    }

    fn pid(&self) -> Option<u32> {
        Some(self.child.id())
    }
}

impl Launched for Spawned {
    fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        Self::try_wait(self)
    }

    fn kill(&mut self) {
        // If the program has reaped it, its pid may be another process's.
        if matches!(Self::try_wait(self), Ok(None)) {
            let _ = Self::kill(self);
        }
    }

    fn pid(&self) -> Option<u32> {
        Some(self.id())
    }
}

/// A child on a failed host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The child's id.
    pub id: InstanceId,
    /// The host that failed.
    pub host: InstanceId,
    /// The host that the child was first meant for.
    pub home: InstanceId,
}

/// A host that has not failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Survivor {
    /// The id of the host.
    pub host: InstanceId,
    /// The number of the supervisor's children that run on the host or are being started there.
    pub children: usize,
}

/// Chooses the host on which a child of a failed host is started again. `None` means that there is
/// none for now; the supervisor asks again.
pub trait Placement: Send {
    /// Returns the host for `lost`. `survivors`, ordered by id, is never empty.
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

/// Returns the survivor with the fewest children, among equals that with the lowest id. The
/// default.
pub fn fewest(_lost: &Lost, survivors: &[Survivor]) -> Option<InstanceId> {
    survivors
        .iter()
        .min_by_key(|survivor| (survivor.children, survivor.host))
        .map(|survivor| survivor.host)
}

/// Returns the host on which the child was first placed, which becomes live again when the child
/// starts: for hosts that are groups of processes on one machine.
pub fn home(lost: &Lost, _survivors: &[Survivor]) -> Option<InstanceId> {
    Some(lost.home)
}

/// The state of a host, for a supervisor that wants to start a child on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HostStanding {
    /// It has live processes.
    Lives,
    /// It has no process, and did not fail: the first process makes it live.
    Vacant,
    /// It failed.
    Failed,
    /// It is being joined or fenced, or its death is being finalised: the supervisor has to wait.
    Unsettled,
}

/// Returns the state of the host `id`. A host without a live process is about to end, and does not
/// count as a survivor even if its word still says live.
pub(super) fn standing(tables: Tables, id: InstanceId) -> HostStanding {
    if id >= tables.extent().ids {
        // Joining will report this.
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

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{WaitOptions, kill_process, waitpid};

    /// Forks a process with the process id `pid`, which sleeps. Returns `None` if that is not
    /// permitted, or another process has the id.
    fn sleeper(pid: Pid) -> Option<Pid> {
        let wanted = pid.as_raw_nonzero().get();
        // SAFETY: plain numbers, for which zeros are valid.
        let mut clone: libc::clone_args = unsafe { core::mem::zeroed() };
        clone.exit_signal = libc::SIGCHLD as u64;
        clone.set_tid = &raw const wanted as u64;
        clone.set_tid_size = 1;
        // SAFETY: a fork whose child makes system calls only.
        let forked = unsafe {
            let bytes = size_of::<libc::clone_args>();
            let forked = libc::syscall(libc::SYS_clone3, &raw const clone, bytes);
            if forked == 0 {
                libc::alarm(60);
                loop {
                    libc::pause();
                }
            }
            forked
        };
        Pid::from_raw(forked as i32).filter(|_| forked > 0)
    }

    #[test]
    fn a_process_with_the_pid_of_a_child_that_was_reaped_is_not_killed() {
        let place = Place {
            pod: "pod".into(),
            host: 0,
            id: 1,
        };
        let mut command = Command::new("sleep");
        command.arg("60");
        let mut launched = ThisMachine.launch(&place, command).unwrap();
        let pid = Pid::from_raw(launched.pid().unwrap().cast_signed()).unwrap();
        kill_process(pid, Signal::KILL).unwrap();
        // As a program does that reaps all its children.
        waitpid(Some(pid), WaitOptions::empty()).unwrap();
        let Some(stranger) = sleeper(pid) else {
            return println!("skipped: a process id cannot be chosen here");
        };
        assert_eq!(stranger, pid);
        launched.kill();
        std::thread::sleep(core::time::Duration::from_millis(50));
        let ended = waitpid(Some(stranger), WaitOptions::NOHANG).unwrap();
        let _ = kill_process(stranger, Signal::KILL);
        assert!(ended.is_none(), "the stranger was killed");
        waitpid(Some(stranger), WaitOptions::empty()).unwrap();
    }
}
