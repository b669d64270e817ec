//! `outlive machine`: the simulated machine, from the command line.

mod record_build;
mod trace_info;

use crate::failure::Failure;
use clap::Subcommand;

/// What of the simulated machine.
#[derive(Subcommand, Debug)]
pub enum Machine {
    /// Build a program of C or C++ so that it can be recorded
    RecordBuild(record_build::RecordBuild),
    /// Check a trace, and say what is in it
    TraceInfo(trace_info::TraceInfo),
}

impl Machine {
    pub fn run(self) -> Result<(), Failure> {
        match self {
            Self::RecordBuild(command) => command.run(),
            Self::TraceInfo(command) => command.run(),
        }
    }
}
