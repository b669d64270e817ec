//! The command line: one file for each command.

mod completions;
mod litmus_bugs;
mod litmus_store;
mod machine;
mod prove;
mod study;

use crate::failure::Failure;
use clap::{Parser, Subcommand};

/// The evidence for Outlive: proofs, measurements, and a simulated machine.
#[derive(Parser, Debug)]
#[command(
    name = "outlive-lab",
    version,
    arg_required_else_help = true,
    after_help = "Exit codes: 0 all is well, 1 something is wrong or has failed, 2 bad usage.",
    after_long_help = "Examples:\n  \
        outlive-lab prove kill --all           # a death at every instruction\n  \
        outlive-lab prove chaos --minutes 5    # kills at random under real work\n  \
        outlive-lab study locks --quick        # the cost of recoverability\n  \
        outlive-lab machine run ycsb --configuration proactive   # a workload on a simulated \
        cluster\n\n\
        Exit codes: 0 all is well, 1 something is wrong or has failed, 2 bad usage."
)]
pub struct Lab {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Run the proofs of the claims about crashes
    #[command(subcommand, arg_required_else_help = true)]
    Prove(prove::Prove),
    /// The simulated machine: run workloads and traces on it, and record programs for it
    #[command(subcommand, arg_required_else_help = true)]
    Machine(machine::Machine),
    /// Measure Outlive against its peers, and reproduce the papers' tables
    Study(study::Study),
    /// Search for the bugs of FORD, and for other flaws of the store, by litmus tests
    LitmusBugs(litmus_bugs::LitmusBugs),
    /// Answer requests on standard input as a compute server with an unsound protocol and crash
    /// points, for `outlive litmus`
    LitmusStore(litmus_store::LitmusStore),
    /// A part of a study in a process of its own
    #[command(hide = true)]
    StudyPart,
    /// Print the completions for a shell
    Completions(completions::Completions),
}

impl Lab {
    /// Runs the command.
    ///
    /// # Errors
    /// If a fault was found or the command failed.
    pub fn run(self) -> Result<(), Failure> {
        match self.command {
            Command::Prove(command) => command.run(),
            Command::Machine(command) => command.run(),
            Command::Study(command) => command.run(),
            Command::LitmusBugs(command) => command.run(),
            Command::LitmusStore(command) => command.run(),
            Command::StudyPart => study::part(),
            Command::Completions(command) => command.run(),
        }
    }
}
