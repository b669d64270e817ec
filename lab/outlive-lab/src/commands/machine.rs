//! `outlive-lab machine`: the simulated machine, from the command line.

mod configuration;
mod fallout;
mod list;
mod placement;
mod progress;
mod record_build;
mod report;
mod run;
mod show;
mod size;
mod subject;
mod trace_info;

use crate::failure::Failure;
use clap::Subcommand;

/// The commands for the simulated machine.
#[derive(Subcommand, Debug)]
pub enum Machine {
    /// Run a workload or a trace, and report its time and its events
    Run(run::Run),
    /// List the workloads, their sizes, and the configurations of the machine
    List(list::List),
    /// Print every parameter of a machine, as a file for `outlive-lab machine run --machine`
    Show(show::Show),
    /// Build a program of C or C++ so that it can be recorded
    RecordBuild(record_build::RecordBuild),
    /// Check a trace, and describe its contents
    TraceInfo(trace_info::TraceInfo),
}

impl Machine {
    pub fn run(self) -> Result<(), Failure> {
        match self {
            Self::Run(command) => command.run(),
            Self::List(command) => command.run(),
            Self::Show(command) => command.run(),
            Self::RecordBuild(command) => command.run(),
            Self::TraceInfo(command) => command.run(),
        }
    }
}
