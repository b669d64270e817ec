//! Fencing by a configured program: a BMC, a hypervisor, a cluster manager.

use super::reported::{self, End};
use core::time::Duration;
use std::ffi::OsString;
use std::io;
use std::process::ExitStatus;

/// The reason why a host is not known to be fenced. It stays a suspect.
#[derive(Debug, thiserror::Error)]
pub enum FenceError {
    /// No command is configured.
    #[error(
        "no fence command is configured for host {host}; configure one (`--fence-command` or \
         OUTLIVE_FENCE_COMMAND)"
    )]
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
        /// The error of the operating system.
        source: io::Error,
    },
    /// The command reported a failure.
    #[error("the fence command {program} for host {host} failed ({status}); its output: {output}")]
    Failed {
        /// The host.
        host: String,
        /// The program.
        program: String,
        /// Its exit status.
        status: ExitStatus,
        /// The beginning of its output.
        output: String,
    },
    /// It did not end in time and was killed, with the process group that it led.
    #[error(
        "the fence command {program} for host {host} was killed after {after:?}; its output: \
         {output}"
    )]
    TimedOut {
        /// The host.
        host: String,
        /// The program.
        program: String,
        /// Its time limit.
        after: Duration,
        /// The beginning of its output.
        output: String,
    },
}

/// Runs `command` (a program and its arguments; no shell) to fence the host `name` with id `id`, at
/// most for `timeout`. If it exits with 0, the host can no longer access memory.
///
/// The program gets the id and the name as its last two arguments, and as `OUTLIVE_HOST_ID` and
/// `OUTLIVE_HOST_NAME`. It must return 0 only after the host is certainly off, and may be run twice
/// for one failure: the caller may die while it runs, and its successor runs it again.
///
/// The kernel kills the program when the calling thread dies, so that it does not run next to its
/// successor. This does not reach children of the program, and does not work for a program that is
/// set-user-ID.
///
/// The calling program may reap all its children, ignore SIGCHLD, or close all descriptors: a
/// failed command never counts as a success. (If a descriptor of this call is closed, the status is
/// lost, and the fence fails.)
///
/// # Errors
/// If it is not known to have succeeded; then the host is not fenced.
pub fn run_fence_command(
    command: &[OsString],
    id: u32,
    name: &str,
    timeout: Duration,
) -> Result<(), FenceError> {
    // Other users of the pod may have chosen the name, and an argument cannot contain a NUL.
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
    let id = id.to_string();
    let words = { [program].into_iter().chain(arguments).cloned() };
    let words: Vec<OsString> = words.chain([id.clone().into(), name.into()]).collect();
    let variables = [("OUTLIVE_HOST_ID", &*id), ("OUTLIVE_HOST_NAME", name)];
    match reported::run(&words, &variables, timeout).map_err(not_run)? {
        End::Ended(status, _) if status.success() => Ok(()),
        End::Ended(status, output) => Err(FenceError::Failed {
            host,
            program: shown,
            status,
            output,
        }),
        End::Killed(output) => Err(FenceError::TimedOut {
            host,
            program: shown,
            after: timeout,
            output,
        }),
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
}
