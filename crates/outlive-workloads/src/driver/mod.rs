//! The driver of a run: makes the pod, starts the hosts, kills those that are to be killed, sees the failures
//! told and recovered, and collects what comes out.
//!
//! The driver is a host of the pod itself, which does no work. Its main thread supervises the hosts'
//! processes ([`ProcessSupervisor`](outlive::supervise::ProcessSupervisor)); a second one, the director, watches the run. Hosts die with the driver: no
//! process is left behind when it is killed.

mod director;
mod launch;
mod outcome;
mod play;
mod scene;
mod stale;

pub use launch::{die_with, not_stopped_by_a_terminal, own_program};
pub use outcome::{Failure, Outcome, Progress, RunError};

use crate::input::Inputs;
use crate::mapreduce::MapReduce;
use crate::run::{LARGEST_UNIT, MOST_HOSTS};
use launch::{Subreaper, cpu_seconds};
use outlive::membership::InstanceId;
use outlive::supervise::Stop;
use scene::{Scene, plan};
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

/// When a host is killed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KillAt {
    /// When one of its workers is right before a commit: the most work is lost (LUPIN, Table 4).
    #[default]
    Commit,
    /// At any moment.
    Random,
}

/// What happens to a host that has died.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Supervise {
    /// It is started again.
    #[default]
    Restart,
    /// The others finish without it.
    None,
}

/// What is run, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// What is read.
    pub inputs: Inputs,
    /// How many hosts: 1 to [`MOST_HOSTS`].
    pub hosts: u32,
    /// How many processes each of them has: a first one, and children of it.
    pub processes: u32,
    /// How many workers each of these has.
    pub threads: u32,
    /// How many hosts are killed, spread evenly over the run.
    pub kills: u32,
    /// When.
    pub kill_at: KillAt,
    /// What follows.
    pub supervise: Supervise,
    /// Where the pod is made; by default somewhere in /dev/shm.
    pub pod: Option<PathBuf>,
    /// How large it is; by default as large as is estimated from the inputs.
    pub size: Option<u64>,
    /// How large units are at most; by default chosen by the inputs.
    pub unit: Option<u64>,
    /// Decides hashes, and when hosts are killed at random.
    pub seed: u64,
}

impl Options {
    /// The defaults for `inputs`: four hosts of one process with one worker each, of which none is killed.
    pub fn new(inputs: Inputs) -> Self {
        Self {
            inputs,
            hosts: 4,
            processes: 1,
            threads: 1,
            kills: 0,
            kill_at: KillAt::default(),
            supervise: Supervise::default(),
            pod: None,
            size: None,
            unit: None,
            seed: u64::from(std::process::id()) << 32 ^ now_nanos(),
        }
    }
}

fn now_nanos() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |now| now.as_nanos() as u64)
}

/// Runs `program` over the inputs. `command` makes the command that becomes a host by calling
/// [`host::work`](crate::host::work) with the [`Place`](outlive::supervise::Place) in its environment. `stop` ends it early; `progress` is called every few milliseconds.
///
/// The pod is destroyed before this returns, and no process is left. While it runs, this process adopts what its
/// descendants leave behind, whose processor time would be lost to it otherwise: one run at a time.
///
/// # Errors
/// See [`RunError`].
pub fn run<P: MapReduce>(
    options: &Options,
    (number, program): (u64, &P),
    command: impl FnMut() -> Command + Clone + Send + 'static,
    stop: &Stop,
    progress: &mut (dyn FnMut(Progress) + Send),
) -> Result<Outcome, RunError> {
    refuse_the_impossible(options)?;
    let began = Instant::now();
    let _reaper = Subreaper::new();
    let cpu = cpu_seconds();
    let plan = plan(options, number);
    let scene = Scene::set(options, &plan, program)?;
    let created = began.elapsed();
    let mut outcome = scene.play(options, command, stop, progress)?;
    if let Some(first) = scene.run.first_byte()
        && let Some(more) = program.at_start(first)
    {
        outcome.totals.push(more);
        crate::wordcount::sort(&mut outcome.totals);
    }
    outcome.seconds_to_create = created.as_secs_f64();
    outcome.seconds = began.elapsed().as_secs_f64();
    drop(scene);
    outcome.cpu_seconds = cpu_seconds() - cpu;
    Ok(outcome)
}

fn refuse_the_impossible(options: &Options) -> Result<(), RunError> {
    let processes = u64::from(options.hosts) * u64::from(options.processes);
    let workers = processes.saturating_mul(options.threads.into());
    let asked = [
        (
            "a number of hosts",
            u64::from(options.hosts),
            1,
            u64::from(MOST_HOSTS),
        ),
        ("a number of processes", processes, 1, 4096),
        ("a number of workers", workers, 1, 4096),
        ("a number of kills", options.kills.into(), 0, 1024),
        (
            "a size of units",
            options.unit.unwrap_or(1),
            1,
            LARGEST_UNIT,
        ),
    ];
    for (what, asked, least, most) in asked {
        if !(least..=most).contains(&asked) {
            return Err(RunError::Impossible {
                what,
                asked,
                least,
                most,
            });
        }
    }
    Ok(())
}

// Ids: the hosts, the driver's host, the hosts' processes, the driver's process and its thread, the workers.

/// The first process of `host`; the driver's, if that is the number of hosts.
fn process_of(options: &Options, host: u32) -> InstanceId {
    options.hosts + 1 + host * options.processes
}

/// The driver's thread. The workers' ids follow.
fn driver_thread(options: &Options) -> InstanceId {
    process_of(options, options.hosts) + 1
}

/// The host of a process; the driver's is the number of hosts.
fn host_of(options: &Options, process: InstanceId) -> Option<u32> {
    let index = process.checked_sub(process_of(options, 0))?;
    Some(index / options.processes).filter(|host| *host <= options.hosts)
}
