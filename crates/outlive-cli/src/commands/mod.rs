//! The command line: one file for each command.

mod bury;
mod check;
mod clean;
mod completions;
mod create;
mod destroy;
mod doctor;
mod fence_cgroup;
mod guest;
mod host;
mod litmus;
mod moved;
mod objects;
mod pool;
mod pools;
mod resize;
mod run;
mod status;
mod store;
mod unpack;
mod watch;
mod watching;
mod worker;

use crate::failure::Failure;
use clap::{Args, Parser, Subcommand};
use outlive::pod::Pod;
use std::path::{Path, PathBuf};

/// Shared memory that outlives the hosts using it.
#[derive(Parser, Debug)]
#[command(
    name = "outlive",
    version,
    arg_required_else_help = true,
    after_help = "Exit codes: 0 success, 1 something is wrong or has failed, 2 bad usage.\n\
    RUST_LOG=outlive=debug logs internal events.",
    after_long_help = "Examples:\n  \
        outlive run wordcount                       # count words while hosts are killed\n  \
        outlive run pagerank rmat:16 --kill 2       # rank a graph while hosts are killed\n  \
        outlive run dedup src --output src.dedup    # archive files; `outlive unpack` restores them\n  \
        outlive pod create /dev/shm/demo            # a pod of 64 MiB\n  \
        outlive pod host /dev/shm/demo --host 0     # in one terminal\n  \
        outlive pod host /dev/shm/demo --host 1     # in another; kill -9 it\n  \
        outlive pod watch /dev/shm/demo             # in a third\n  \
        outlive doctor                              # what this machine offers\n\n\
        Exit codes: 0 success, 1 something is wrong or has failed, 2 bad usage.\n\
        RUST_LOG=outlive=debug logs internal events."
)]
pub struct Outlive {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Create, host, inspect, check and destroy pods
    #[command(subcommand, arg_required_else_help = true)]
    Pod(PodCommand),
    /// Run a program on local hosts (process trees), and kill some on request
    #[command(subcommand, arg_required_else_help = true)]
    Run(Box<run::Run>),
    /// Create stores for transactions, and serve memory to them
    #[command(subcommand, arg_required_else_help = true)]
    Store(store::StoreCommand),
    /// Lend memory of servers to one pool, and use it
    #[command(subcommand, arg_required_else_help = true)]
    Pool(pool::PoolCommand),
    /// Test the isolation of transactional stores
    #[command(subcommand, arg_required_else_help = true)]
    Litmus(litmus::LitmusCommand),
    /// Unpack an archive that `outlive run dedup` made
    Unpack(unpack::Unpack),
    /// Work in the pool of tasks of a pod, started by hand, mpirun, srun or a service manager
    Worker(worker::Worker),
    /// Report the features that this machine or container offers, and those that are missing
    Doctor(doctor::Doctor),
    /// Print the completions for a shell
    Completions(completions::Completions),
    /// A command of `outlive-lab`
    #[command(hide = true, aliases = ["study", "machine"], disable_help_flag = true)]
    Prove(moved::Moved),
}

#[derive(Subcommand, Debug)]
enum PodCommand {
    /// Create a pod: shared memory for several hosts
    Create(create::Create),
    /// Join as a host with idle members, and print events until interrupted
    Host(host::Host),
    /// Show the members and worker pools of a pod
    Status(status::Status),
    /// Change the number of workers of a pool while an application runs
    Resize(resize::Resize),
    /// Watch a pod live in the terminal
    Watch(watch::Watch),
    /// Check every invariant of a pod
    Check(check::Check),
    /// List the named objects of a pod
    Objects(objects::Objects),
    /// Print the contents of a named object
    Dump(objects::Dump),
    /// Remove a named object
    RemoveObject(objects::RemoveObject),
    /// Declare a host dead on your word that it is off
    Bury(bury::Bury),
    /// Kill a host by its control group, as a fence command
    FenceCgroup(fence_cgroup::FenceCgroup),
    /// Remove a pod
    Destroy(destroy::Destroy),
    /// List or remove side files of pods that no longer exist
    Clean(clean::Clean),
}

/// The pod of a command.
#[derive(Args, Debug)]
struct Which {
    /// The pod: a file (for example in /dev/shm), a DAX device, or a PCI device's resource file
    path: PathBuf,
}

impl Which {
    fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the pod for an observer, which cannot change it.
    fn observe(&self) -> Result<Pod, Failure> {
        Ok(Pod::observe(&self.path)?)
    }

    fn open(&self) -> Result<Pod, Failure> {
        Ok(Pod::open(&self.path)?)
    }
}

impl Outlive {
    /// Parses the command line. Ends the process if the command line is invalid.
    pub fn read() -> Self {
        // A run starts a host process after each death. It is parsed without the description of all
        // commands, which takes a good part of its starting time.
        match run::Host::read(std::env::args_os().skip(1)) {
            Some(host) => Self {
                command: Command::Run(Box::new(run::Run::Host(host))),
            },
            None => Self::parse(),
        }
    }

    /// Executes the command.
    ///
    /// # Errors
    /// If the command failed or found a problem.
    pub fn run(self) -> Result<(), Failure> {
        match self.command {
            Command::Pod(PodCommand::Create(command)) => command.run(),
            Command::Pod(PodCommand::Host(command)) => command.run(),
            Command::Pod(PodCommand::Status(command)) => command.run(),
            Command::Pod(PodCommand::Resize(command)) => command.run(),
            Command::Pod(PodCommand::Watch(command)) => command.run(),
            Command::Pod(PodCommand::Check(command)) => command.run(),
            Command::Pod(PodCommand::Objects(command)) => command.run(),
            Command::Pod(PodCommand::Dump(command)) => command.run(),
            Command::Pod(PodCommand::RemoveObject(command)) => command.run(),
            Command::Pod(PodCommand::Bury(command)) => command.run(),
            Command::Pod(PodCommand::FenceCgroup(command)) => command.run(),
            Command::Pod(PodCommand::Destroy(command)) => command.run(),
            Command::Pod(PodCommand::Clean(command)) => command.run(),
            Command::Run(command) => command.run(),
            Command::Store(command) => command.run(),
            Command::Pool(command) => command.run(),
            Command::Litmus(command) => command.run(),
            Command::Unpack(command) => command.run(),
            Command::Worker(command) => command.run(),
            Command::Doctor(command) => command.run(),
            Command::Completions(command) => command.run(),
            Command::Prove(command) => command.run(),
        }
    }
}
