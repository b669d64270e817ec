//! The reasons for which a sweep is not possible.

use super::KillsDoNothing;
use core::fmt;
use std::io;

/// A sweep was not possible, or its operation did not complete even without a kill.
///
/// The faults that a sweep *finds* are not errors: they are in the report's failures.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KillError {
    /// This process may not trace its children.
    #[error(transparent)]
    PtraceForbidden(#[from] PtraceForbidden),
    /// SIGKILL does nothing.
    #[error(transparent)]
    KillsDoNothing(#[from] KillsDoNothing),
    /// The operating system refused another request.
    #[error("{operation}: {call} failed: {source}")]
    System {
        /// The name of the sweep.
        operation: String,
        /// The system call.
        call: &'static str,
        /// The operating system's error.
        source: io::Error,
    },
    /// The memory could not be prepared.
    #[error("{operation}: preparing failed, so nothing was swept: {message}")]
    Unprepared {
        /// The name of the sweep.
        operation: String,
        /// The panic's message, or how the process ended.
        message: String,
    },
    /// The operation does not complete even without a kill.
    #[error("{operation}: fails without being killed, after {instructions} instructions: {reason}")]
    Broken {
        /// The name of the sweep.
        operation: String,
        /// The number of instructions that had run.
        instructions: u64,
        /// The failure.
        reason: String,
    },
}

impl KillError {
    /// Returns the name of the sweep, if the error is about one.
    pub fn operation(&self) -> Option<&str> {
        match self {
            Self::PtraceForbidden(_) | Self::KillsDoNothing(_) => None,
            Self::System { operation, .. }
            | Self::Unprepared { operation, .. }
            | Self::Broken { operation, .. } => Some(operation),
        }
    }
}

/// This process may not trace its children, so none can be killed at a chosen instruction.
#[derive(Debug, thiserror::Error)]
#[error(
    "ptrace is forbidden here ({source}), and the kill sweeps need it to stop a child after each \
     instruction: allow it with `docker run --cap-add SYS_PTRACE` (or a seccomp profile that lets \
     ptrace pass), and see that /proc/sys/kernel/yama/ptrace_scope is not 2 or 3"
)]
pub struct PtraceForbidden {
    /// The operating system's error.
    pub source: io::Error,
}

/// Prints the report of a test's sweep to standard output and returns it. Where ptrace is forbidden
/// it says so and returns `None`. With `OUTLIVE_REQUIRE_PTRACE` in the environment this too fails
/// the test, so that a machine that must run the sweeps cannot skip them unnoticed.
///
/// # Panics
/// With the error, if the sweep was not possible for any other reason.
#[track_caller]
pub fn unless_forbidden<R: fmt::Display>(outcome: Result<R, KillError>) -> Option<R> {
    match outcome {
        Ok(report) => {
            println!("{report}");
            Some(report)
        }
        Err(KillError::PtraceForbidden(forbidden)) => {
            let required = std::env::var_os("OUTLIVE_REQUIRE_PTRACE").is_some();
            assert!(
                !required,
                "cannot be skipped, since it is required: {forbidden}"
            );
            println!("skipped: {forbidden}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}
