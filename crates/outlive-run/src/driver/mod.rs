//! The driver of a run: creates the pod, starts the hosts, kills those that are to be killed,
//! follows each failure until it is reported and recovered, and collects the result. It runs any
//! [`Program`].
//!
//! The driver is a host of the pod itself, which does no work. Its main thread supervises the
//! hosts' processes ([`ProcessSupervisor`](outlive::supervise::ProcessSupervisor)); a second one,
//! the director, watches the run. Hosts die with the driver: no process is left behind when it is
//! killed.

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

/// The moment at which a host is killed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KillAt {
    /// Right before a commit of one of the host's workers, when the most work is lost (LUPIN, Table
    /// 4).
    #[default]
    Commit,
    /// At any moment.
    Random,
}

/// The action that the driver takes after a host has died.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Supervise {
    /// The driver restarts the host.
    #[default]
    Restart,
    /// The driver does not restart the host, and the other hosts finish the run.
    None,
}

/// The options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The number of hosts: 1 to [`MOST_HOSTS`].
    pub hosts: u32,
    /// The number of additional hosts that are on standby, each ready to take the place of one that
    /// dies.
    pub spares: u32,
    /// The number of processes of each host: a first one, and its children.
    pub processes: u32,
    /// The number of workers of each process.
    pub threads: u32,
    /// The number of hosts that are killed, spread evenly over the run.
    pub kills: u32,
    /// The units at which the hosts are killed, in ascending order, one for each kill. Empty by
    /// default: then the kills are spread evenly.
    pub kill_units: Vec<u64>,
    /// The moments of the kills.
    pub kill_at: KillAt,
    /// The treatment of hosts that have died.
    pub supervise: Supervise,
    /// The limits within which the number of working workers follows the number of ready tasks. The
    /// run begins with the workers of the hosts; those of the spares can be added. With `None`, the
    /// default, the workers of all hosts work all the time.
    pub elastic: Option<Elastic>,
    /// The time for which a worker's heartbeat may stand still while those of other workers
    /// advance, before the worker is suspected; 10 s by default.
    pub freeze: Option<Duration>,
    /// The time that a worker may take for one task; without it there is no limit.
    pub deadline: Option<Deadline>,
    /// The path of the pod; by default a new one in /dev/shm.
    pub pod: Option<PathBuf>,
    /// The size of the segment in bytes; by default the program's estimate.
    pub size: Option<u64>,
    /// The settings by which the pod's members watch one another. Their fence command is replaced
    /// by [`fence_command`](Self::fence_command).
    pub settings: Settings,
    /// The program that fences hosts of other machines, with its arguments; without it such hosts
    /// cannot join ([`ProcessOptions::fence_command`]).
    pub fence_command: Option<String>,
    /// The seed of the program's random choices, and of the moments of kills at random.
    pub seed: u64,
}

impl Options {
    /// Returns the number of workers that work at the same time.
    pub fn workers(&self) -> u32 {
        let workers = self.hosts.saturating_mul(self.processes);
        workers.saturating_mul(self.threads)
    }
}

impl Default for Options {
    /// Returns four hosts of one process with one worker each, none of which is killed.
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

/// Runs `program`. `command` returns the command for a host process, which calls
/// [`host::work`](crate::host::work) with the [`Place`](outlive::supervise::Place) in its
/// environment. `stop` ends the run early; `progress` is called every few milliseconds.
///
/// The pod is destroyed before this returns, and no process is left. During the run, this process
/// is the subreaper of its descendants, so that their processor time is counted. Orphans of other
/// children of this process are adopted too, and are not waited for. The processor time of a run
/// contains that of runs at the same time.
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

/// Asks the program for the size that it needs, if the segment was too small. The estimate may have
/// been too low.
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
            "the number of hosts",
            u64::from(options.hosts),
            1,
            u64::from(MOST_HOSTS),
        ),
        (
            "the number of hosts and spares",
            hosts,
            1,
            MOST_HOSTS.into(),
        ),
        ("the number of processes", processes, 1, 4096),
        ("the number of workers", workers, 1, 4096),
        (
            "the maximum number of elastic workers",
            most.into(),
            1,
            workers,
        ),
        (
            "the minimum number of elastic workers",
            least.into(),
            1,
            most.into(),
        ),
        (
            "the number of workers to begin with (those of --hosts)",
            options.workers().into(),
            1,
            options
                .elastic
                .map_or(workers, |elastic| elastic.most.into()),
        ),
        ("the number of kills", kills, 0, 1024),
        (
            "the number of units at which to kill",
            units_asked,
            kills,
            kills,
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
