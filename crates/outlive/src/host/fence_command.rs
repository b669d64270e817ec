//! Fencing by a configured program: a BMC, a hypervisor, a cluster manager.

use core::time::Duration;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Instant;

/// How much of a fence command's output is kept.
const MOST_OUTPUT: usize = 16 << 10;
/// How often a silent command is looked at.
const POLL: Duration = Duration::from_millis(10);

/// Why a host is not known to be fenced. It stays a suspect.
#[derive(Debug, thiserror::Error)]
pub enum FenceError {
    /// No command is configured.
    #[error("no fence command is configured for host {host}")]
    NotConfigured {
        /// The host.
        host: String,
    },
    /// The program could not be started.
    #[error("the fence command {program} for host {host} could not be run: {source}")]
    NotRun {
        /// The host.
        host: String,
        /// The program.
        program: String,
        /// What the operating system said.
        source: io::Error,
    },
    /// It said that it failed.
    #[error("the fence command {program} for host {host} failed ({status}), saying: {output}")]
    Failed {
        /// The host.
        host: String,
        /// The program.
        program: String,
        /// How it ended.
        status: ExitStatus,
        /// What it printed, the beginning.
        output: String,
    },
    /// It did not end in time and was killed, with the process group that it led.
    #[error(
        "the fence command {program} for host {host} ran for {after:?} and was killed, saying: {output}"
    )]
    TimedOut {
        /// The host.
        host: String,
        /// The program.
        program: String,
        /// How long it was given.
        after: Duration,
        /// What it printed, the beginning.
        output: String,
    },
}

/// Runs `command` (a program and its arguments; no shell) to fence the host `name` with id `id`, at most
/// for `timeout`. If it exits with 0, the host can touch no memory any more.
///
/// The program gets the id and the name as its last two arguments, and as `OUTLIVE_HOST_ID` and
/// `OUTLIVE_HOST_NAME`. It must return 0 only after the host is certainly off, and may be run twice
/// for one failure: the caller may die while it runs, and its successor runs it again.
///
/// The kernel kills the program when the calling thread dies, so that it does not run next to its
/// successor. This does not reach children of the program, and does not work for a program that is
/// set-user-ID.
///
/// # Errors
/// If it is not known to have succeeded; then the host is not fenced.
pub fn run_fence_command(
    command: &[OsString],
    id: u32,
    name: &str,
    timeout: Duration,
) -> Result<(), FenceError> {
    // Other users of the pod may have chosen it, and no argument of a program can contain that.
    let name = &name.replace('\0', "\u{fffd}");
    let host = format!("{name} ({id})");
    let Some((program, arguments)) = command.split_first() else {
        return Err(FenceError::NotConfigured { host });
    };
    let shown = program.to_string_lossy().into_owned();
    let not_run = |source| FenceError::NotRun {
        host: host.clone(),
        program: shown.clone(),
        source,
    };
    let (reader, writer) = io::pipe().map_err(not_run)?;
    rustix::io::ioctl_fionbio(&reader, true).map_err(|error| not_run(error.into()))?;
    let mut child = Command::new(program);
    let caller = rustix::process::getpid();
    // SAFETY: after the fork the closure makes system calls only, and allocates nothing.
    unsafe { child.pre_exec(move || die_with(caller)) };
    let child = child
        .args(arguments)
        .args([&id.to_string(), name])
        .env("OUTLIVE_HOST_ID", id.to_string())
        .env("OUTLIVE_HOST_NAME", name)
        .stdin(Stdio::null())
        .stdout(writer.try_clone().map_err(not_run)?)
        .stderr(writer)
        // Of its own, so that what it starts can be killed with it.
        .process_group(0)
        .spawn()
        .map_err(not_run)?;
    let (status, output) = Running { child, reader }.finish(timeout).map_err(not_run)?;
    match status {
        Some(status) if status.success() => Ok(()),
        Some(status) => Err(FenceError::Failed {
            host,
            program: shown,
            status,
            output,
        }),
        None => Err(FenceError::TimedOut {
            host,
            program: shown,
            after: timeout,
            output,
        }),
    }
}

/// Makes the kernel kill the calling process, a new child of the process `parent`, when the thread
/// that forked it dies. Also unblocks all signals.
fn die_with(parent: Pid) -> io::Result<()> {
    // The command receives signals even if the thread that starts it has blocked them.
    // SAFETY: both calls initialise or read the set, and are async-signal-safe.
    unsafe {
        let mut none = core::mem::MaybeUninit::uninit();
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), core::ptr::null_mut());
    }
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // If the parent died before the call above, it sent no signal, and this process has another
    // parent now.
    if getppid() == Some(parent) {
        Ok(())
    } else {
        Err(io::ErrorKind::NotFound.into())
    }
}

struct Running {
    child: Child,
    reader: io::PipeReader,
}

impl Running {
    /// The status, unless it had to be killed, and the output. A descendant that keeps the output open
    /// is not waited for.
    fn finish(mut self, timeout: Duration) -> io::Result<(Option<ExitStatus>, String)> {
        let start = Instant::now();
        let mut output = Vec::new();
        let mut open = true;
        let status = loop {
            open = open && self.read_some(&mut output);
            if let Some(status) = self.child.try_wait()? {
                break Some(status);
            }
            let left = timeout.saturating_sub(start.elapsed());
            if left.is_zero() {
                break None;
            }
            let slice = left.min(POLL);
            if open {
                let mut fds = [PollFd::new(&self.reader, PollFlags::IN)];
                // A failure is an early look.
                let _ = poll(&mut fds, Timespec::try_from(slice).ok().as_ref());
            } else {
                std::thread::sleep(slice);
            }
        };
        if status.is_none() {
            // The group is named by the child's pid, which is its own until it is waited for.
            if let Some(group) = Pid::from_raw(self.child.id() as i32) {
                let _ = rustix::process::kill_process_group(group, Signal::KILL);
            }
            self.child.wait()?;
        }
        if open {
            self.read_some(&mut output);
        }
        Ok((status, String::from_utf8_lossy(&output).trim().to_owned()))
    }

    /// Reads what is there; `false` at the end.
    fn read_some(&mut self, output: &mut Vec<u8>) -> bool {
        let mut piece = [0; 4096];
        // At most so many pieces at a time, or an endless talker would outrun the clock.
        for _ in 0..16 {
            match self.reader.read(&mut piece) {
                Ok(0) => return false,
                Ok(bytes) => {
                    let room = MOST_OUTPUT - output.len();
                    output.extend_from_slice(&piece[..bytes.min(room)]);
                }
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    fn shell(script: &str, timeout: Duration) -> Result<(), FenceError> {
        let command = ["sh", "-c", script, "sh"].map(OsString::from);
        run_fence_command(&command, 7, "blue", timeout)
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn zero_is_fenced_and_all_else_is_not() {
        shell(
            r#"test "$1 $2 $OUTLIVE_HOST_ID $OUTLIVE_HOST_NAME" = "7 blue 7 blue""#,
            LONG,
        )
        .unwrap();
        // Other users of the pod can choose the name.
        run_fence_command(&["true".into()], 7, "bl\0ue", LONG).unwrap();
        let error = shell("echo no power; echo at all >&2; exit 3", LONG).unwrap_err();
        assert!(
            matches!(&error, FenceError::Failed { status, output, .. }
            if status.code() == Some(3) && output == "no power\nat all"),
            "{error}"
        );
        let error = shell("kill -9 $$", LONG).unwrap_err();
        assert!(matches!(&error, FenceError::Failed { status, .. } if status.signal() == Some(9)));
        // The command receives signals even if the thread that starts it has blocked all of them.
        let blocked = std::thread::spawn(|| {
            // SAFETY: the call fills the set, which the next one reads.
            unsafe {
                let mut all = core::mem::MaybeUninit::uninit();
                libc::sigfillset(all.as_mut_ptr());
                libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), core::ptr::null_mut());
            }
            shell("sleep 60 & kill $!; wait $!; test $? -gt 128", LONG)
        });
        assert!(blocked.join().unwrap().is_ok());
        let error = run_fence_command(&["/no/such".into()], 7, "blue", LONG).unwrap_err();
        assert!(matches!(error, FenceError::NotRun { .. }));
        let error = run_fence_command(&[], 7, "blue", LONG).unwrap_err();
        assert!(matches!(error, FenceError::NotConfigured { .. }));
    }

    #[test]
    fn one_that_hangs_is_killed_with_its_children_and_a_talker_does_not_fill_memory() {
        let error = shell(
            "echo $$; sleep 1000 & sleep 1000",
            Duration::from_millis(200),
        )
        .unwrap_err();
        let FenceError::TimedOut { output, .. } = &error else {
            panic!("{error}");
        };
        let group: i32 = output.parse().unwrap();
        // The orphan is somebody else's to reap; wait until the group is gone.
        let start = Instant::now();
        // SAFETY: signal 0 only asks.
        while unsafe { libc::kill(-group, 0) } == 0 && !only_zombies(group) {
            assert!(start.elapsed() < LONG, "the group lives");
            std::thread::sleep(POLL);
        }
        let error = shell("while :; do echo talk; done", Duration::from_millis(200)).unwrap_err();
        let FenceError::TimedOut { output, .. } = &error else {
            panic!("{error}");
        };
        assert!(output.len() <= MOST_OUTPUT);
        // A child that keeps the output open is not waited for.
        let error = shell("sleep 1000 & echo $!; exit 3", LONG).unwrap_err();
        let FenceError::Failed { output, .. } = &error else {
            panic!("{error}");
        };
        let sleeper = rustix::process::Pid::from_raw(output.parse().unwrap()).unwrap();
        rustix::process::kill_process(sleeper, rustix::process::Signal::KILL).unwrap();
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
}
