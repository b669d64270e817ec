//! Hosts as process groups: started, killed and waited for as a whole, and killed with the driver.

use outlive::membership::InstanceId;
use outlive::supervise::{Launch, Launched, Place};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, child_subreaper, getpid, kill_process_group, set_child_subreaper,
    waitpgid,
};
use std::collections::HashMap;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex, PoisonError};

/// Returns the processor time of this process and of all its children that have ended, in seconds.
pub(super) fn cpu_seconds() -> f64 {
    // SAFETY: `getrusage` writes to the structure that it is given, which zeros are valid for.
    let of = |who| unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(who, &raw mut usage);
        usage
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 * 1e-6;
    [libc::RUSAGE_SELF, libc::RUSAGE_CHILDREN]
        .map(of)
        .iter()
        .map(|usage| seconds(usage.ru_utime) + seconds(usage.ru_stime))
        .sum()
}

/// The groups of each host in the order in which they were started, by the id of the host's first
/// process in the pod.
pub(super) type Running = Arc<Mutex<HashMap<InstanceId, Vec<Arc<Mutex<Group>>>>>>;

pub(super) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts hosts as process groups of their own, which can be killed as a whole.
pub(super) struct AsGroups {
    pub(super) running: Running,
    /// The last error with which a host could not be started.
    pub(super) refused: Arc<Mutex<Option<io::Error>>>,
}

impl Launch for AsGroups {
    fn launch(&self, place: &Place, command: Command) -> io::Result<Box<dyn Launched>> {
        // Locked before the start: a host that is seen in the pod has its group here, to be killed.
        let mut running = lock(&self.running);
        let started = Group::start(command).map_err(|error| {
            let kind = error.kind();
            *lock(&self.refused) = Some(error);
            kind
        });
        let group = Arc::new(Mutex::new(started?));
        running
            .entry(place.id)
            .or_default()
            .push(Arc::clone(&group));
        drop(running);
        Ok(Box::new(Host(group)))
    }
}

/// A host's process group: its first process, which leads it, and the children of that.
///
/// If the leader dies first, its children become children of this process ([`Subreaper`]). They are
/// waited for as well: only then does their processor time count, and until then the kernel does
/// not reuse the number of the group.
#[derive(Debug)]
pub(super) struct Group {
    leader: Child,
    /// The exit status of the leader.
    ended: Option<ExitStatus>,
    /// Whether all processes of the group have been waited for.
    is_gone: bool,
    /// Whether a failure of the report has been assigned to this group.
    pub(super) is_reported: bool,
}

impl Group {
    fn start(mut command: Command) -> io::Result<Self> {
        Ok(Self {
            leader: command.process_group(0).spawn()?,
            ended: None,
            is_gone: false,
            is_reported: false,
        })
    }

    /// Returns the process id of the leader.
    pub(super) fn pid(&self) -> u32 {
        self.leader.id()
    }

    fn number(&self) -> Option<Pid> {
        Pid::from_raw(self.leader.id() as i32)
    }

    /// Returns the exit status of the leader once no process of the group is left.
    pub(super) fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        if self.ended.is_none() {
            self.ended = self.leader.try_wait()?;
        }
        // The leader's children become this process's children before the leader can be waited for.
        while self.ended.is_some() && !self.is_gone {
            let waited = self.number().map_or(Err(Errno::CHILD), |group| {
                waitpgid(group, WaitOptions::NOHANG)
            });
            match waited {
                Ok(None) => return Ok(None),
                Ok(Some(_)) | Err(Errno::INTR) => {}
                // No process is left.
                Err(_) => self.is_gone = true,
            }
        }
        Ok(self.ended)
    }

    /// Kills all processes of the group at the same time, unless all have ended. A child that is
    /// just being started is in the group before it runs. Returns whether the signal was sent.
    pub(super) fn kill(&mut self) -> bool {
        if matches!(self.try_wait(), Ok(Some(_))) {
            return false;
        }
        // A process of the group has not been reaped, so the group still owns its number.
        let group = self.number();
        group.is_some_and(|group| kill_process_group(group, Signal::KILL).is_ok())
    }
}

struct Host(Arc<Mutex<Group>>);

impl Launched for Host {
    fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        lock(&self.0).try_wait()
    }

    fn kill(&mut self) {
        lock(&self.0).kill();
    }

    fn pid(&self) -> Option<u32> {
        Some(lock(&self.0).pid())
    }
}

/// While one lives, this process adopts the children of its descendants that die.
///
/// The kernel has one flag for the process. The first one sets it, and the last one restores it, in
/// whatever order those of concurrent runs end.
#[derive(Debug)]
pub(super) struct Subreaper(());

/// Those that live in this process.
#[derive(Debug)]
struct Subreapers {
    count: usize,
    /// The flag before the first one.
    before: Option<Pid>,
}

static SUBREAPERS: Mutex<Subreapers> = Mutex::new(Subreapers {
    count: 0,
    before: None,
});

impl Subreaper {
    pub(super) fn new() -> Self {
        let mut all = lock(&SUBREAPERS);
        if all.count == 0 {
            // Linux has this call since 3.4. Without it, only processor time is lost.
            all.before = child_subreaper().unwrap_or(None);
            let _ = set_child_subreaper(Some(getpid()));
        }
        all.count += 1;
        Self(())
    }
}

impl Drop for Subreaper {
    fn drop(&mut self) {
        let mut all = lock(&SUBREAPERS);
        all.count -= 1;
        if all.count == 0 {
            let _ = set_child_subreaper(all.before);
        }
    }
}

/// Returns the path of this executable. A driver that is its own host program starts it as hosts.
///
/// # Errors
/// If the operating system does not provide it.
pub fn own_program() -> io::Result<PathBuf> {
    std::env::current_exe()
}

/// Prevents a terminal from stopping this process and its children (Ctrl-Z, or reading and writing
/// in the background): a stopped driver is silent, so its hosts would take it for dead and fence
/// it.
pub fn not_stopped_by_a_terminal() {
    for signal in [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU] {
        // SAFETY: no handler is installed; ignoring a signal touches no memory.
        unsafe {
            libc::signal(signal, libc::SIG_IGN);
        }
    }
}

/// Makes this process die with its parent, whose process id is `parent`: the driver, or the first
/// process of its host. To the kernel, the parent is the thread that started this process.
///
/// # Errors
/// If the parent is gone. It may have died before this call, in which case no signal is sent.
pub fn die_with(parent: u32) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).map_err(|error| {
        io::Error::other(format!(
            "prctl(PR_SET_PDEATHSIG), by which a process dies with the one that started it, \
             failed: {error}; \
             `outlive doctor` says which calls the filter of a container (seccomp) refuses"
        ))
    })?;
    let now = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get() as u32);
    if now == Some(parent) {
        Ok(())
    } else {
        Err(io::Error::other(
            "the process that started this one has ended",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_concurrent_runs_restores_the_flag() {
        let flag = || child_subreaper().expect("Linux 3.4").is_some();
        assert!(!flag());
        let (first, second) = (Subreaper::new(), Subreaper::new());
        drop(first);
        assert!(flag(), "the second run goes on");
        drop(second);
        assert!(!flag());
    }
}
