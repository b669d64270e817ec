//! How a command ends when not all is well.

use outlive::host::OsError;
use outlive::pod::PodError;
use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

/// Why a command does not exit with 0.
#[derive(Debug)]
pub enum Failure {
    /// What it looked at is wrong, and it has said so on standard output.
    Found,
    /// It could not do what it was asked to: one paragraph for people.
    Failed(String),
    /// It was called in a way that makes no sense.
    Usage(String),
    /// Whoever read its output has stopped reading.
    NobodyReads,
}

impl Failure {
    /// A failure with its paragraph.
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

    /// Prints it on standard error as a message of `program`. Returns with which code the process is to
    /// exit.
    pub fn report(self, program: &str) -> ExitCode {
        let (paragraph, code) = match self {
            // Nobody wants to know any more.
            Self::NobodyReads => return ExitCode::SUCCESS,
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
    /// An error of standard output: everything else is wrapped where it happens.
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::NobodyReads,
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
