//! The threads that a process has for its pods, in addition to the program's own.

use super::OsError;
use core::mem::MaybeUninit;
use std::sync::OnceLock;
use std::thread::{Builder, JoinHandle};

/// Signals that an instruction of the thread itself causes. If they were blocked, they would kill
/// the process without running their handler.
const SYNCHRONOUS: [libc::c_int; 6] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGFPE,
    libc::SIGTRAP,
    libc::SIGSYS,
];

/// Starts a thread that blocks the program's signals and does not inherit a low priority of the
/// calling thread. A handler may wait for work of the new thread, and a host whose heartbeat
/// advances too rarely is fenced.
///
/// # Errors
/// If the thread cannot be started.
pub(crate) fn spawn(
    name: &str,
    body: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, OsError> {
    let before = block_signals();
    let _ = PROGRAM.set(before);
    // The new thread starts with the mask of the calling thread.
    let spawned = Builder::new().name(name.into()).spawn(move || {
        take_normal_priority();
        body();
    });
    // SAFETY: the mask is the one that the calling thread had before.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, core::ptr::null_mut()) };
    spawned.map_err(|source| match source.raw_os_error() {
        Some(libc::EAGAIN | libc::ENOMEM) => OsError::Missing {
            what: "capacity for one more thread",
            hint: format!(
                "{name} could not be started ({source}); raise the limit on threads (ulimit -u, the container's pids \
                 limit) or on memory (ulimit -v)"
            ),
        },
        _ => OsError::Call {
            call: format!("starting the thread {name}"),
            source,
        },
    })
}

/// The signal mask of the thread that first started one of these threads: the program's.
static PROGRAM: OnceLock<libc::sigset_t> = OnceLock::new();

/// Gives the calling thread, which was started by one of these threads, the program's signal mask.
pub(crate) fn take_program_signals() {
    if let Some(mask) = PROGRAM.get() {
        // SAFETY: a mask that the kernel gave.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, core::ptr::null_mut()) };
    }
}

/// Blocks all asynchronous signals for the calling thread, and returns its mask before.
pub(super) fn block_signals() -> libc::sigset_t {
    let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: `sigfillset` initialises `all`, and `pthread_sigmask` initialises `before`; neither
    // fails with these arguments.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        for signal in SYNCHRONOUS {
            libc::sigdelset(all.as_mut_ptr(), signal);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        before.assume_init()
    }
}

/// Raises the calling thread to normal priority, as far as the limits of the process allow it. A
/// higher priority is kept.
fn take_normal_priority() {
    // SAFETY: these calls take numbers, and a structure that outlives them; 0 is the calling
    // thread.
    unsafe {
        if matches!(
            libc::sched_getscheduler(0),
            libc::SCHED_IDLE | libc::SCHED_BATCH
        ) {
            let normal: libc::sched_param = core::mem::zeroed();
            libc::sched_setscheduler(0, libc::SCHED_OTHER, &raw const normal);
        }
        if libc::getpriority(libc::PRIO_PROCESS, 0) > 0 {
            libc::setpriority(libc::PRIO_PROCESS, 0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    fn is_blocked(signal: libc::c_int) -> bool {
        let mut mask = MaybeUninit::uninit();
        // SAFETY: without a new mask the call only initialises `mask`.
        unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, core::ptr::null(), mask.as_mut_ptr());
            libc::sigismember(mask.as_ptr(), signal) == 1
        }
    }

    #[test]
    fn a_service_takes_no_signals_and_no_low_priority() {
        let (answer, answers) = mpsc::channel();
        // In a thread of its own, because the lowered priority stays with the thread.
        let low = std::thread::spawn(move || {
            // SAFETY: a structure that outlives the call; 0 is the calling thread.
            unsafe {
                let lowest: libc::sched_param = core::mem::zeroed();
                libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const lowest);
            }
            let service = spawn("service", move || {
                // SAFETY: the call takes a number.
                let policy = unsafe { libc::sched_getscheduler(0) };
                let blocked = [libc::SIGTERM, libc::SIGCHLD, libc::SIGUSR1].map(is_blocked);
                let _ = answer.send((policy, blocked, is_blocked(libc::SIGSEGV)));
            });
            service.expect("a thread").join().expect("it ends");
            is_blocked(libc::SIGTERM)
        });
        assert!(!low.join().unwrap(), "the caller's mask is as before");
        let (policy, blocked, is_fault_blocked) = answers.recv().unwrap();
        // A user other than root may raise a priority only as far as RLIMIT_NICE allows.
        if rustix::process::geteuid().is_root() {
            assert_eq!(policy, libc::SCHED_OTHER);
        }
        assert_eq!(blocked, [true; 3]);
        assert!(!is_fault_blocked);
    }
}
