//! The outcome of a run, and its errors.

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

/// The outcome of a run.
#[derive(Clone, Debug)]
pub struct Outcome<T> {
    /// The result of the program.
    pub result: T,
    /// The time from the creation of the pod until all results were read.
    pub seconds: f64,
    /// The part of `seconds` before the hosts were started, in which the pod was created.
    pub seconds_to_create: f64,
    /// The part of `seconds` in which hosts worked.
    pub seconds_of_work: f64,
    /// The processor time of the driver and of all hosts, dead ones included.
    pub cpu_seconds: f64,
    /// The part of `cpu_seconds` that was used while hosts worked.
    pub cpu_seconds_of_work: f64,
    /// The number of units of work.
    pub units: u64,
    /// The size of the segment in bytes.
    pub segment_bytes: u64,
    /// The path of the pod.
    pub pod: PathBuf,
    /// The reason why the pod was not in /dev/shm but temporary, if no path was requested.
    pub no_room: Option<NoRoom>,
    /// The failures, in order.
    pub failures: Vec<Failure>,
    /// The total number of units that were begun and not committed.
    pub units_redone: u64,
    /// The number of requested kills that did not happen, because the run was over or the host
    /// ended otherwise.
    pub kills_missed: u32,
    /// The numbers of workers that started and stopped working during the run.
    pub turns: Turns,
}

impl<T> Outcome<T> {
    /// Separates the result of the program from the rest of the outcome.
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

/// The numbers of workers that started or stopped working during a run. A worker that works from
/// the beginning does not count as started, and one that works until the end does not count as
/// stopped. A worker that dies before it has recorded its start is not counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Turns {
    /// The number of workers that started because each worker had too many ready tasks.
    pub came_for_tasks: u64,
    /// The number of workers that started because other workers had failed.
    pub came_for_failures: u64,
    /// The number of workers that started because more workers were requested.
    pub came_on_request: u64,
    /// The number of workers that stopped because there were too few ready tasks.
    pub went_for_tasks: u64,
    /// The number of workers that stopped because fewer workers were requested.
    pub went_on_request: u64,
    /// The workers that were suspected: for each, its number and the number of suspicions.
    pub suspected: Vec<(u32, u64)>,
    /// The workers that exceeded the [deadline](super::Deadline) of a task: for each, its number
    /// and the number of these tasks.
    pub overdue: Vec<(u32, u64)>,
}

/// The failure of one host. Times are in seconds since the hosts were started.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The number of the host.
    pub host: u32,
    /// The time at which the driver sent SIGKILL to the host, if the host died of that signal;
    /// `None` if it ended otherwise.
    pub killed_at: Option<f64>,
    /// The number of begun units after which the host was to be killed, if it was killed at random.
    pub killed_at_unit: Option<u64>,
    /// Whether survivors fenced the host because it was silent.
    pub fenced: bool,
    /// The exit status of the host's first process; `None` if that is not known.
    pub ended: Option<ExitStatus>,
    /// The time at which the host's death was reported to the control group, or seen in the tables
    /// before.
    pub detected_at: Option<f64>,
    /// The process that proved the host dead, possibly the driver. `None` if that is not known: the
    /// process was not a member yet (the next incarnation of the host), or died before it could
    /// record the proof.
    pub detected_by: Option<Instance>,
    /// The host of the process that proved the host dead. The driver's host has the number after
    /// the last worker's host.
    pub detected_by_host: Option<u32>,
    /// The time at which all that the host's members held had been recovered.
    pub recovered_at: Option<f64>,
    /// The time at which all the host's restarted processes had joined, if it was restarted.
    pub rejoined_at: Option<f64>,
    /// The hosts that took the places of the host's workers: spares, or other hosts on standby.
    /// Hosts that started because of ready tasks or a request are not included. Empty if no host
    /// took a place, or only after no work was left.
    pub taken_over_by: Vec<u32>,
    /// The time at which the last of these places was taken: a standby worker began a task there.
    pub taken_over_at: Option<f64>,
    /// The instances that died with the host: all processes and threads of its tree.
    pub lost: Vec<Instance>,
    /// The number of threads in `lost`; the other instances were processes.
    pub threads_lost: usize,
    /// The units that the host had begun and not committed, and that were re-executed.
    pub units_redone: Vec<u64>,
    /// The incarnation of the host that failed, if it was a member.
    pub(super) instance: Option<Instance>,
    /// The number of its workers that worked, and the number of their places that are taken. Both
    /// are 0 if the run has no standby workers.
    pub(super) vacant: u32,
    pub(super) taken: u32,
    /// Whether `vacant` and `units_redone` have been read.
    pub(super) is_read: bool,
    /// Whether its death has been reported, not only seen in the tables.
    pub(super) is_told: bool,
    /// Whether it is not a failure: the host had left before the kill.
    pub(super) is_void: bool,
}

impl Failure {
    /// Returns a failure of `host` of which no more is known yet.
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

/// The progress of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The current phase, and how much of it is done.
    pub stretch: Stretch,
    /// The number of failures of hosts so far. A restarted host may fail again.
    pub failures: usize,
}

/// The reason why a run has no outcome.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// A number of hosts, threads or kills is out of range.
    #[error("{what} cannot be {asked}; the range is {least} to {most}")]
    Impossible {
        /// The quantity.
        what: &'static str,
        /// The number that was requested.
        asked: u64,
        /// The minimum.
        least: u64,
        /// The maximum.
        most: u64,
    },
    /// An input cannot be read.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The pod cannot be created, joined or destroyed.
    #[error(transparent)]
    Pod(#[from] PodError),
    /// The run cannot begin.
    #[error(transparent)]
    Begin(#[from] HostError),
    /// The segment is too small.
    #[error(
        "the segment of {size} bytes is full: a block of {wanted} bytes was needed; ask for at \
         least {ask} bytes with --size {}M",
        ask >> 20
    )]
    Full {
        /// The size of the segment in bytes.
        size: u64,
        /// The size in bytes of the block that did not fit.
        wanted: u64,
        /// The size in bytes to ask for.
        ask: u64,
    },
    /// A file has changed since it was opened first.
    #[error("{} has changed while it was read, so there is no result; run again", .path.display())]
    Changed {
        /// The path of the file.
        path: PathBuf,
    },
    /// A key is too long.
    #[error("{} has a token of more than 16 MiB near byte {at}; nothing was counted", .path.display())]
    TooLong {
        /// The path of the file.
        path: PathBuf,
        /// The offset in bytes.
        at: u64,
    },
    /// The result of the run cannot be written.
    #[error("the result cannot be written: {0}")]
    Unwritable(#[source] std::io::Error),
    /// A job of the run failed.
    #[error(transparent)]
    Job(#[from] JobError),
    /// All hosts are dead, or were given up.
    #[error(
        "all {hosts} hosts are dead, and {done} of {units} units are done; restart dead hosts \
         (--supervise restart), or kill fewer"
    )]
    AllDead {
        /// The number of hosts.
        hosts: u32,
        /// The number of units that are done.
        done: u64,
        /// The number of all units.
        units: u64,
    },
    /// A worker failed; its host has reported why on standard error.
    #[error("worker {0} of the run failed; its host has reported the reason on standard error")]
    Failed(u32),
    /// The run was cancelled for a reason that its program cannot explain.
    #[error("the run was cancelled for a reason that its program cannot explain: {0:?}")]
    CalledOff(CalledOff),
    /// All hosts are dead, and the last ones could not be restarted.
    #[error(
        "a host cannot be started: {0}; if processes or memory are lacking, raise the limits \
         (`ulimit -u`, the pids limit of a container, `ulimit -v`)"
    )]
    Launch(#[source] std::io::Error),
    /// A host that was to be killed did not die.
    #[error(
        "host {host}: process {pid} has not ended {seconds} s after SIGKILL; it may be in \
         uninterruptible sleep (state D in `ps`), or a seccomp filter discards kill(2): run \
         without that filter"
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
    /// The run was interrupted.
    #[error("interrupted")]
    Interrupted,
}
