//! The victims, and the times from their deaths until these are known.

use super::mutex::SharedMutex;
use crate::children::{Launcher, Part, Playing, ready, sleep_for_ever};
use crate::{StudyError, clock};
use outlive::membership::ProcessOptions;
use outlive::pod::Pod;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{PidfdFlags, Resource, Rlimit, Signal, getrlimit, pidfd_open, setrlimit};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The state of a victim when it dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// It is a member of the pod.
    Member,
    /// It holds the bare mutex.
    Mutex,
    /// It is not a member and holds nothing.
    Idle,
}

/// A process that waits until it is killed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Victim {
    role: Role,
    pod: PathBuf,
    mutex: PathBuf,
    touched: usize,
    dumps: bool,
}

impl Victim {
    pub fn play(self) -> Result<(), StudyError> {
        // The runtime catches faults to report stack overflows; here they must kill the process.
        for signal in [libc::SIGSEGV, libc::SIGABRT] {
            // SAFETY: the default action.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        if self.dumps {
            let hard = getrlimit(Resource::Core).maximum;
            let limit = Rlimit {
                current: hard,
                maximum: hard,
            };
            let switched = setrlimit(Resource::Core, limit);
            switched.map_err(|errno| StudyError::io("switching core dumps on")(errno.into()))?;
        } else {
            outlive::host::CoreDumps::switch_off()?;
        }
        let mut memory = vec![0u8; self.touched];
        for byte in memory.iter_mut().step_by(4096) {
            *byte = 1;
        }
        std::hint::black_box(&memory);
        match self.role {
            Role::Member => {
                let pod = Pod::open(&self.pod)?;
                let process = pod.join(ProcessOptions::on_host(1))?;
                let _member = process.enter(Some(9), "victim")?;
                ready();
                sleep_for_ever()
            }
            Role::Mutex => {
                SharedMutex::open(self.mutex)?.lock();
                ready();
                sleep_for_ever()
            }
            Role::Idle => {
                ready();
                sleep_for_ever()
            }
        }
    }
}

/// The environment of the victims.
#[derive(Clone, Copy)]
pub struct Scene<'a> {
    pub pod: &'a Path,
    pub mutex: &'a Path,
    pub launcher: &'a Launcher,
}

/// The same, with core dumps on or off.
pub struct WithDumps<'a> {
    scene: Scene<'a>,
    dumps: bool,
}

impl<'a> Scene<'a> {
    /// Returns the microseconds from sending `signal` to a victim until `told` returns.
    pub fn die(
        &self,
        role: Role,
        touched: usize,
        signal: Signal,
        told: &mut dyn FnMut(),
    ) -> Result<f64, StudyError> {
        self.with_dumps(false).die(role, touched, signal, told)
    }

    pub fn with_dumps(self, dumps: bool) -> WithDumps<'a> {
        WithDumps { scene: self, dumps }
    }

    /// Returns whether this machine's hard limit permits core dumps.
    pub fn dumps_can_be_on(&self) -> bool {
        getrlimit(Resource::Core)
            .maximum
            .is_none_or(|bytes| bytes > 0)
    }

    /// Starts a victim, and waits until it is ready.
    pub fn ready(&self, role: Role, touched: usize) -> Result<Playing, StudyError> {
        Ok(self.with_dumps(false).start(role, touched)?.0)
    }

    /// Returns the microseconds from SIGKILL until the victim's pidfd is readable.
    pub fn pidfd(&self, touched: usize) -> Result<f64, StudyError> {
        see_gone(self.ready(Role::Idle, touched)?)
    }

    /// Does the same with a victim that was stopped.
    pub fn stopped_and_killed(&self) -> Result<f64, StudyError> {
        let victim = self.ready(Role::Idle, 0)?;
        victim.signal(Signal::STOP)?;
        see_gone(victim)
    }
}

impl WithDumps<'_> {
    /// Does what [`Scene::die`] does.
    pub fn die(
        &self,
        role: Role,
        touched: usize,
        signal: Signal,
        told: &mut dyn FnMut(),
    ) -> Result<f64, StudyError> {
        let (victim, _directory) = self.start(role, touched)?;
        kill_and_wait(victim, signal, told)
    }

    /// Starts a victim, and waits until it is ready. Returns also the directory of its core dump.
    fn start(
        &self,
        role: Role,
        touched: usize,
    ) -> Result<(Playing, Option<tempfile::TempDir>), StudyError> {
        let Scene {
            pod,
            mutex,
            launcher,
        } = self.scene;
        let mut command = launcher.command(&Part::Victim(Victim {
            role,
            pod: pod.to_owned(),
            mutex: mutex.to_owned(),
            touched,
            dumps: self.dumps,
        }));
        command.stdout(Stdio::piped());
        let directory = match self.dumps {
            true => {
                let made = tempfile::tempdir();
                let made = made.map_err(StudyError::io("making a directory for a core dump"))?;
                command.current_dir(made.path());
                Some(made)
            }
            false => None,
        };
        let mut victim = launcher.start_command(&mut command)?;
        victim.await_ready()?;
        Ok((victim, directory))
    }
}

/// Returns the microseconds from SIGKILL until the victim's pidfd is readable.
fn see_gone(victim: Playing) -> Result<f64, StudyError> {
    let pidfd = pidfd_open(victim.pid(), PidfdFlags::empty());
    let pidfd = pidfd.map_err(|errno| StudyError::io("opening a pidfd")(errno.into()))?;
    kill_and_wait(victim, Signal::KILL, &mut || {
        let mut fds = [PollFd::new(&pidfd, PollFlags::IN)];
        let _ = poll(&mut fds, None);
    })
}

/// Sends `signal` to a victim from another thread, when `told` is already blocked. Returns the
/// microseconds until `told` returns.
fn kill_and_wait(
    mut victim: Playing,
    signal: Signal,
    told: &mut dyn FnMut(),
) -> Result<f64, StudyError> {
    let killed = AtomicU64::new(0);
    let mut end = 0;
    let sent = std::thread::scope(|scope| {
        let killer = scope.spawn(|| {
            // The watcher blocks first.
            std::thread::sleep(Duration::from_millis(3));
            killed.store(clock::now(), Ordering::SeqCst);
            victim.signal(signal)
        });
        told();
        end = clock::now();
        killer.join().expect("a thread that sends a signal")
    });
    sent?;
    victim.wait()?;
    // The effects of a death (its process's, its host's, its recovery) must end before the next.
    std::thread::sleep(Duration::from_millis(30));
    Ok(clock::micros(killed.load(Ordering::SeqCst), end))
}
