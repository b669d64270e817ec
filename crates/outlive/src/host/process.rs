//! Handles on processes: pidfds that were checked by start time.

use super::proc::{Proc, differ, no_such_thread};
use super::{OsError, ProcessHandle, ProcessIdentity};
use core::time::Duration;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};
use std::sync::Once;
use std::{io, thread};

/// The interval at which a process without a pidfd is polled.
const POLL: Duration = Duration::from_millis(1);

/// Opens a handle on `process`; `None` if it is gone.
///
/// The pidfd is opened first, then the start time is read. `process` was seen alive before this
/// call. So if its pid still has its start time after the pidfd was opened, the pid was its own in
/// between, and so the pidfd refers to it. `namespaces` are those in which its start time was read.
pub(super) fn open(
    process: ProcessIdentity,
    namespaces: u64,
) -> Result<Option<Box<dyn ProcessHandle>>, OsError> {
    let Some(pid) = i32::try_from(process.pid).ok().and_then(Pid::from_raw) else {
        return Ok(None);
    };
    let pidfd = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pidfd) => Some(pidfd),
        // EINVAL: the pid is the id of a thread by now.
        Err(Errno::SRCH | Errno::INVAL) => return Ok(None),
        Err(Errno::NOSYS | Errno::PERM) => None,
        Err(error) => {
            return Err(OsError::Call {
                call: format!("pidfd_open of process {}", process.pid),
                source: error.into(),
            });
        }
    };
    let proc = match Proc::own(namespaces) {
        Err(source) if source.kind() != io::ErrorKind::Unsupported => {
            return Err(OsError::Call {
                call: "opening /proc".into(),
                source,
            });
        }
        Ok(proc) if process.start_time != 0 => proc,
        // A pid alone may be another process's by now.
        Ok(_) => {
            return Err(OsError::Missing {
                what: "the start time of the process",
                hint: format!(
                    "process {} had no /proc of its PID namespace when it joined, so it cannot be distinguished from \
                     a later one; mount it there and restart the process",
                    process.pid
                ),
            });
        }
        Err(_) => {
            return Err(OsError::Missing {
                what: "/proc of this PID namespace",
                hint: "without it processes cannot be distinguished from later ones with the same pid; mount it: mount -t proc \
                       proc /proc"
                    .into(),
            });
        }
    };
    match proc.of_process(process.pid) {
        Ok(stat) if differ(stat.start_time, process.start_time) => return Ok(None),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if no_such_thread(process.pid, process.pid) {
                return Ok(None);
            }
            return Err(OsError::Missing {
                what: "/proc of other processes",
                hint: format!(
                    "process {} exists but /proc hides it; mount /proc without hidepid, or run the \
                     members of a pod as one user",
                    process.pid
                ),
            });
        }
        Err(source) => {
            return Err(OsError::Call {
                call: format!("reading /proc/{}/stat", process.pid),
                source,
            });
        }
    }
    let handle: Box<dyn ProcessHandle> = match pidfd {
        Some(pidfd) => Box::new(Watched {
            process,
            namespaces,
            pid,
            pidfd,
        }),
        None => {
            static ONCE: Once = Once::new();
            ONCE.call_once(|| {
                tracing::warn!(
                    "pidfd_open is missing or filtered: processes are watched by polling /proc"
                );
            });
            Box::new(Polled {
                process,
                namespaces,
                pid,
            })
        }
    };
    Ok((!handle.is_gone()).then_some(handle))
}

/// A process with a pidfd.
#[derive(Debug)]
struct Watched {
    process: ProcessIdentity,
    namespaces: u64,
    pid: Pid,
    pidfd: OwnedFd,
}

impl Watched {
    fn gone_within(&self, timeout: Duration) -> bool {
        let until = std::time::Instant::now().checked_add(timeout);
        loop {
            let left =
                until.map(|until| until.saturating_duration_since(std::time::Instant::now()));
            let left_spec = left.and_then(|left| Timespec::try_from(left).ok());
            let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
            match poll(&mut fds, left_spec.as_ref()) {
                Ok(ready) if ready > 0 => return true,
                Ok(_) => return false,
                // A signal; wait for the remaining time.
                Err(Errno::INTR) => {}
                Err(error) => {
                    tracing::error!(%error, pid = self.process.pid, "a pidfd cannot be polled");
                    return false;
                }
            }
        }
    }
}

impl ProcessHandle for Watched {
    fn identity(&self) -> ProcessIdentity {
        self.process
    }

    fn is_gone(&self) -> bool {
        self.gone_within(Duration::ZERO)
    }

    fn send_kill(&self) -> bool {
        match pidfd_send_signal(&self.pidfd, Signal::KILL) {
            Ok(()) | Err(Errno::SRCH) => true,
            // Filtered, or not permitted; the older call shows which.
            Err(Errno::NOSYS | Errno::PERM) => {
                kill_checked(self.process, self.namespaces, self.pid)
            }
            Err(_) => false,
        }
    }

    fn wait_gone(&self, timeout: Duration) -> bool {
        self.gone_within(timeout)
    }
}

/// A process where pidfds are not available. Between the check of its start time and the kill, its
/// pid could in principle be reused: the process would have to end and be reaped, and all other
/// pids be used up in between.
#[derive(Debug)]
struct Polled {
    process: ProcessIdentity,
    namespaces: u64,
    pid: Pid,
}

impl ProcessHandle for Polled {
    fn identity(&self) -> ProcessIdentity {
        self.process
    }

    fn is_gone(&self) -> bool {
        match Proc::own(self.namespaces).map(|proc| proc.of_process(self.process.pid)) {
            // A zombie leader may be survived by other threads.
            Ok(Ok(stat)) => {
                stat.start_time != self.process.start_time || stat.is_dead() && stat.threads <= 1
            }
            _ => no_such_thread(self.process.pid, self.process.pid),
        }
    }

    fn send_kill(&self) -> bool {
        kill_checked(self.process, self.namespaces, self.pid)
    }

    fn wait_gone(&self, timeout: Duration) -> bool {
        let start = std::time::Instant::now();
        loop {
            if self.is_gone() {
                return true;
            }
            if start.elapsed() >= timeout {
                return false;
            }
            thread::sleep(POLL);
        }
    }
}

/// Kills by pid, right after a check that the pid is still that of `process`.
fn kill_checked(process: ProcessIdentity, namespaces: u64, pid: Pid) -> bool {
    match Proc::own(namespaces).and_then(|proc| proc.of_process(process.pid)) {
        Ok(stat) if differ(stat.start_time, process.start_time) => true,
        Ok(_) => matches!(kill_process(pid, Signal::KILL), Ok(()) | Err(Errno::SRCH)),
        Err(_) => no_such_thread(process.pid, process.pid),
    }
}

#[cfg(test)]
mod tests {
    use super::super::proc::Place;
    use super::*;
    use std::process::{Child, Command};

    fn here() -> u64 {
        Place::of_this_process().unwrap().namespaces
    }

    fn stat_of(pid: u32) -> io::Result<super::super::proc::Stat> {
        Proc::own(here())?.of_process(pid)
    }

    fn sleeper() -> (Child, ProcessIdentity) {
        let child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id();
        let start_time = stat_of(pid).unwrap().start_time;
        (child, ProcessIdentity { pid, start_time })
    }

    #[test]
    fn the_handle_without_pidfd_kills_and_sees_the_zombie_as_gone() {
        let (mut child, process) = sleeper();
        let pid = Pid::from_child(&child);
        let handle = Polled {
            process,
            namespaces: here(),
            pid,
        };
        assert!(!handle.is_gone());
        assert!(!handle.wait_gone(Duration::from_millis(5)));
        assert!(handle.send_kill());
        assert!(handle.wait_gone(Duration::from_secs(20)));
        // It has not been reaped yet.
        assert!(stat_of(process.pid).unwrap().is_dead());
        child.wait().unwrap();
        assert!(handle.is_gone());
        assert!(
            handle.send_kill(),
            "it is gone, so there is nothing to refuse"
        );
    }

    #[test]
    fn a_recycled_pid_is_never_killed() {
        let (mut child, process) = sleeper();
        let earlier = ProcessIdentity {
            start_time: process.start_time - 1,
            ..process
        };
        assert!(open(earlier, here()).unwrap().is_none());
        let pid = Pid::from_child(&child);
        assert!(kill_checked(earlier, here(), pid));
        assert!(
            child.try_wait().unwrap().is_none(),
            "another process was killed"
        );
        let handle = open(process, here()).unwrap().unwrap();
        assert!(handle.send_kill());
        assert!(handle.wait_gone(Duration::from_secs(20)));
        assert!(open(process, here()).unwrap().is_none(), "a zombie is gone");
        child.wait().unwrap();
        assert!(open(process, here()).unwrap().is_none());
    }
}
