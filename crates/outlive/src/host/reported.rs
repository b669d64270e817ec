//! A command whose exit status is never that of another process.
//!
//! A program that has a command as a child can lose its status, or take another child's status for
//! it: a supervisor reaps all children, so that the pid of the command may be that of a later
//! child; a daemon closes all descriptors, so that the number of a pidfd may be that of another
//! one.
//!
//! So the command is the child of a *helper*, a fork of the calling process in which no code of the
//! program runs. The helper waits for the command and writes its status into a pipe, after a random
//! number that was drawn before the fork. Only bytes that begin with that number are a report: a
//! report that does not arrive is never replaced by another one.
//!
//! The helper dies with the thread that started it, and the command with the helper.
//!
//! Tests: tests/host_fencing.rs.

use super::service::block_signals;
use core::ffi::{c_char, c_int};
use core::time::Duration;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process_group, waitpid};
use rustix::rand::{GetRandomFlags, getrandom};
use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Instant;

/// The maximum size of a command's output that is kept, in bytes.
const MOST_OUTPUT: usize = 16 << 10;
/// The size of a report: the random number, what is reported, and its value.
const REPORT: usize = 24;
/// The first word of a report: the command was not executed, for the error that follows.
const NOT_EXECUTED: u32 = 1;
/// The first word of a report: the command has ended, with the status that follows.
const ENDED: u32 = 2;

/// How a command ended, with the beginning of its output.
pub(super) enum End {
    /// It has ended by itself.
    Ended(ExitStatus, String),
    /// It exceeded the time limit, and was killed with its process group.
    Killed(String),
}

/// Runs the program `words[0]` with the other words as arguments and `variables` added to the
/// environment, for at most `timeout`. It leads no session or group; its group is the helper's. A
/// descendant that keeps the output open is not waited for.
///
/// # Errors
/// If it could not be executed, or its status is not known.
pub(super) fn run(
    words: &[OsString],
    variables: &[(&str, &str)],
    timeout: Duration,
) -> io::Result<End> {
    Running::start(words, variables)?.finish(timeout)
}

struct Running {
    helper: Pid,
    number: [u8; 16],
    report: File,
    /// `None` after its end.
    output: Option<File>,
}

/// Everything that the helper and the command need: after the fork they allocate nothing.
struct Prepared {
    arguments: Vec<*const c_char>,
    environment: Vec<*const c_char>,
    caller: Pid,
    number: [u8; 16],
    null: OwnedFd,
    output: OwnedFd,
    report: OwnedFd,
}

impl Running {
    fn start(words: &[OsString], variables: &[(&str, &str)]) -> io::Result<Self> {
        let words = words
            .iter()
            .map(|word| CString::new(word.clone().into_vec()));
        let words: Vec<CString> = words.collect::<Result<_, _>>()?;
        let environment = environment(variables)?;
        let mut number = [0; 16];
        let drawn = getrandom(&mut number, GetRandomFlags::empty())?;
        if drawn != number.len() {
            return Err(Errno::AGAIN.into());
        }
        let (output, output_writer) = pipe()?;
        let (report, report_writer) = pipe()?;
        let null = rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let prepared = Prepared {
            arguments: pointers(&words),
            environment: pointers(&environment),
            caller: getpid(),
            number,
            null: above_standard(null)?,
            output: output_writer,
            report: report_writer,
        };
        // Blocked, so that no handler of the program runs in the helper, one that reaps children
        // for example.
        let before = block_signals();
        // SAFETY: the child makes system calls only, and never returns.
        let forked = unsafe { fork() };
        if forked == 0 {
            // SAFETY: this is the only thread of the new process.
            unsafe { help(&prepared) };
        }
        let forked = match Pid::from_raw(forked) {
            Some(helper) if forked > 0 => Ok(helper),
            _ => Err(io::Error::last_os_error()),
        };
        // SAFETY: the mask is the one that the calling thread had before.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, core::ptr::null_mut());
        }
        Ok(Self {
            helper: forked?,
            number,
            report: report.into(),
            output: Some(output.into()),
        })
    }

    fn finish(mut self, timeout: Duration) -> io::Result<End> {
        let start = Instant::now();
        let mut output = Vec::new();
        let ended = loop {
            let left = timeout.saturating_sub(start.elapsed());
            match self.wait(left, &mut output) {
                Ok(None) if left.is_zero() => break Ok(None),
                Ok(None) => {}
                ended => break ended,
            }
        };
        if matches!(ended, Ok(None)) {
            // Its end of the pipe is open, so it lives or is about to end as the parent of no other
            // process than the command, and its pid is its own. If the pipe was closed without a
            // report, it was killed, and the command with it: the pid may be another process's.
            let _ = kill_process_group(self.helper, Signal::KILL);
        }
        self.reap();
        self.read_output(&mut output);
        let output = String::from_utf8_lossy(&output).trim().to_owned();
        Ok(match ended? {
            Some(status) => End::Ended(status, output),
            None => End::Killed(output),
        })
    }

    /// Reaps the helper, which ends after its report or was killed. The program may have reaped it
    /// before, and its pid may be that of a child that continues, so the wait is limited.
    fn reap(&self) {
        let until = Instant::now() + Duration::from_secs(1);
        while let Ok(None) = waitpid(Some(self.helper), WaitOptions::NOHANG)
            && Instant::now() < until
        {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits for a report or output, for at most `timeout`. Returns the reported status.
    fn wait(&mut self, timeout: Duration, output: &mut Vec<u8>) -> io::Result<Option<ExitStatus>> {
        let timeout = Timespec::try_from(timeout).ok();
        let mut fds = vec![PollFd::new(&self.report, PollFlags::IN)];
        fds.extend(self.output.iter().map(|it| PollFd::new(it, PollFlags::IN)));
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let [is_reported, has_output] = [0, 1].map(|at| {
            let events = fds.get(at).map(PollFd::revents);
            events.is_some_and(|events| !events.is_empty())
        });
        if has_output {
            self.read_output(output);
        }
        match is_reported {
            true => self.read_report().map(Some),
            false => Ok(None),
        }
    }

    fn read_report(&mut self) -> io::Result<ExitStatus> {
        let lost = "its exit status was lost: its helper was killed, or the program closed a \
                    descriptor of this library";
        let mut report = [0; REPORT];
        // An error is one of another file, which has the number of the pipe by now.
        let bytes = (&self.report).read(&mut report).unwrap_or(0);
        let (number, rest) = report.split_at(self.number.len());
        let word =
            |at: usize| u32::from_ne_bytes([rest[at], rest[at + 1], rest[at + 2], rest[at + 3]]);
        match (bytes, word(0)) {
            (REPORT, ENDED) if number == self.number => Ok(ExitStatus::from_raw(word(4) as i32)),
            (REPORT, NOT_EXECUTED) if number == self.number => {
                Err(io::Error::from_raw_os_error(word(4) as i32))
            }
            _ => Err(io::Error::other(lost)),
        }
    }

    /// Reads the available output, at most a few pieces: a command that writes without end does not
    /// delay the time limit.
    fn read_output(&mut self, kept: &mut Vec<u8>) {
        let mut piece = [0; 4096];
        for _ in 0..16 {
            let Some(output) = &mut self.output else {
                return;
            };
            // Asked each time: the number of the descriptor may be that of a file that blocks.
            let mut fds = [PollFd::new(output, PollFlags::IN)];
            if poll(&mut fds, Some(&Timespec::default())) != Ok(1) {
                return;
            }
            match output.read(&mut piece) {
                Ok(bytes) if bytes > 0 => {
                    let space = MOST_OUTPUT - kept.len();
                    kept.extend_from_slice(&piece[..bytes.min(space)]);
                }
                Ok(_) | Err(_) => self.output = None,
            }
        }
    }
}

/// Returns a pipe whose reader does not block.
fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = io::pipe()?;
    rustix::io::ioctl_fionbio(&reader, true)?;
    Ok((reader.into(), above_standard(writer.into())?))
}

/// Returns a duplicate that is not one of the three standard descriptors, which a program may have
/// closed.
fn above_standard(fd: OwnedFd) -> io::Result<OwnedFd> {
    Ok(fcntl_dupfd_cloexec(fd, 3)?)
}

/// Returns the environment of this process with `variables`.
fn environment(variables: &[(&str, &str)]) -> io::Result<Vec<CString>> {
    let is_replaced = |name: &OsString| variables.iter().any(|(it, _)| name == it);
    let kept = std::env::vars_os().filter(|(name, _)| !is_replaced(name));
    let added = variables
        .iter()
        .map(|(name, value)| (name.into(), value.into()));
    let all = kept
        .chain(added)
        .map(|(mut name, value): (OsString, OsString)| {
            name.push("=");
            name.push(value);
            CString::new(name.into_vec()).map_err(io::Error::from)
        });
    all.collect()
}

/// Returns the addresses of `texts`, and a null.
fn pointers(texts: &[CString]) -> Vec<*const c_char> {
    let texts = texts.iter().map(|text| text.as_ptr());
    texts.chain([core::ptr::null()]).collect()
}

/// Forks without the handlers that the program has registered for a fork.
///
/// # Safety
/// The child may only make system calls: locks of the C library may be held in it by threads that
/// it does not have.
unsafe fn fork() -> libc::pid_t {
    let none: libc::c_long = 0;
    // SAFETY: as the caller guarantees; the child has a copy of this thread's stack.
    let forked = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, none, none, none, none) };
    forked as libc::pid_t
}

/// Runs in the helper: starts the command, waits for it, and reports.
///
/// # Safety
/// The caller is the only thread of a forked process, with all signals blocked.
unsafe fn help(prepared: &Prepared) -> ! {
    let report = prepared.report.as_raw_fd();
    // SAFETY: system calls whose arguments are numbers, or addresses of values that live until the
    // process ends. Everything here is async-signal-safe.
    unsafe {
        libc::setpgid(0, 0);
        if !dies_with(prepared.caller.as_raw_nonzero().get()) {
            libc::_exit(1);
        }
        // A program that ignores the signal makes the kernel discard the status.
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        let helper = libc::getpid();
        let command = fork();
        if command == 0 {
            become_command(prepared, helper);
        }
        let (what, value) = match command {
            -1 => (NOT_EXECUTED, last_error()),
            command => {
                close_all_but(report);
                let mut status = 0;
                while libc::waitpid(command, &raw mut status, 0) == -1 {
                    if last_error() != libc::EINTR {
                        libc::_exit(1);
                    }
                }
                (ENDED, status)
            }
        };
        send(report, prepared.number, what, value);
        libc::_exit(0)
    }
}

/// Runs in the child of the helper: executes the command.
///
/// # Safety
/// The conditions of [`help`] apply.
unsafe fn become_command(prepared: &Prepared, helper: libc::pid_t) -> ! {
    // SAFETY: as in `help`; the vectors of addresses end with a null.
    unsafe {
        if !dies_with(helper) {
            libc::_exit(1);
        }
        libc::dup2(prepared.null.as_raw_fd(), libc::STDIN_FILENO);
        libc::dup2(prepared.output.as_raw_fd(), libc::STDOUT_FILENO);
        libc::dup2(prepared.output.as_raw_fd(), libc::STDERR_FILENO);
        // Programs expect its default action, and a Rust program ignores it.
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        let mut none = core::mem::MaybeUninit::uninit();
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), core::ptr::null_mut());
        libc::execvpe(
            prepared.arguments[0],
            prepared.arguments.as_ptr(),
            prepared.environment.as_ptr(),
        );
        send(
            prepared.report.as_raw_fd(),
            prepared.number,
            NOT_EXECUTED,
            last_error(),
        );
        libc::_exit(127)
    }
}

/// Makes the kernel kill the calling process when the thread of `parent` that forked it dies.
/// Returns `false` if it died before: then the kernel sends no signal.
fn dies_with(parent: libc::pid_t) -> bool {
    // SAFETY: system calls with numbers.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) == 0 && libc::getppid() == parent }
}

/// Closes all descriptors of this process except `kept`: locks of the program must not last as long
/// as the helper.
fn close_all_but(kept: c_int) {
    let kept = kept as u32;
    // SAFETY: system calls with numbers, in a process that uses no other descriptor.
    unsafe {
        let close = |first: u32, last: u32| libc::syscall(libc::SYS_close_range, first, last, 0);
        if close(0, kept - 1) == 0 && close(kept + 1, u32::MAX) == 0 {
            return;
        }
        // A kernel before 5.9.
        let mut limit: libc::rlimit = core::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        for fd in 0..u32::try_from(limit.rlim_cur).unwrap_or(u32::MAX) {
            if fd != kept {
                libc::close(fd as c_int);
            }
        }
    }
}

fn send(report: c_int, number: [u8; 16], what: u32, value: c_int) {
    let mut bytes = [0; REPORT];
    bytes[..16].copy_from_slice(&number);
    bytes[16..20].copy_from_slice(&what.to_ne_bytes());
    bytes[20..].copy_from_slice(&value.to_ne_bytes());
    // SAFETY: the bytes live. So few are written in one piece or not at all.
    unsafe { libc::write(report, bytes.as_ptr().cast(), REPORT) };
}

fn last_error() -> c_int {
    // SAFETY: the address of this thread's own word.
    unsafe { *libc::__errno_location() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn shell(script: &str, timeout: Duration) -> (Option<ExitStatus>, String) {
        let words = ["sh", "-c", script].map(OsString::from);
        match run(&words, &[], timeout).unwrap() {
            End::Ended(status, output) => (Some(status), output),
            End::Killed(output) => (None, output),
        }
    }

    #[test]
    fn one_that_hangs_is_killed_with_its_children_and_a_talker_does_not_fill_memory() {
        let print_group = "read pid name state parent group rest </proc/self/stat; echo $group";
        let (status, output) = shell(
            &format!("{print_group}; sleep 1000 & sleep 1000"),
            Duration::from_millis(200),
        );
        assert_eq!(status, None);
        let group: i32 = output.parse().unwrap();
        // Another process reaps the orphan; wait until the group is gone.
        let start = Instant::now();
        // SAFETY: signal 0 is never sent; the call only checks.
        while unsafe { libc::kill(-group, 0) } == 0 && !only_zombies(group) {
            assert!(start.elapsed() < LONG, "the group lives");
            std::thread::sleep(Duration::from_millis(10));
        }
        let talker = "while :; do echo talk; done";
        let (status, output) = shell(talker, Duration::from_millis(200));
        assert_eq!(status, None);
        assert!(output.len() <= MOST_OUTPUT);
        // A child that keeps the output open is not waited for.
        let (status, output) = shell("sleep 1000 & echo $!; exit 3", LONG);
        assert_eq!(status.unwrap().code(), Some(3));
        let sleeper = Pid::from_raw(output.parse().unwrap()).unwrap();
        rustix::process::kill_process(sleeper, Signal::KILL).unwrap();
    }

    fn only_zombies(group: i32) -> bool {
        std::fs::read_dir("/proc").unwrap().all(|entry| {
            let path = entry.unwrap().path().join("stat");
            let Ok(line) = std::fs::read_to_string(path) else {
                return true;
            };
            let tail = line.rsplit_once(')').unwrap().1;
            let fields: Vec<_> = tail.split_whitespace().collect();
            fields[2] != group.to_string() || fields[0] == "Z"
        })
    }

    #[test]
    fn the_environment_is_replaced_and_kept() {
        let words = ["sh", "-c", "echo $HOME; echo $OUTLIVE_TEST"].map(OsString::from);
        let variables = [("OUTLIVE_TEST", "a b")];
        let End::Ended(_, output) = run(&words, &variables, LONG).unwrap() else {
            panic!("it was killed");
        };
        let home = std::env::var("HOME").unwrap_or_default();
        assert_eq!(output, format!("{home}\na b").trim());
    }
}
