//! The flags that every run has: how many hosts, and what becomes of them.

use crate::amount;
use clap::{Args, ValueEnum};
use outlive_workloads::driver::{KillAt, Options, Supervise};
use std::path::PathBuf;

/// Hosts, and what becomes of them.
#[derive(Args, Debug)]
pub struct Hosts {
    /// How many hosts there are
    #[arg(long, value_name = "H", default_value_t = 4,
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    hosts: u32,
    /// How many hosts stand by besides: one takes the place of a host that has died, at once. With --supervise restart, hosts that
    /// are started again stand by then
    #[arg(long, value_name = "N", default_value_t = 0,
          value_parser = clap::value_parser!(u32).range(0..=1023))]
    spares: u32,
    /// How many processes each host has: one that the driver starts, and children of it. They die together
    #[arg(long, value_name = "P", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    processes: u32,
    /// How many worker threads each process has
    #[arg(long, value_name = "T", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,
    /// How many hosts are killed, spread over the run [default: 0]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(0..=1024))]
    kill: Option<u32>,
    /// When they are killed
    #[arg(long, value_enum, default_value_t = When::Commit)]
    kill_at: When,
    /// What happens to a host that has died
    #[arg(long, value_enum, default_value_t = Then::Restart)]
    supervise: Then,
    /// Where the pod is made [default: a new file in /dev/shm]
    #[arg(long, value_name = "PATH")]
    pod: Option<PathBuf>,
    /// The size of the pod [default: estimated from the input]
    #[arg(long, value_parser = amount::size)]
    size: Option<u64>,
    /// Repeats a run's choices: when hosts are killed at random, and which
    #[arg(long)]
    seed: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum When {
    /// Right before they commit a unit, when the most work is lost
    Commit,
    /// At any moment
    Random,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Then {
    /// It is started again
    Restart,
    /// The others finish without it, or a spare takes its place
    None,
}

impl Hosts {
    /// What a driver is told. If nobody says otherwise, `kills` hosts are to be killed.
    pub fn options(&self, kills: u32) -> Options {
        let defaults = Options::default();
        Options {
            hosts: self.hosts,
            spares: self.spares,
            processes: self.processes,
            threads: self.threads,
            kills: self.kill.unwrap_or(kills),
            kill_at: match self.kill_at {
                When::Commit => KillAt::Commit,
                When::Random => KillAt::Random,
            },
            supervise: match self.supervise {
                Then::Restart => Supervise::Restart,
                Then::None => Supervise::None,
            },
            pod: self.pod.clone(),
            size: self.size,
            seed: self.seed.unwrap_or(defaults.seed),
            ..defaults
        }
    }
}
