//! `outlive-lab prove chaos`: real work under random deaths, with every operation accounted for.

use super::Proof;
use crate::amount;
use crate::failure::Failure;
use crate::output;
use clap::Args;
use outlive_proofs::killing;
use outlive_proofs::objects::chaos as objects;
use outlive_proofs::tasks::chaos as tasks;
use outlive_prove::chaos::{self, Broken, Options, Report};
use outlive_run::driver::die_with;
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::collections::BTreeMap;
use std::fmt;
use std::io::{IsTerminal, stderr};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime};

/// Workers on several hosts that are killed, stopped, fenced and restarted while they work.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    outlive-lab prove chaos --minutes 5\n  \
    outlive-lab prove chaos --minutes 0.5\n  \
    outlive-lab prove chaos --seconds 20 --hosts 4 --processes 8 --seed 7 --json\n  \
    outlive-lab prove chaos --tasks --seconds 30\n  \
    outlive-lab prove chaos --objects --seconds 30\n\n\
    Creates its own pod in /dev/shm (4 MiB for each process, at least 32 MiB) and removes it. Each \
    worker notes every operation before its beginning; restarted after a death, it asks whether \
    that operation took effect. At the end the counters under locks, the map and the heap must \
    match the notes of all workers: nothing is lost, done twice or leaked. The seed determines the \
    kills; it is printed. With --tasks the processes are workers of a pool, and run graphs of \
    tasks whose results are known: each graph must give the right sum, each of its tasks must take \
    effect exactly once, and no more tasks may be re-executed than workers were killed. With \
    --objects the processes create, rename, use and remove named objects under a few names, and \
    make requests as clients. An object must exist if and only if it was created and not removed. \
    It must have one of its possible names, and all additions to it. Each request must take effect \
    exactly once, and no lease and no block of memory may be left. An interrupt ends the run \
    early, with all checks. Exits with 1 if anything is wrong.\n\n\
    JSON: an array of one {name, points, failures, seconds, seed, messages, ...}; see \
    docs/json.md.")]
pub struct Chaos {
    /// The minutes for which members are killed, such as 5 or 0.5 [default: 1]
    #[arg(long, value_name = "M", conflicts_with = "seconds", value_parser = minutes)]
    minutes: Option<Duration>,
    /// The same in seconds
    #[arg(long, value_name = "S", value_parser = seconds)]
    seconds: Option<Duration>,
    /// Run graphs of tasks on the workers of a pool, each process on a host of its own
    #[arg(long, conflicts_with_all = ["hosts", "mebibytes", "broken"])]
    tasks: bool,
    /// Create, rename, use and remove named objects, each process on a host of its own
    #[arg(long, conflicts_with_all = ["hosts", "mebibytes", "tasks"])]
    objects: bool,
    /// The number of hosts
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=8))]
    hosts: u32,
    /// The number of worker processes on them
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=32))]
    processes: u32,
    /// The seed of the kills [default: the time]
    #[arg(long, value_parser = amount::whole, allow_negative_numbers = true)]
    seed: Option<u64>,
    /// Print the findings as JSON: one array with one object
    #[arg(long)]
    json: bool,
    /// The size of the pod in MiB: to test refused allocations
    #[arg(long, hide = true)]
    mebibytes: Option<u64>,
    /// Break the workers in this way: to test that it is noticed
    #[arg(long, hide = true)]
    broken: Option<Broken>,
    /// Run a worker
    #[arg(long, hide = true)]
    worker: bool,
    /// The process that the worker belongs to, with --tasks or --objects
    #[arg(long, hide = true, value_name = "PID", default_value_t = 0)]
    parent: u32,
}

#[derive(Serialize)]
struct Details {
    seed: u64,
    operations: u64,
    effects: BTreeMap<&'static str, u64>,
    kills: BTreeMap<&'static str, u64>,
    /// Reported dead.
    threads: u64,
    processes: u64,
    hosts: u64,
    restarts: u64,
    messages: Vec<String>,
}

impl Chaos {
    pub fn run(self) -> Result<(), Failure> {
        if self.worker && (self.tasks || self.objects) {
            die_with(self.parent).map_err(Failure::new)?;
            let worked = match self.tasks {
                true => tasks::work().map(drop),
                false => objects::work(),
            };
            return worked.map_err(Failure::new);
        }
        if self.worker {
            return chaos::work().map_err(Failure::new);
        }
        let time = self.minutes.or(self.seconds).unwrap_or(MINUTE);
        let seed = self.seed.unwrap_or_else(|| {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            now.map_or(0, |now| now.as_millis() as u64)
        });
        if self.tasks {
            return self.run_tasks(time, seed);
        }
        if self.objects {
            return self.run_objects(time, seed);
        }
        if self.processes < self.hosts {
            return Err(Failure::Usage(format!(
                "{} processes cannot run on {} hosts; give --processes at least the number of \
                 hosts",
                self.processes, self.hosts
            )));
        }
        let mut options = Options::new(time, seed);
        options.hosts = self.hosts;
        options.processes = self.processes;
        options.bytes = self.mebibytes.map(|mebibytes| mebibytes << 20);
        options.broken = self.broken;
        end_when_interrupted(&options.enough)?;
        let program = own_program()?;
        let command = move || {
            let mut command = Command::new(&program);
            command.args(["prove", "chaos", "--worker"]);
            command
        };
        if !self.json {
            output::line(format_args!(
                "{} processes on {} hosts for {}, seed {seed}",
                self.processes,
                self.hosts,
                humantime::format_duration(time),
            ))?;
        }
        let report = chaos::run(&options, command, |progress| {
            print_progress(progress.elapsed, progress);
        })
        .map_err(|error| Failure::new(format_args!("{error} (seed {seed})")))?;
        if self.json {
            output::json(&[proof(&report, seed)])?;
        } else {
            output::line(&report)?;
            if !report.is_clean() {
                output::line(format_args!(
                    "repeat these kills with --seed {seed} --hosts {} --processes {}",
                    self.hosts, self.processes
                ))?;
            }
        }
        if report.is_clean() {
            Ok(())
        } else {
            Err(Failure::Found)
        }
    }
}

outlive_proofs::chaos_tasks!();

#[derive(Serialize)]
struct TasksDetails {
    seed: u64,
    graphs: u64,
    tasks: u64,
    redone: u64,
    /// The number of workers in the processes that were killed.
    workers: u64,
    messages: Vec<String>,
}

#[derive(Serialize)]
struct ObjectsDetails {
    seed: u64,
    operations: u64,
    effects: BTreeMap<&'static str, u64>,
    cut_off: u64,
    checks: u64,
    messages: Vec<String>,
}

impl Chaos {
    /// Runs chaos over graphs of tasks.
    fn run_tasks(&self, time: Duration, seed: u64) -> Result<(), Failure> {
        let mut options = tasks::Options::new(tasks::Until::Time(time), seed);
        options.processes = vec![1; self.processes as usize];
        end_when_interrupted(&options.enough)?;
        let command = self.begin("--tasks", "graphs of tasks", time, seed)?;
        let report = tasks::run("chaos", &options, chaos_round, command, |progress| {
            print_progress(progress.elapsed, progress);
        });
        self.conclude("--tasks", seed, report, |report| {
            let progress = report.progress;
            Proof {
                name: "chaos: tasks".into(),
                points: progress.kills,
                failures: report.failures.len() as u64,
                seconds: progress.elapsed.as_secs_f64(),
                more: TasksDetails {
                    seed,
                    graphs: progress.graphs,
                    tasks: progress.tasks,
                    redone: progress.redone,
                    workers: progress.workers,
                    messages: report.failures.clone(),
                },
            }
        })
    }

    /// Runs chaos over named objects.
    fn run_objects(&self, time: Duration, seed: u64) -> Result<(), Failure> {
        let mut options = objects::Options::new(objects::Until::Time(time), seed);
        options.processes = self.processes;
        options.broken = self.broken;
        if !matches!(self.broken, None | Some(Broken::Forgetful | Broken::Loses)) {
            let usage = "with --objects, --broken can be `forgetful` or `loses`";
            return Err(Failure::Usage(usage.into()));
        }
        end_when_interrupted(&options.enough)?;
        let command = self.begin("--objects", "named objects", time, seed)?;
        let report = objects::run("chaos", &options, command, |progress| {
            print_progress(progress.elapsed, progress);
        });
        self.conclude("--objects", seed, report, |report| {
            let progress = &report.progress;
            Proof {
                name: "chaos: objects".into(),
                points: progress.kills,
                failures: report.failures.len() as u64,
                seconds: progress.elapsed.as_secs_f64(),
                more: ObjectsDetails {
                    seed,
                    operations: progress.operations,
                    effects: progress.effects.clone(),
                    cut_off: progress.cut_off,
                    checks: progress.checks,
                    messages: report.failures.clone(),
                },
            }
        })
    }

    /// Prints that a run with the option `flag` begins, and returns the command of its workers.
    fn begin(
        &self,
        flag: &'static str,
        about: &str,
        time: Duration,
        seed: u64,
    ) -> Result<impl Fn() -> Command + 'static, Failure> {
        if !self.json {
            output::line(format_args!(
                "{about} on {} processes for {}, seed {seed}",
                self.processes,
                humantime::format_duration(time),
            ))?;
        }
        let program = own_program()?;
        Ok(move || {
            let mut command = Command::new(&program);
            command.args(["prove", "chaos", flag, "--worker", "--parent"]);
            command.arg(std::process::id().to_string());
            command
        })
    }

    /// Prints the result of a run with the option `flag`.
    fn conclude<P: fmt::Display, T: Serialize>(
        &self,
        flag: &str,
        seed: u64,
        report: Result<killing::Report<P>, String>,
        proof: impl FnOnce(&killing::Report<P>) -> Proof<T>,
    ) -> Result<(), Failure> {
        let report = report.map_err(|error| Failure::new(format_args!("{error} (seed {seed})")))?;
        if self.json {
            output::json(&[proof(&report)])?;
        } else {
            output::line(&report)?;
            if !report.is_clean() {
                output::line(format_args!(
                    "repeat this work and these kills with {flag} --seed {seed} --processes {}",
                    self.processes
                ))?;
            }
        }
        match report.is_clean() {
            true => Ok(()),
            false => Err(Failure::Found),
        }
    }
}

/// Prints the progress every second on a terminal, and every ten seconds elsewhere.
fn print_progress(elapsed: Duration, progress: &impl fmt::Display) {
    if stderr().is_terminal() || elapsed.as_secs().is_multiple_of(10) {
        output::note(progress);
    }
}

/// Makes a run that is interrupted end properly, and remove its pod.
fn end_when_interrupted(enough: &Arc<AtomicBool>) -> Result<(), Failure> {
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(enough)).map_err(|error| {
            Failure::new(format_args!(
                "the handler of signal {signal} cannot be installed: {error}"
            ))
        })?;
    }
    Ok(())
}

fn own_program() -> Result<PathBuf, Failure> {
    std::env::current_exe().map_err(|error| {
        Failure::new(format_args!(
            "the path of this program cannot be determined: {error}"
        ))
    })
}

const MINUTE: Duration = Duration::from_secs(60);
const WEEK: f64 = 604_800.0;

fn minutes(text: &str) -> Result<Duration, String> {
    duration(text, 60.0, "minutes")
}

fn seconds(text: &str) -> Result<Duration, String> {
    duration(text, 1.0, "seconds")
}

/// Reads a time from a second to a week: a number of units of `unit` seconds, whole or not.
fn duration(text: &str, unit: f64, name: &str) -> Result<Duration, String> {
    let number: f64 = text
        .parse()
        .map_err(|_| format!("give a number of {name}, such as 5 or 0.5"))?;
    let seconds = number * unit;
    if (1.0..=WEEK).contains(&seconds) {
        // Rounded to milliseconds.
        Ok(Duration::from_millis((seconds * 1e3).round() as u64))
    } else {
        Err("give from 1 second to 1 week".into())
    }
}

fn proof(report: &Report, seed: u64) -> Proof<Details> {
    let progress = &report.progress;
    let kills = progress.kills.iter();
    Proof {
        name: "chaos".into(),
        points: progress.faults(),
        failures: report.failures.len() as u64,
        seconds: report.seconds,
        more: Details {
            seed,
            operations: progress.operations,
            effects: report.effects.iter().copied().collect(),
            kills: kills.map(|(kill, times)| (kill.name(), *times)).collect(),
            threads: progress.threads,
            processes: progress.processes,
            hosts: progress.hosts,
            restarts: progress.restarts,
            messages: report.failures.clone(),
        },
    }
}
