//! What comes of a run.

use super::Stretch;
use crate::header::CalledOff;
use crate::host::HostError;
use crate::input::InputError;
use outlive::membership::Instance;
use outlive::pod::PodError;
use outlive::segment::NoRoom;
use outlive_tasks::JobError;
use std::path::PathBuf;
use std::process::ExitStatus;

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Outcome<T> {
    /// What the program has found.
    pub result: T,
    /// From the creation of the pod until all of it was read.
    pub seconds: f64,
    /// Of that, until the hosts were started: the pod was made.
    pub seconds_to_create: f64,
    /// Of that, while hosts worked.
    pub seconds_of_work: f64,
    /// The processor time of the driver and of all hosts, the dead ones' included.
    pub cpu_seconds: f64,
    /// Of that, while hosts worked.
    pub cpu_seconds_of_work: f64,
    /// The units of work.
    pub units: u64,
    /// The size of the segment.
    pub segment_bytes: u64,
    /// Where the pod was.
    pub pod: PathBuf,
    /// Why it was with temporary files and not in /dev/shm, if it was not asked for elsewhere.
    pub no_room: Option<NoRoom>,
    /// What failed, in order.
    pub failures: Vec<Failure>,
    /// How many units were begun and not committed, in all.
    pub units_redone: u64,
    /// The number of requested kills that did not happen, because the run was over or the host
    /// ended otherwise.
    pub kills_missed: u32,
    /// Which workers came and went meanwhile.
    pub turns: Turns,
}

impl<T> Outcome<T> {
    /// What the program has found, and the outcome without it.
    pub fn split(self) -> (T, Outcome<()>) {
        let rest = Outcome {
            result: (),
            seconds: self.seconds,
            seconds_to_create: self.seconds_to_create,
            seconds_of_work: self.seconds_of_work,
            cpu_seconds: self.cpu_seconds,
            cpu_seconds_of_work: self.cpu_seconds_of_work,
            units: self.units,
            segment_bytes: self.segment_bytes,
            pod: self.pod,
            no_room: self.no_room,
            failures: self.failures,
            units_redone: self.units_redone,
            kills_missed: self.kills_missed,
            turns: self.turns,
        };
        (self.result, rest)
    }
}

/// Which of a run's own workers came to work and went again while it went on. Who works from the beginning has not come, and who
/// stays until the end has not gone; whoever dies before he has said that he comes is not counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Turns {
    /// How many came since each had too many ready tasks.
    pub came_for_tasks: u64,
    /// How many came since others had failed.
    pub came_for_failures: u64,
    /// How many came since somebody asked for more.
    pub came_on_request: u64,
    /// How many went since there was too little to do.
    pub went_for_tasks: u64,
    /// How many went since somebody asked for fewer.
    pub went_on_request: u64,
    /// Those that were suspected, by their numbers, and how often.
    pub suspected: Vec<(u32, u64)>,
    /// The workers that exceeded the [deadline](super::Deadline) of a task, by their numbers, and
    /// how often.
    pub overdue: Vec<(u32, u64)>,
}

/// One host's failure. Times are seconds from when the hosts were started.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The host.
    pub host: u32,
    /// When the driver sent SIGKILL to it, if it was seen to have died of that signal; `None` if it
    /// ended otherwise.
    pub killed_at: Option<f64>,
    /// The number of begun units after which it was to be killed, if it was killed at random.
    pub killed_at_unit: Option<u64>,
    /// Whether survivors fenced it because it was silent.
    pub fenced: bool,
    /// How its first process ended; `None` if that is not known.
    pub ended: Option<ExitStatus>,
    /// When its death was told to the pod's control group.
    pub detected_at: Option<f64>,
    /// Who proved it dead: the process in which that was seen, the driver's among them. `None` if that is not known:
    /// whoever proved it was no member yet (its own next incarnation), or died before it could say so.
    pub detected_by: Option<Instance>,
    /// The host of that process; the driver's has the number after the last worker's.
    pub detected_by_host: Option<u32>,
    /// When all that its members held had been recovered.
    pub recovered_at: Option<f64>,
    /// When all its restarted processes had joined, if it was restarted.
    pub rejoined_at: Option<f64>,
    /// The hosts that took its places: spares, or others that stood by; not those who came since there was more to do, or somebody
    /// asked for more. Empty if there were none, or they came when nothing was left to be done.
    pub taken_over_by: Vec<u32>,
    /// When the last of its places was taken that was: somebody who stood by began a task there.
    pub taken_over_at: Option<f64>,
    /// The instances that died with it: all processes and threads of its tree.
    pub lost: Vec<Instance>,
    /// How many of these were threads; the others were processes.
    pub threads_lost: usize,
    /// The units that were lost with it, begun and not committed, and so were done again.
    pub units_redone: Vec<u64>,
    /// The incarnation of the host that failed, if it was a member.
    pub(super) instance: Option<Instance>,
    /// How many of its workers worked, and how many of their places are taken. Both 0 where nobody stands by.
    pub(super) vacant: u32,
    pub(super) taken: u32,
    /// Whether these have been read.
    pub(super) is_read: bool,
    /// Whether its death has been told, not only seen.
    pub(super) is_told: bool,
    /// Whether it was no failure: the host had left when it was to be killed.
    pub(super) is_void: bool,
}

impl Failure {
    /// One of `host` of which nothing is known yet.
    pub(super) fn of(host: u32) -> Self {
        Self {
            host,
            killed_at: None,
            killed_at_unit: None,
            fenced: false,
            ended: None,
            detected_at: None,
            detected_by: None,
            detected_by_host: None,
            recovered_at: None,
            rejoined_at: None,
            taken_over_by: Vec::new(),
            taken_over_at: None,
            lost: Vec::new(),
            threads_lost: 0,
            units_redone: Vec::new(),
            instance: None,
            vacant: 0,
            taken: 0,
            is_read: false,
            is_told: false,
            is_void: false,
        }
    }
}

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What it does, and how much of that is done.
    pub stretch: Stretch,
    /// How many hosts have failed.
    pub failures: usize,
}

/// Why a run has no outcome.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// A number of hosts, threads or kills that cannot be.
    #[error("{what} of {asked}: it can be {least} to {most}")]
    Impossible {
        /// What was asked for.
        what: &'static str,
        /// How much of it.
        asked: u64,
        /// The least.
        least: u64,
        /// The most.
        most: u64,
    },
    /// An input cannot be read.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The pod cannot be made, joined or destroyed.
    #[error(transparent)]
    Pod(#[from] PodError),
    /// The run cannot be begun.
    #[error(transparent)]
    Begin(#[from] HostError),
    /// The segment is too small.
    #[error(
        "the segment of {size} bytes is full: a block of {wanted} bytes was wanted; ask for at least {ask} bytes with --size {}M",
        ask >> 20
    )]
    Full {
        /// The size of the segment.
        size: u64,
        /// What was wanted of it.
        wanted: u64,
        /// What to ask for.
        ask: u64,
    },
    /// A file has another length than when it was looked at.
    #[error("{} has changed while it was read; nothing was made of it", .path.display())]
    Changed {
        /// Which file.
        path: PathBuf,
    },
    /// A key is too long.
    #[error("{} has a token of more than 16 MiB near byte {at}; nothing was counted", .path.display())]
    TooLong {
        /// In which file.
        path: PathBuf,
        /// Where.
        at: u64,
    },
    /// What comes of the run cannot be written.
    #[error("the result cannot be written: {0}")]
    Unwritable(#[source] std::io::Error),
    /// A job that the run consists of failed.
    #[error(transparent)]
    Job(#[from] JobError),
    /// All hosts have died, or given up.
    #[error(
        "all {hosts} hosts are dead, and {done} of {units} units are done; let hosts be restarted (--supervise restart), or kill fewer"
    )]
    AllDead {
        /// How many there were.
        hosts: u32,
        /// How many units were done.
        done: u64,
        /// Of how many.
        units: u64,
    },
    /// A worker failed, and has said why on standard error.
    #[error("worker {0} of the run failed; its host has said why")]
    Failed(u32),
    /// It was called off for what its program does not know.
    #[error("the run was called off: {0:?}")]
    CalledOff(CalledOff),
    /// All hosts are dead, and the last ones could not be started again.
    #[error(
        "a host cannot be started: {0}; if processes or memory are lacking, raise the limits \
         (`ulimit -u`, the pids limit of a container, `ulimit -v`)"
    )]
    Launch(#[source] std::io::Error),
    /// A host that was to be killed did not die.
    #[error(
        "host {host} was sent SIGKILL and its process {pid} still runs {seconds} s later: a filter \
         (seccomp) may answer kill(2) without making the call; run where processes can be killed"
    )]
    NotKilled {
        /// The host.
        host: u32,
        /// Its first process.
        pid: u32,
        /// The time in seconds that the driver waited.
        seconds: u64,
    },
    /// A thread of the driver cannot be started.
    #[error(
        "a thread of the driver cannot be started: {0}; raise the limits on threads (`ulimit \
         -u`, the pids limit of a container) \
         and on memory (`ulimit -v`)"
    )]
    Thread(#[source] std::io::Error),
    /// It was told to stop.
    #[error("interrupted")]
    Interrupted,
}
