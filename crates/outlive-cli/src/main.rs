//! The `outlive` command: pods created, hosted, watched, checked and destroyed, and the proofs.
//!
//! It exits with 0 if all is well, 1 if something is wrong, was violated or has failed, and 2 if it was
//! called in a way that makes no sense. What a program would read can be had as JSON (`--json`). Errors go to
//! standard error in one paragraph: what happened, where, and what to do. A reader that closes the pipe
//! ends the command quietly.

// What arguments are documented with is help text, where `[:SEED]` is what may be left out.
#![allow(rustdoc::broken_intra_doc_links)]

mod amount;
mod commands;
mod failure;
mod look;
mod news;
mod output;
mod table;

use commands::Outlive;
use std::io::IsTerminal;
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    let command = Outlive::read();
    // Quiet unless asked: what matters to people is printed by the commands themselves, the reports of a
    // supervisor among it.
    let quiet = "error,outlive::supervise::report=off";
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(quiet));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal() && !is_set("NO_COLOR"))
        // Else a line that cannot be written panics, in whatever thread, when whoever read stderr is gone.
        .log_internal_errors(false)
        .init();
    // Without the handler a truncated file ends a command without a message, which is no reason to
    // refuse the command.
    let _ = outlive::segment::report_bus_errors();
    match command.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// Whether the environment variable `name` is set to something.
fn is_set(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|value| !value.is_empty())
}
