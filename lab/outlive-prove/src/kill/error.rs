//! Why a sweep could not be made.

use super::KillsDoNothing;
use core::fmt;
use std::io;

/// A sweep could not be made, or the operation under it did not run to its end even unharmed.
///
/// What a sweep *finds* is not an error: it stands in the report's failures.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KillError {
    /// This process may not trace its children.
    #[error(transparent)]
    PtraceForbidden(#[from] PtraceForbidden),
    /// SIGKILL does nothing.
    #[error(transparent)]
    KillsDoNothing(#[from] KillsDoNothing),
    /// The operating system refused something else.
    #[error("{operation}: {call} failed: {source}")]
    System {
        /// What was swept.
        operation: String,
        /// The call.
        call: &'static str,
        /// What the operating system said.
        source: io::Error,
    },
    /// The memory could not be prepared.
    #[error("{operation}: preparing failed, so nothing was swept: {message}")]
    Unprepared {
        /// What was to be swept.
        operation: String,
        /// The panic's message, or how the process ended.
        message: String,
    },
    /// The operation does not run to its end even when nobody kills it.
    #[error("{operation}: fails without being killed, after {instructions} instructions: {reason}")]
    Broken {
        /// What was swept.
        operation: String,
        /// How many instructions had run.
        instructions: u64,
        /// What happened.
        reason: String,
    },
}

impl KillError {
    /// What was to be swept, if it is about one operation.
    pub fn operation(&self) -> Option<&str> {
        match self {
            Self::PtraceForbidden(_) | Self::KillsDoNothing(_) => None,
            Self::System { operation, .. }
            | Self::Unprepared { operation, .. }
            | Self::Broken { operation, .. } => Some(operation),
        }
    }
}

/// This process may not trace its children, so nothing can be killed at a chosen instruction.
#[derive(Debug, thiserror::Error)]
#[error(
    "ptrace is forbidden here ({source}), and the kill sweeps need it to stop a child after each \
     instruction: allow it with `docker run --cap-add SYS_PTRACE` (or a seccomp profile that lets \
     ptrace pass), and see that /proc/sys/kernel/yama/ptrace_scope is not 2 or 3"
)]
pub struct PtraceForbidden {
    /// What the operating system said.
    pub source: io::Error,
}

/// Takes a test's sweep: its report, shown on standard output, or `None` where ptrace is forbidden, and
/// then says so. With `OUTLIVE_REQUIRE_PTRACE` in the environment that too fails the test, so that a
/// machine that is to run the sweeps cannot skip them unnoticed.
///
/// # Panics
/// With the error, if the sweep could not be made for any other reason.
#[track_caller]
pub fn unless_forbidden<R: fmt::Display>(outcome: Result<R, KillError>) -> Option<R> {
    match outcome {
        Ok(report) => {
            println!("{report}");
            Some(report)
        }
        Err(KillError::PtraceForbidden(forbidden)) => {
            let required = std::env::var_os("OUTLIVE_REQUIRE_PTRACE").is_some();
            assert!(!required, "not skipped, for it is required: {forbidden}");
            println!("skipped: {forbidden}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}
