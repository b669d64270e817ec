//! The flags of every run for its hosts: their number, and their failures.

use crate::amount;
use crate::commands::watching::Watching;
use clap::{Args, ValueEnum};
use outlive_run::driver::{Deadline, Elastic, KillAt, Options, Supervise};
use outlive_tasks::Band;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// The hosts of a run, and their failures.
#[derive(Args, Debug)]
pub struct Hosts {
    /// Number of hosts: process trees on this machine
    #[arg(long, value_name = "H", default_value_t = 4,
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    hosts: u32,
    /// Number of additional standby hosts. When a host dies, one of them replaces it immediately.
    /// With --supervise restart, the restarted host becomes a standby host
    #[arg(long, value_name = "N", default_value_t = 0,
          value_parser = clap::value_parser!(u32).range(0..=1023))]
    spares: u32,
    /// Number of processes of each host: one that the driver starts, and its children. They die
    /// together
    #[arg(long, value_name = "P", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    processes: u32,
    /// Number of worker threads of each process
    #[arg(long, value_name = "T", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,
    /// Number of hosts to kill, spread over the run; the command exits with 1 if fewer are killed
    /// [default: 0]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(0..=1024))]
    kill: Option<u32>,
    /// Moment at which a host is killed
    #[arg(long, value_enum, default_value_t = When::Commit)]
    kill_at: When,
    /// Treatment of a dead host
    #[arg(long, value_enum, default_value_t = Then::Restart)]
    supervise: Then,
    /// Adapt the number of workers, from MIN to MAX, to the number of ready tasks per worker
    /// (--ready). The run begins with the workers of --hosts; those of --spares can be added. Dead
    /// workers are replaced only when more than the share --may-fail has died
    #[arg(long, value_name = "MIN..MAX", value_parser = workers)]
    elastic: Option<(u32, u32)>,
    /// Numbers of ready tasks per worker for --elastic: above MOST, workers are added; below
    /// FEWEST, idle workers are removed
    #[arg(long, value_name = "FEWEST..MOST", requires = "elastic", default_value = "0.5..4", value_parser = ready)]
    ready: (f64, f64),
    /// Fraction, 0 to 1, of the initial number of workers that may fail without being replaced
    #[arg(long, value_name = "FRACTION", requires = "elastic", default_value_t = Band::default().failed, value_parser = part)]
    may_fail: f64,
    /// Report a worker as suspected if its heartbeat stops for this time while others advance; a
    /// longer task also causes this [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = time)]
    freeze: Option<Duration>,
    /// Report a worker as overdue after it has executed one task for this time. The driver checks
    /// about fifty times a second; the time starts again when a task is re-executed
    #[arg(long, value_name = "TIME", value_parser = time)]
    deadline: Option<Duration>,
    /// Kill the host of an overdue worker; another worker re-executes the task. After repeated
    /// kills the task fails, and the run with it
    #[arg(long, requires = "deadline")]
    fence_overdue: bool,
    /// Path of the pod to create for this run [default: a file in /dev/shm]
    #[arg(long, value_name = "PATH")]
    pod: Option<PathBuf>,
    /// Size of the pod [default: estimated from the input]
    #[arg(long, value_parser = amount::size)]
    size: Option<u64>,
    #[command(flatten)]
    watching: Watching,
    /// Seed of the random choices [default: random, printed in the report]. With --kill-at random
    /// it fixes which hosts are killed and at which units, unless a chosen host is not working; it
    /// never fixes the instruction at which a host dies, or the host that --kill-at commit kills
    #[arg(long, value_parser = amount::whole, allow_negative_numbers = true)]
    seed: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum When {
    /// Right before one of its workers commits a unit (a piece of the input)
    Commit,
    /// After a number of units and on a host that are chosen at random (--seed)
    Random,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Then {
    /// The host is restarted
    Restart,
    /// The other hosts finish without it, or a standby host (--spares) takes its place
    None,
}

/// Parses `FROM..TO`.
fn range<T: FromStr>(text: &str) -> Option<(T, T)> {
    let (from, to) = text.split_once("..")?;
    let number = |text: &str| text.trim().parse().ok();
    Some((number(from)?, number(to)?))
}

fn workers(text: &str) -> Result<(u32, u32), String> {
    let both = range(text).filter(|(least, most)| 1 <= *least && least <= most);
    both.ok_or_else(|| "write MIN..MAX, such as 2..8: MIN is 1 or more, and at most MAX".into())
}

fn ready(text: &str) -> Result<(f64, f64), String> {
    let both = range(text).filter(|(fewest, most)| 0.0 <= *fewest && fewest < most);
    both.ok_or_else(|| {
        "write FEWEST..MOST, such as 0.5..4: FEWEST is 0 or more, and below MOST".into()
    })
}

fn part(text: &str) -> Result<f64, String> {
    let part = text.parse().ok().filter(|part| (0.0..=1.0).contains(part));
    part.ok_or_else(|| "it is a number from 0 to 1".into())
}

fn time(text: &str) -> Result<Duration, String> {
    let time =
        humantime::parse_duration(text).map_err(|error| format!("{error}; write 500ms or 10s"))?;
    match (Duration::from_millis(1)..=Duration::from_secs(86_400)).contains(&time) {
        true => Ok(time),
        false => Err("it has to be between 1ms and a day".into()),
    }
}

impl Hosts {
    /// Returns the driver's options. Without `--kill`, `kills` hosts are killed.
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
            elastic: self.elastic.map(|(least, most)| Elastic {
                least,
                most,
                band: Band {
                    failed: self.may_fail,
                    fewest: self.ready.0,
                    most: self.ready.1,
                },
            }),
            freeze: self.freeze,
            deadline: self.deadline.map(|limit| Deadline {
                limit,
                fences: self.fence_overdue,
            }),
            pod: self.pod.clone(),
            size: self.size,
            settings: self.watching.settings(),
            fence_command: self.watching.fence_command().map(str::to_owned),
            seed: self.seed.unwrap_or(defaults.seed),
            ..defaults
        }
    }
}
