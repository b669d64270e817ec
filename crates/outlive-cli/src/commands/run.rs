//! `outlive run`: programs that outlive the hosts running them.

mod blackscholes;
mod dedup;
pub(super) mod destination;
mod flags;
mod generated;
mod histogram;
mod hosts;
mod kmeans;
mod left_out;
mod matmul;
mod pagerank;
pub(super) mod play;
mod report;
mod steps;
mod unnamed;
mod wordcount;
mod workers;

use crate::failure::Failure;
use clap::{Args, Subcommand};
use outlive::supervise::Place;
use outlive_run::driver::{die_with, own_program};
use outlive_run::host;
use std::ffi::OsString;
use std::process::{self, Command, Stdio};

/// The program of a run.
#[derive(Subcommand, Debug)]
pub enum Run {
    /// Count the words of files, on hosts that may be killed
    Wordcount(wordcount::Command),
    /// Rank the vertices of a graph, on hosts that may be killed
    Pagerank(pagerank::Command),
    /// Count the values of a picture's channels, or of a file's bytes, on hosts that may be killed
    Histogram(histogram::Command),
    /// Group points around centres, on hosts that may be killed
    Kmeans(kmeans::Command),
    /// Price options, on hosts that may be killed
    Blackscholes(blackscholes::Command),
    /// Multiply two matrices, on hosts that may be killed
    Matmul(matmul::Command),
    /// Archive files and store repeated content once, on hosts that may be killed
    Dedup(dedup::Command),
    /// Be a process of a host of a run, started by the driver or by the host's first process
    #[command(hide = true)]
    Host(Host),
}

impl Run {
    pub fn run(self) -> Result<(), Failure> {
        match self {
            Self::Wordcount(command) => command.run(),
            Self::Pagerank(command) => command.run(),
            Self::Histogram(command) => command.run(),
            Self::Kmeans(command) => command.run(),
            Self::Blackscholes(command) => command.run(),
            Self::Matmul(command) => command.run(),
            Self::Dedup(command) => command.run(),
            Self::Host(command) => command.run(),
        }
    }
}

/// Arguments of a process of a host of a run. Its place in the pod is in the environment.
#[derive(Args, Debug)]
pub struct Host {
    /// Process id of the parent, with which this process dies
    #[arg(long)]
    parent: u32,
}

/// The arguments before the parent's process id in the command line of a [`Host`].
const HOST: [&str; 3] = ["run", "host", "--parent"];

/// Returns a source of commands for processes of hosts, started by this process.
fn host_command() -> Result<impl FnMut() -> Command + Clone + Send + 'static, Failure> {
    let me = own_program().map_err(|error| {
        Failure::new(format_args!(
            "the path of this executable cannot be read from /proc/self/exe: {error}; mount /proc"
        ))
    })?;
    Ok(move || {
        let mut command = Command::new(&me);
        command
            .args(HOST)
            .arg(process::id().to_string())
            .stdin(Stdio::null());
        command
    })
}

impl Host {
    /// Parses `arguments` if they are exactly those that [`host_command`] gives.
    pub fn read(arguments: impl IntoIterator<Item = OsString>) -> Option<Self> {
        let mut arguments = arguments.into_iter();
        let is_host = HOST
            .iter()
            .all(|word| arguments.next().is_some_and(|it| it == *word));
        let parent = arguments.next().filter(|_| is_host)?;
        let parent = parent.to_str()?.parse().ok()?;
        arguments.next().is_none().then_some(Self { parent })
    }

    fn run(self) -> Result<(), Failure> {
        die_with(self.parent).map_err(Failure::new)?;
        let place = Place::from_env().map_err(Failure::new)?;
        host::work(&place, outlive_programs::by_number, host_command()?).map_err(Failure::new)
    }
}
