//! `outlive run`: programs that outlive the hosts running them.

mod wordcount;

use crate::failure::Failure;
use clap::{Args, Subcommand};
use outlive::supervise::Place;
use outlive_workloads::driver::die_with;
use outlive_workloads::host;
use outlive_workloads::wordcount::WordCount;

/// Which program.
#[derive(Subcommand, Debug)]
pub enum Run {
    /// Count the words of files, on hosts that may be killed
    Wordcount(wordcount::Command),
    /// Be one of the hosts of a run: what the driver starts
    #[command(hide = true)]
    Host(Host),
}

impl Run {
    pub fn run(self) -> Result<(), Failure> {
        match self {
            Self::Wordcount(command) => command.run(),
            Self::Host(command) => command.run(),
        }
    }
}

/// A host of a run. Its place in the pod stands in the environment.
#[derive(Args, Debug)]
pub struct Host {
    /// The process that started it, and with which it dies
    #[arg(long)]
    driver: u32,
}

impl Host {
    fn run(self) -> Result<(), Failure> {
        die_with(self.driver).map_err(Failure::new)?;
        let place = Place::from_env().map_err(Failure::new)?;
        host::work(&place, WordCount::of).map_err(Failure::new)
    }
}
