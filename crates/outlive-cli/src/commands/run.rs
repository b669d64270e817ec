//! `outlive run`: programs that outlive the hosts running them.

mod wordcount;

use crate::failure::Failure;
use clap::{Args, Subcommand};
use outlive::supervise::Place;
use outlive_workloads::driver::{die_with, own_program};
use outlive_workloads::host;
use outlive_workloads::wordcount::WordCount;
use std::process::{self, Command, Stdio};

/// Which program.
#[derive(Subcommand, Debug)]
pub enum Run {
    /// Count the words of files, on hosts that may be killed
    Wordcount(wordcount::Command),
    /// Be a process of one of the hosts of a run: what the driver starts, and what that starts
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

/// A process of a host of a run. Its place in the pod stands in the environment.
#[derive(Args, Debug)]
pub struct Host {
    /// The process that started it, and with which it dies
    #[arg(long)]
    parent: u32,
}

/// Makes commands that become processes of hosts, started by this process.
fn host_command() -> Result<impl FnMut() -> Command + Clone + Send + 'static, Failure> {
    let me = own_program().map_err(|error| {
        Failure::new(format_args!(
            "this program's own file is not known: {error}"
        ))
    })?;
    Ok(move || {
        let mut command = Command::new(&me);
        command
            .args(["run", "host", "--parent", &process::id().to_string()])
            .stdin(Stdio::null());
        command
    })
}

impl Host {
    fn run(self) -> Result<(), Failure> {
        die_with(self.parent).map_err(Failure::new)?;
        let place = Place::from_env().map_err(Failure::new)?;
        host::work(&place, WordCount::of, host_command()?).map_err(Failure::new)
    }
}
