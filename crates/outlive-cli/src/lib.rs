//! The `outlive` command: pods created, hosted, watched, checked and destroyed, and programs run on them.
//!
//! A command exits with 0 if all is well, 1 if something is wrong, was violated or has failed, and 2 if its
//! arguments make no sense. What a program would read can be had as JSON (`--json`). Errors go to
//! standard error in one paragraph: what happened, where, and what to do. A reader that closes the pipe
//! ends the command quietly.
//!
//! A library, so that `outlive-lab` reads arguments, prints and fails in the same way.

// What arguments are documented with is help text, where `[:SEED]` is what may be left out.
#![allow(rustdoc::broken_intra_doc_links)]

pub mod amount;
mod commands;
pub mod failure;
mod look;
mod news;
pub mod output;
pub mod table;

pub use commands::Outlive;

use failure::Failure;
use std::io::IsTerminal;
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

/// Runs the command line of `program`, and returns with which code the process is to exit.
pub fn run(program: &str, command: impl FnOnce() -> Result<(), Failure>) -> ExitCode {
    // Quiet unless asked: what matters to people is printed by the commands themselves, the reports of a
    // supervisor among it.
    let quiet = "error,outlive::supervise::report=off";
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(quiet));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal() && !is_set("NO_COLOR"))
        // Otherwise a line that cannot be written panics, in any thread, when standard error is closed.
        .log_internal_errors(false)
        .init();
    // Without the handler a truncated file ends a command without a message, which is no reason to
    // refuse the command.
    let _ = outlive::segment::report_bus_errors();
    match command() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(program),
    }
}

/// Whether the environment variable `name` is set to something.
fn is_set(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|value| !value.is_empty())
}
