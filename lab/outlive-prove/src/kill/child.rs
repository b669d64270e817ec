//! Child processes that run part of a sweep: how they are stopped, inspected and killed.
//!
//! A child is a fork without exec: it has the test's code, the operation's value and the shared
//! memory at the same addresses, and needs no registration or second binary. The price is that a
//! fork of a process with several threads (a test harness) copies locks that other threads held. It
//! is sound enough here because:
//!
//! * the C library makes its allocator usable in a forked child (glibc and musl both do), so the
//!   child may allocate;
//! * the child never returns into the harness: it ends by `_exit`, runs no destructor and no
//!   `atexit`;
//! * a panic is written to the shared control page by a hook instead of to a stream whose lock
//!   another thread may have held;
//! * a child that still waits for a lock that is never released is ended by an alarm, and this is
//!   reported as such. So the methods of a sweep do not print.
//!
//! A child dies with its parent thread, and a [`Child`] that is dropped is killed and reaped.

use super::control::{Control, Phase};
use core::marker::PhantomData;
use core::sync::atomic::{AtomicPtr, Ordering};
use std::io;
use std::panic::{self, AssertUnwindSafe, PanicHookInfo};
use std::sync::{Mutex, PoisonError};

/// The way in which a child stopped or ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// It stopped after one more instruction, or at a breakpoint.
    Trapped,
    /// It stopped at the entry to or the exit from a system call.
    SystemCall,
    /// Its time is up.
    Late,
    /// A signal that indicates a bug is about to be delivered to it.
    Faulted(i32),
    /// It exited with this status.
    Exited(i32),
    /// This signal ended it.
    Killed(i32),
}

impl Stop {
    /// Returns the message for an unexpected stop.
    pub(super) fn describe(self, control: &Control, seconds: u32) -> String {
        match self {
            Self::Late | Self::Killed(libc::SIGALRM) => {
                format!(
                    "still running after {seconds} s: it waits for another process, or never ends"
                )
            }
            Self::Faulted(signal) | Self::Killed(signal) => format!("died of signal {signal}"),
            Self::Exited(status) => control
                .message()
                .unwrap_or_else(|| format!("ended with status {status}")),
            Self::Trapped | Self::SystemCall => "stopped".to_owned(),
        }
    }
}

/// How far a stopped child runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resume {
    /// One instruction.
    Step,
    /// To the next entry to or exit from a system call.
    SystemCall,
    /// To a breakpoint or its end.
    Run,
}

/// The statuses with which children end.
pub(super) const DONE: i32 = 0;
pub(super) const FAILED: i32 = 1;
const REFUSED: i32 = 2;
const PANICKED: i32 = 101;

/// A forked child of this thread.
#[derive(Debug)]
pub(super) struct Child {
    pid: libc::pid_t,
    reaped: bool,
    /// The signal to deliver when it is resumed.
    signal: i32,
    /// Only the thread that forked a child may trace it.
    not_send: PhantomData<*mut ()>,
}

/// The general registers of a stopped child.
pub(super) struct Registers(pub(super) libc::user_regs_struct);

impl Registers {
    /// Returns the address of the instruction that it would execute next.
    pub(super) fn instruction(&self) -> u64 {
        #[cfg(target_arch = "x86_64")]
        return self.0.rip;
        #[cfg(target_arch = "aarch64")]
        return self.0.pc;
    }
}

/// The control page of this process if it is a child, or null.
static OURS: AtomicPtr<Control> = AtomicPtr::new(core::ptr::null_mut());

/// Sends the panic message of a child to its control page; `false` if this process is no child.
pub(crate) fn capture_panic(info: &PanicHookInfo<'_>) -> bool {
    let control = OURS.load(Ordering::Relaxed);
    if control.is_null() {
        return false;
    }
    // SAFETY: only `run_child` stores here, a control page that is mapped for good.
    unsafe { &*control }.say(&info.to_string());
    true
}

impl Child {
    /// Forks a child that runs `work` for at most `seconds` and ends with its status.
    pub(super) fn fork(
        control: &'static Control,
        seconds: u32,
        work: impl FnOnce() -> i32,
    ) -> io::Result<Self> {
        crate::panics::listen();
        control.reset();
        // SAFETY: the module's documentation argues why the child may go on running Rust code.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => run_child(control, seconds, work),
            pid => Ok(Self {
                pid,
                reaped: false,
                signal: 0,
                not_send: PhantomData,
            }),
        }
    }

    /// Forks a child that asks to be traced and runs `work`, which stops before the instructions to
    /// be stepped. If it may not be traced, it [refuses](Control::refused) and ends.
    pub(super) fn traced(
        control: &'static Control,
        seconds: u32,
        work: impl FnOnce(),
    ) -> io::Result<Self> {
        Self::fork(control, seconds, || {
            // SAFETY: asks only to be traced by the parent.
            if unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) } == -1 {
                control.refuse(io::Error::last_os_error().raw_os_error().unwrap_or(0));
                return REFUSED;
            }
            work();
            DONE
        })
    }

    /// Makes the stopped child die with its tracer, and its system calls distinct from traps.
    pub(super) fn trace(&self) -> io::Result<()> {
        let options = libc::PTRACE_O_EXITKILL | libc::PTRACE_O_TRACESYSGOOD;
        self.ptrace(libc::PTRACE_SETOPTIONS, options as usize)
    }

    /// Makes the processor stop the child right before it executes the instruction at `address`, or
    /// nowhere. Returns `false` if that is not possible.
    pub(super) fn set_breakpoint(&self, address: Option<u64>) -> bool {
        #[cfg(target_arch = "x86_64")]
        {
            let registers = core::mem::offset_of!(libc::user, u_debugreg);
            let set = |register: usize, value: u64| {
                let place = registers + register * size_of::<u64>();
                // SAFETY: sets a debug register of the child, which changes only where it stops.
                unsafe { libc::ptrace(libc::PTRACE_POKEUSER, self.pid, place, value) != -1 }
            };
            // Register 7 switches: bit 0 is for register 0, in this task; execution is the default.
            set(7, 0) && address.is_none_or(|address| set(0, address) && set(7, 1))
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            address.is_none()
        }
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid as u32
    }

    fn ptrace(&self, request: libc::c_uint, data: usize) -> io::Result<()> {
        // SAFETY: requests that pass a number change only the child, a stopped child of this
        // thread.
        match unsafe { libc::ptrace(request, self.pid, 0usize, data) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }

    /// Waits until the child stops or ends. A signal that is not relevant to a sweep is passed on
    /// with the next [`resume`](Self::resume), and shows as [`Stop::Trapped`] only if it is a trap.
    pub(super) fn wait(&mut self) -> io::Result<Stop> {
        let status = self.status()?;
        if libc::WIFEXITED(status) {
            return Ok(Stop::Exited(libc::WEXITSTATUS(status)));
        }
        if libc::WIFSIGNALED(status) {
            return Ok(Stop::Killed(libc::WTERMSIG(status)));
        }
        const SYSTEM_CALL: i32 = libc::SIGTRAP | 0x80;
        Ok(match libc::WSTOPSIG(status) {
            libc::SIGTRAP | libc::SIGSTOP => Stop::Trapped,
            SYSTEM_CALL => Stop::SystemCall,
            libc::SIGALRM => Stop::Late,
            signal @ (libc::SIGSEGV
            | libc::SIGBUS
            | libc::SIGILL
            | libc::SIGFPE
            | libc::SIGABRT
            | libc::SIGSYS) => Stop::Faulted(signal),
            signal => {
                self.signal = signal;
                self.resume(Resume::Step)?
            }
        })
    }

    /// Resumes the stopped child and waits until it stops again or ends.
    pub(super) fn resume(&mut self, how: Resume) -> io::Result<Stop> {
        let request = match how {
            Resume::Step => libc::PTRACE_SINGLESTEP,
            Resume::SystemCall => libc::PTRACE_SYSCALL,
            Resume::Run => libc::PTRACE_CONT,
        };
        let signal = core::mem::take(&mut self.signal);
        self.ptrace(request, signal as usize)?;
        self.wait()
    }

    /// Delivers `signal` to the stopped child when it is resumed.
    pub(super) fn deliver(&mut self, signal: i32) {
        self.signal = signal;
    }

    /// Returns the address whose access has stopped the child, by a fault.
    pub(super) fn fault_address(&self) -> io::Result<usize> {
        // SAFETY: all zero is a valid `siginfo_t`; the kernel fills it.
        let (read, info) = unsafe {
            let mut info: libc::siginfo_t = core::mem::zeroed();
            let place = &raw mut info;
            (
                libc::ptrace(libc::PTRACE_GETSIGINFO, self.pid, 0usize, place),
                info,
            )
        };
        if read == -1 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the signal is a fault's, so there is an address.
        Ok(unsafe { info.si_addr() }.addr())
    }

    /// Returns its registers while it is stopped.
    pub(super) fn registers(&self) -> io::Result<Registers> {
        // SAFETY: all zero is a valid value for a struct of integers.
        let mut registers = Registers(unsafe { core::mem::zeroed() });
        let mut place = libc::iovec {
            iov_base: (&raw mut registers.0).cast(),
            iov_len: size_of::<libc::user_regs_struct>(),
        };
        /// The general registers, in the kernel's numbering of register sets.
        const GENERAL: usize = 1;
        // SAFETY: the kernel writes at most `iov_len` bytes to `registers`.
        let read = unsafe {
            let place = &raw mut place;
            libc::ptrace(libc::PTRACE_GETREGSET, self.pid, GENERAL, place)
        };
        if read == -1 {
            return Err(io::Error::last_os_error());
        }
        Ok(registers)
    }

    /// Kills it by SIGKILL, whatever it is doing, and waits until it has ended. A stopped child
    /// executes no further instruction.
    pub(super) fn kill(mut self) -> io::Result<()> {
        self.end()
    }

    fn end(&mut self) -> io::Result<()> {
        if !self.reaped {
            // SAFETY: it has not been reaped, so the pid is still its own.
            unsafe { libc::kill(self.pid, libc::SIGKILL) };
        }
        while !self.reaped {
            self.status()?;
        }
        Ok(())
    }

    /// Waits for the next change of the child's state and returns it as the kernel encodes it.
    fn status(&mut self) -> io::Result<i32> {
        let mut status = 0;
        loop {
            // SAFETY: waits for this very child; `status` is writable.
            if unsafe { libc::waitpid(self.pid, &raw mut status, libc::__WALL) } == self.pid {
                self.reaped = libc::WIFEXITED(status) || libc::WIFSIGNALED(status);
                return Ok(status);
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Nothing more can be done if even this fails.
        let _ = self.end();
    }
}

/// Runs a forked child.
fn run_child(control: &'static Control, seconds: u32, work: impl FnOnce() -> i32) -> ! {
    OURS.store(core::ptr::from_ref(control).cast_mut(), Ordering::Relaxed);
    set_alarm(seconds);
    let no_core = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: asks to be killed when the thread that forked it ends, and to leave no core file if
    // it crashes; `no_core` lives through the call.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::setrlimit(libc::RLIMIT_CORE, &raw const no_core);
    }
    let status = panic::catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|payload| {
        // The hook has left the message, unless another hook has replaced it.
        if control.message().is_none() {
            let text = payload.downcast_ref::<&str>().copied();
            let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
            control.say(text.unwrap_or("panicked"));
        }
        control.enter(Phase::Panicked);
        PANICKED
    });
    // SAFETY: ends this process and nothing else.
    unsafe { libc::_exit(status) }
}

/// Ends this process by SIGALRM after `seconds`, unless it is called again before.
pub(super) fn set_alarm(seconds: u32) {
    // SAFETY: plain calls on this process, which is a child of a sweep and owns its signals.
    unsafe {
        let mut alarm: libc::sigset_t = core::mem::zeroed();
        libc::sigemptyset(&raw mut alarm);
        libc::sigaddset(&raw mut alarm, libc::SIGALRM);
        libc::signal(libc::SIGALRM, libc::SIG_DFL);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const alarm, core::ptr::null_mut());
        libc::alarm(seconds.max(1));
    }
}

/// Keeps this thread, and the children that it forks, on one processor while it lives: a step is
/// two context switches, which cost a fraction there of their cost between processors.
#[derive(Debug)]
pub(super) struct Pinned {
    before: Option<(libc::cpu_set_t, usize)>,
}

/// The number of threads of this process kept on each processor.
static KEPT: Mutex<[u32; libc::CPU_SETSIZE as usize]> = Mutex::new([0; libc::CPU_SETSIZE as usize]);

impl Pinned {
    /// Chooses one of the processors with the fewest threads so far.
    pub(super) fn somewhere() -> Self {
        let size = size_of::<libc::cpu_set_t>();
        // SAFETY: a set of bits, all zero; reads the affinity of the calling thread into it.
        let before = unsafe {
            let mut before: libc::cpu_set_t = core::mem::zeroed();
            (libc::sched_getaffinity(0, size, &raw mut before) == 0).then_some(before)
        };
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        let before = before.and_then(|before| {
            // SAFETY: reads a bit of the set; the number is below its size.
            let allowed = |&cpu: &usize| unsafe { libc::CPU_ISSET(cpu, &before) };
            let cpu = (0..kept.len())
                .filter(allowed)
                .min_by_key(|&cpu| kept[cpu])?;
            // SAFETY: sets the affinity of the calling thread only, to a set of the size given.
            let moved = unsafe {
                let mut there: libc::cpu_set_t = core::mem::zeroed();
                libc::CPU_SET(cpu, &mut there);
                libc::sched_setaffinity(0, size, &raw const there) == 0
            };
            moved.then_some((before, cpu))
        });
        if let Some((_, cpu)) = before {
            kept[cpu] += 1;
        }
        Self { before }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Some((before, cpu)) = self.before {
            KEPT.lock().unwrap_or_else(PoisonError::into_inner)[cpu] -= 1;
            // SAFETY: sets the affinity of the calling thread back to what it was.
            unsafe { libc::sched_setaffinity(0, size_of_val(&before), &raw const before) };
        }
    }
}
