//! The failures of commands, and their exit codes.

use outlive::host::OsError;
use outlive::pod::PodError;
use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

/// The reason why a command does not exit with 0.
#[derive(Debug)]
pub enum Failure {
    /// The command found a problem, for example a violation, and reported it on standard output.
    Found,
    /// The command could not do its task: one paragraph that explains it.
    Failed(String),
    /// The arguments are not valid.
    Usage(String),
    /// The reader of the output has closed it.
    OutputClosed,
}

impl Failure {
    /// Returns a failure with its paragraph.
    pub fn new(paragraph: impl Display) -> Self {
        Self::Failed(paragraph.to_string())
    }

    /// Returns the failure to start a thread.
    pub fn no_thread(error: io::Error) -> Self {
        Self::new(format_args!(
            "a thread cannot be started: {error}; raise the limits on threads (`ulimit -u`, the \
             pids limit of a container) and on \
             memory (`ulimit -v`)"
        ))
    }

    /// Prints the failure on standard error as a message of `program`. Returns the exit code.
    pub fn report(self, program: &str) -> ExitCode {
        let (paragraph, code) = match self {
            // A closed pipe is not a failure.
            Self::OutputClosed => return ExitCode::SUCCESS,
            Self::Found => return ExitCode::from(1),
            Self::Failed(paragraph) => (paragraph, 1),
            Self::Usage(paragraph) => (paragraph, 2),
        };
        // In one write: a process that is killed at this moment prints the whole message or none.
        // If standard error is closed too, only the exit code is left.
        let _ = io::stderr().write_all(format!("{program}: {paragraph}\n").as_bytes());
        ExitCode::from(code)
    }
}

impl From<io::Error> for Failure {
    /// Converts an error of standard output: all others are wrapped where they happen.
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::OutputClosed,
            _ => Self::Failed(format!("standard output cannot be written to: {error}")),
        }
    }
}

impl From<PodError> for Failure {
    fn from(error: PodError) -> Self {
        Self::new(error)
    }
}

impl From<OsError> for Failure {
    fn from(error: OsError) -> Self {
        Self::new(error)
    }
}
