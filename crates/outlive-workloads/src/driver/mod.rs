//! The driver of a run: makes the pod, starts the hosts, kills those that are to be killed, sees the failures
//! told and recovered, and collects what comes out. What is run is a [`Program`]; nothing here knows which.
//!
//! The driver is a host of the pod itself, which does no work. Its main thread supervises the hosts'
//! processes ([`ProcessSupervisor`](outlive::supervise::ProcessSupervisor)); a second one, the director, watches the run. Hosts die with the driver: no
//! process is left behind when it is killed.

mod director;
mod kills;
mod launch;
mod members;
mod outcome;
mod play;
mod program;
mod scene;
mod stale;
mod standby;

pub use launch::{die_with, not_stopped_by_a_terminal, own_program};
pub use outcome::{Failure, Outcome, Progress, RunError, Turns};
pub use program::{Attendant, Came, Deadline, Elastic, Order, Program, Running, Stage, Stretch};

use crate::crew::{Crew, MOST_HOSTS};
use crate::size;
use launch::{Subreaper, cpu_seconds};
use outlive::membership::{ProcessOptions, Settings};
use outlive::supervise::Stop;
use outlive_tasks::Band;
use scene::{Scene, ask_for};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

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

/// How a program is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many hosts: 1 to [`MOST_HOSTS`].
    pub hosts: u32,
    /// How many hosts stand by besides, each ready to take the place of one that dies.
    pub spares: u32,
    /// How many processes each of them has: a first one, and children of it.
    pub processes: u32,
    /// How many workers each of these has.
    pub threads: u32,
    /// How many hosts are killed, spread evenly over the run.
    pub kills: u32,
    /// At which units they are killed instead, in rising order: one for each kill. None, which is the default, spreads them.
    pub kill_units: Vec<u64>,
    /// When.
    pub kill_at: KillAt,
    /// What follows.
    pub supervise: Supervise,
    /// Within what the number of workers follows what there is to do, of those of all hosts and spares; as many as the
    /// hosts have begin. `None`, which is the default, if all of these work all the time.
    pub elastic: Option<Elastic>,
    /// How long a worker's heart may stand still while others' go on, before the worker is suspected; 10 s by default.
    pub freeze: Option<Duration>,
    /// The time that a worker may take for one task; without it there is no limit.
    pub deadline: Option<Deadline>,
    /// Where the pod is made; by default somewhere in /dev/shm.
    pub pod: Option<PathBuf>,
    /// How large it is; by default as large as the program estimates.
    pub size: Option<u64>,
    /// The settings by which the pod's members watch one another. Their fence command is replaced
    /// by [`fence_command`](Self::fence_command).
    pub settings: Settings,
    /// The program that fences hosts of other machines, with its arguments; without it such hosts
    /// cannot join ([`ProcessOptions::fence_command`]).
    pub fence_command: Option<String>,
    /// Decides what the program leaves to chance, and when hosts are killed at random.
    pub seed: u64,
}

impl Options {
    /// How many workers work at a time.
    pub fn workers(&self) -> u32 {
        let workers = self.hosts.saturating_mul(self.processes);
        workers.saturating_mul(self.threads)
    }
}

impl Default for Options {
    /// Four hosts of one process with one worker each, of which none is killed.
    fn default() -> Self {
        Self {
            hosts: 4,
            spares: 0,
            processes: 1,
            threads: 1,
            kills: 0,
            kill_units: Vec::new(),
            kill_at: KillAt::default(),
            supervise: Supervise::default(),
            elastic: None,
            freeze: None,
            deadline: None,
            pod: None,
            size: None,
            settings: Settings {
                uid: rustix::process::geteuid().as_raw(),
                ..Settings::default()
            },
            fence_command: None,
            seed: u64::from(std::process::id()) << 32 ^ now_nanos(),
        }
    }
}

fn now_nanos() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |now| now.as_nanos() as u64)
}

/// Runs `program`. `command` makes the command that becomes a host by calling
/// [`host::work`](crate::host::work) with the [`Place`](outlive::supervise::Place) in its environment. `stop` ends it early; `progress` is called every few milliseconds.
///
/// The pod is destroyed before this returns, and no process is left. While it runs, this process adopts what its
/// descendants leave behind, whose processor time would be lost to it otherwise: one run at a time.
///
/// # Errors
/// See [`RunError`].
pub fn run<P: Program>(
    options: &Options,
    program: &P,
    command: impl FnMut() -> Command + Clone + Send + 'static,
    stop: &Stop,
    progress: &mut (dyn FnMut(Progress) + Send),
) -> Result<Outcome<<P::Running as Running>::Result>, RunError> {
    refuse_the_impossible(options)?;
    let began = Instant::now();
    let _reaper = Subreaper::new();
    let command = with_fence_command(command, options.fence_command.clone());
    let cpu = cpu_seconds();
    let order = Order {
        crew: Crew::with_driver(options.hosts, options.processes, options.threads)
            .and_spares(options.spares),
        kills: options.kills,
        elastic: options.elastic,
        freeze: options.freeze,
    };
    let (scene, created, mut outcome) = Scene::set(options, &order, program)
        .and_then(|scene| {
            let created = began.elapsed();
            let outcome = scene.play(options, program, command, stop, progress)?;
            Ok((scene, created, outcome))
        })
        .map_err(|error| with_the_size_to_ask_for(error, &order, program, stop))?;
    outcome.seconds_to_create = created.as_secs_f64();
    outcome.seconds = began.elapsed().as_secs_f64();
    drop(scene);
    outcome.cpu_seconds = cpu_seconds() - cpu;
    Ok(outcome)
}

/// Returns a command source like `command`, whose processes find the fence command in their
/// environment.
fn with_fence_command(
    mut command: impl FnMut() -> Command + Clone + Send + 'static,
    fence_command: Option<String>,
) -> impl FnMut() -> Command + Clone + Send + 'static {
    move || {
        let mut command = command();
        if let Some(fence_command) = &fence_command {
            command.env(ProcessOptions::FENCE_COMMAND, fence_command);
        }
        command
    }
}

/// If the segment was too small, the program is asked what it needs: an estimate may have missed it.
fn with_the_size_to_ask_for(
    error: RunError,
    order: &Order,
    program: &impl Program,
    stop: &Stop,
) -> RunError {
    match error {
        RunError::Full { size, wanted, ask } => {
            let ask = match program.heap_bytes_counted(order, stop) {
                Ok(Some(heap)) => ask_for(size, size::segment_bytes(heap, order.crew.ids())),
                _ => ask,
            };
            RunError::Full { size, wanted, ask }
        }
        other => other,
    }
}

fn refuse_the_impossible(options: &Options) -> Result<(), RunError> {
    let hosts = u64::from(options.hosts) + u64::from(options.spares);
    let processes = hosts * u64::from(options.processes);
    let workers = processes.saturating_mul(options.threads.into());
    let (kills, units) = (u64::from(options.kills), options.kill_units.len() as u64);
    let units_asked = if units == 0 { kills } else { units };
    let Elastic { least, most, .. } = options.elastic.unwrap_or(Elastic {
        least: 1,
        most: 1,
        band: Band::default(),
    });
    let asked = [
        (
            "a number of hosts",
            u64::from(options.hosts),
            1,
            u64::from(MOST_HOSTS),
        ),
        ("a number of hosts and spares", hosts, 1, MOST_HOSTS.into()),
        ("a number of processes", processes, 1, 4096),
        ("a number of workers", workers, 1, 4096),
        ("a most of elastic workers", most.into(), 1, workers),
        ("a least of elastic workers", least.into(), 1, most.into()),
        (
            "a number of workers to begin with (those of --hosts)",
            options.workers().into(),
            1,
            options
                .elastic
                .map_or(workers, |elastic| elastic.most.into()),
        ),
        ("a number of kills", kills, 0, 1024),
        ("a number of units to kill at", units_asked, kills, kills),
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
