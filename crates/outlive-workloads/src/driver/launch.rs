//! Processes of hosts: started as groups, killed as groups, dying with the driver.

use outlive::membership::InstanceId;
use outlive::supervise::{Launch, Launched, Place};
use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::HashMap;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::sync::{Arc, Mutex, PoisonError};

/// The processor time of this process and of all children that have ended, in seconds.
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

/// The hosts' processes that run, by process id in the pod.
pub(super) type Running = Arc<Mutex<HashMap<InstanceId, Arc<Mutex<std::process::Child>>>>>;

pub(super) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts hosts as process groups of their own, which can be killed as a whole.
pub(super) struct AsGroups {
    pub(super) running: Running,
}

impl Launch for AsGroups {
    fn launch(&self, place: &Place, mut command: Command) -> io::Result<Box<dyn Launched>> {
        command.process_group(0);
        let child = Arc::new(Mutex::new(command.spawn()?));
        lock(&self.running).insert(place.id, Arc::clone(&child));
        Ok(Box::new(Group(child)))
    }
}

pub(super) struct Group(Arc<Mutex<std::process::Child>>);

impl Group {
    /// Kills the whole group, if its leader has not been waited for.
    pub(super) fn kill_all(child: &mut std::process::Child) -> bool {
        // As long as it has not been waited for, its pid is its own, and so is its group's.
        match child.try_wait() {
            Ok(None) => Pid::from_raw(child.id() as i32)
                .is_some_and(|group| kill_process_group(group, Signal::KILL).is_ok()),
            _ => false,
        }
    }
}

impl Launched for Group {
    fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        lock(&self.0).try_wait()
    }

    fn kill(&mut self) {
        Self::kill_all(&mut lock(&self.0));
    }

    fn pid(&self) -> Option<u32> {
        Some(lock(&self.0).id())
    }
}

/// The executable of this process: what a driver starts as hosts if it is its own host program.
///
/// # Errors
/// If the operating system does not say.
pub fn own_program() -> io::Result<PathBuf> {
    std::env::current_exe()
}

/// Lets a terminal not stop this process (Ctrl-Z, or reading and writing in the background), nor what it starts: a
/// driver that is stopped is silent, and its hosts would take it for dead and fence it.
pub fn not_stopped_by_a_terminal() {
    for signal in [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU] {
        // SAFETY: no handler is installed; ignoring a signal touches no memory.
        unsafe {
            libc::signal(signal, libc::SIG_IGN);
        }
    }
}

/// Lets this process die with the driver that started it, whose process id is `driver`.
///
/// # Errors
/// If the driver is gone.
pub fn die_with(driver: u32) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    let parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get() as u32);
    if parent == Some(driver) {
        Ok(())
    } else {
        Err(io::Error::other(
            "the process that started this one is gone",
        ))
    }
}
