//! The `outlive` command.

use outlive_cli::Outlive;
use std::process::ExitCode;

fn main() -> ExitCode {
    let command = Outlive::read();
    outlive_cli::run("outlive", || command.run())
}
