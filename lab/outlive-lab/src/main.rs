//! The `outlive-lab` command: the proofs, the studies and the simulated machine.
//!
//! It reads arguments, prints and fails as `outlive` does (`outlive_cli`).

// The doc comments of arguments are help texts, in which `[:SEED]` is optional.
#![allow(rustdoc::broken_intra_doc_links)]

mod commands;

use clap::Parser;
use commands::Lab;
use outlive_cli::{amount, failure, output, table};
use std::process::ExitCode;

fn main() -> ExitCode {
    let command = Lab::parse();
    outlive_cli::run("outlive-lab", || command.run())
}
