//! Checks that SIGKILL ends processes: without that effect, a proof by kills shows nothing.

use super::child::set_alarm;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The time within which a child must be gone after SIGKILL.
const PATIENCE: Duration = Duration::from_secs(5);
/// The time in seconds after which a child ends that was not killed: more than the patience.
const ALARM: u32 = 6;

/// SIGKILL does not end a process here, so a proof by kills would show nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "SIGKILL by {call} has not ended a process within {} s, so proofs by kills are void here: a \
     filter (seccomp) may answer the call without executing it",
    PATIENCE.as_secs()
)]
pub struct KillsDoNothing {
    /// The call by which it was sent.
    pub call: &'static str,
}

/// Kills two children, one by `kill` and one by `pidfd_send_signal`, and fails if one of them
/// survives. The result is cached for the process.
///
/// ```
/// outlive_prove::kill::require_effective_kills()?;
/// # Ok::<(), outlive_prove::kill::KillsDoNothing>(())
/// ```
///
/// # Errors
/// [`KillsDoNothing`]; after six seconds, if a call does nothing.
pub fn require_effective_kills() -> Result<(), KillsDoNothing> {
    static ANSWER: OnceLock<Result<(), KillsDoNothing>> = OnceLock::new();
    ANSWER
        .get_or_init(|| {
            require(|pid| {
                // SAFETY: the child is not reaped yet, so the pid is its own.
                Some(unsafe { libc::kill(pid, libc::SIGKILL) == 0 })
            })
            .map_err(|()| KillsDoNothing { call: "kill(2)" })?;
            require(by_pidfd).map_err(|()| KillsDoNothing {
                call: "pidfd_send_signal(2)",
            })
        })
        .clone()
}

/// Returns `None` if the kernel or a filter has no pidfds: then no process is killed through one.
fn by_pidfd(pid: libc::pid_t) -> Option<bool> {
    // SAFETY: plain calls; the descriptor is owned from here on.
    unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, pid, 0);
        let fd = OwnedFd::from_raw_fd(i32::try_from(fd).ok().filter(|fd| *fd >= 0)?);
        let (number, nothing) = (libc::SYS_pidfd_send_signal, core::ptr::null::<u8>());
        let sent = libc::syscall(number, fd.as_raw_fd(), libc::SIGKILL, nothing, 0);
        let is_refused =
            sent != 0 && io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH);
        (!is_refused).then_some(sent == 0)
    }
}

/// Returns whether `kill` ends a child; `Ok` also if no child or no `kill` is available.
fn require(kill: impl Fn(libc::pid_t) -> Option<bool>) -> Result<(), ()> {
    // SAFETY: the child makes plain calls until it ends, at the latest by its alarm.
    let child = match unsafe { libc::fork() } {
        -1 => return Ok(()),
        // SAFETY: as above.
        0 => unsafe {
            set_alarm(ALARM);
            loop {
                libc::pause();
            }
        },
        child => child,
    };
    let is_sent = kill(child);
    let until = Instant::now() + PATIENCE;
    let (mut status, mut is_in_time) = (0, true);
    while is_in_time {
        // SAFETY: waits for this function's own child.
        match unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } {
            0 => {}
            // It has ended, and is reaped by the kernel where SIGCHLD is ignored.
            -1 => return Ok(()),
            _ => break,
        }
        is_in_time = is_sent.is_some() && Instant::now() < until;
        std::thread::sleep(Duration::from_millis(1));
    }
    if !is_in_time {
        // SAFETY: as above. Where the signal does nothing, the alarm ends the child.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, &raw mut status, 0);
        }
    }
    let is_killed = libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL;
    if is_sent.is_none() || is_in_time && is_killed {
        Ok(())
    } else {
        Err(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kills_kill_here() {
        assert_eq!(require_effective_kills(), Ok(()));
        assert_eq!(require(|_| None), Ok(()));
    }
}
