//! The `outlive` command: creates, hosts, watches, checks and destroys pods, and runs programs on
//! them.
//!
//! A command exits with 0 on success, 1 if it failed or found something wrong, and 2 if its
//! arguments make no sense. `--json` prints output for programs. Errors go to standard error in one
//! paragraph: the problem, its place, and the remedy. A reader that closes the pipe ends the
//! command quietly.
//!
//! It is a library, so that `outlive-lab` parses arguments, prints and fails in the same way.

// The doc comments of arguments are help texts, where `[:SEED]` is an optional part.
#![allow(rustdoc::broken_intra_doc_links)]

pub mod amount;
mod commands;
mod event_text;
pub mod failure;
mod interruption;
mod look;
pub mod output;
pub mod store_driver;
pub mod table;
pub mod target;

pub use commands::Outlive;

use failure::Failure;
use std::io::IsTerminal;
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

/// Runs the command line of `program`, and returns the exit code.
pub fn run(program: &str, command: impl FnOnce() -> Result<(), Failure>) -> ExitCode {
    // Quiet by default: the commands print all that matters, including the reports of a supervisor.
    let quiet = "error,outlive::supervise::report=off";
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(quiet));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal() && !is_set("NO_COLOR"))
        // Otherwise a line that cannot be written panics, in any thread, when standard error is
        // closed.
        .log_internal_errors(false)
        .init();
    // Without the handler, a truncated file ends a command without a message; the command runs
    // nevertheless.
    let _ = outlive::segment::report_bus_errors();
    match command() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(program),
    }
}

/// Returns whether the environment variable `name` is set and not empty.
fn is_set(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|value| !value.is_empty())
}
