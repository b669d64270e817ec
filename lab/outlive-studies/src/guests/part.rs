//! The parts of this study that run in a guest: increments together with the other guest, and the
//! observation of a host.

use crate::StudyError;
use crate::children::Part;
use crate::scratch::payload;
use outlive::membership::{InstanceId, Level, State, Status};
use outlive::memory::{Memory, Native, Offset, Ordering};
use outlive::pod::Pod;
use outlive_tasks::{Status as TaskStatus, WorkerPool};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A part of the study that runs in a guest.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum InGuest {
    /// Increments two words of the pod's payload at the same time as another guest does.
    Increment {
        pod: PathBuf,
        /// The number of increments.
        times: u64,
    },
    /// Waits for a pod, and observes one of its hosts until that has died and been recovered.
    LookAt {
        pod: PathBuf,
        /// The pool in which the host works.
        pool: String,
        host: InstanceId,
        /// Another host, whose processes report the death.
        beside: InstanceId,
        /// The number of processes that the two hosts have when everything is prepared.
        processes: usize,
    },
}

/// The lines that [`InGuest::LookAt`] prints: when the pod exists; when all processes have joined
/// and the host's worker counts; when its heartbeat stands still after that, in a unit or between
/// two; when nothing of the host is left to be recovered.
pub const IS_THERE: &str = "the pod is there";
pub const WORKS: &str = "it works";
pub const IN_A_UNIT: &str = "it stands still in a unit";
pub const BETWEEN_UNITS: &str = "it stands still between two units";
pub const RECOVERED: &str = "it is recovered";
/// The longest interval between two heartbeats of the host before it worked, in microseconds.
pub const SILENCE: &str = "longest silence:";

/// The offsets of the words in the payload: the number of guests that have come, the number of
/// those that are done, and the two words that are incremented.
const CAME: u64 = 0;
const DONE: u64 = 128;
const SMALL: u64 = 256;
const LARGE: u64 = 384;

/// The time that a guest waits for the other one.
const PATIENCE: Duration = Duration::from_secs(60);
/// The time without a beat after which a heartbeat counts as standing still. Much less than the
/// suspicion time.
const STILL: Duration = Duration::from_millis(200);
/// The time after which a task is sure to take a while longer: by then the unit has been read, and
/// is being counted.
const LONG: Duration = Duration::from_millis(45);
/// The interval at which a host is observed.
const INTERVAL: Duration = Duration::from_millis(1);

impl InGuest {
    /// Returns the shell command that runs this part, by the `outlive` on the guest's path.
    pub fn shell_command(&self) -> String {
        let (variable, part) = Part::Guest(self.clone()).in_environment();
        format!("{variable}='{part}' outlive-lab study-part")
    }

    pub fn play(self) -> Result<(), StudyError> {
        match self {
            Self::Increment { pod, times } => increment(&Pod::open(pod)?, times),
            Self::LookAt {
                pod,
                pool,
                host,
                beside,
                processes,
            } => {
                let pod = open(&pod)?;
                println!("{IS_THERE}");
                let mut task = (None, Instant::now());
                poll(&pod, host, || {
                    let now = task_of(&pod, &pool, host);
                    if now != task.0 {
                        task = (now, Instant::now());
                    }
                    let in_unit = now.is_some();
                    let is_long = in_unit && task.1.elapsed() > LONG;
                    let works = is_long && processes_of(&pod, [host, beside]) >= processes;
                    Sight { in_unit, works }
                })
            }
        }
    }
}

/// Increments, and prints the sums of both guests' increments: those by atomic additions to a word
/// of 64 bits, and those by compare-and-swaps of a word of 128 bits.
fn increment(pod: &Pod, times: u64) -> Result<(), StudyError> {
    let (memory, at) = (pod.segment().memory(), payload(pod));
    meet(memory, at + CAME)?;
    for _ in 0..times {
        memory.fetch_add(at + SMALL, 1u64, Ordering::Relaxed);
        let mut seen: u128 = memory.load(at + LARGE, Ordering::Relaxed);
        while let Err(other) = memory.compare_exchange(
            at + LARGE,
            seen,
            seen + 1,
            Ordering::Relaxed,
            Ordering::Relaxed,
        ) {
            seen = other;
        }
    }
    meet(memory, at + DONE)?;
    let small: u64 = memory.load(at + SMALL, Ordering::Relaxed);
    let large: u128 = memory.load(at + LARGE, Ordering::Relaxed);
    println!("{small} {large}");
    Ok(())
}

/// Waits until both guests have called this with the word at `at`.
fn meet(memory: Native, at: Offset) -> Result<(), StudyError> {
    let until = Instant::now() + PATIENCE;
    memory.fetch_add(at, 1u64, Ordering::AcqRel);
    while memory.load::<u64>(at, Ordering::Acquire) < 2 {
        if Instant::now() > until {
            return Err(StudyError::void("the other guest has not arrived"));
        }
        std::thread::sleep(INTERVAL);
    }
    Ok(())
}

/// Opens a pod that may not exist yet.
fn open(path: &Path) -> Result<Pod, StudyError> {
    let until = Instant::now() + PATIENCE;
    loop {
        match Pod::open(path) {
            Ok(pod) => return Ok(pod),
            Err(error) if Instant::now() > until => return Err(error.into()),
            Err(_) => std::thread::sleep(INTERVAL),
        }
    }
}

/// The state of a host, as observed in one round.
struct Sight {
    /// Whether its worker is in a unit.
    in_unit: bool,
    /// Whether it has been in the unit for a while, and all processes have joined.
    works: bool,
}

/// Prints lines when `host` works, when its heartbeat stands still then, and when it is recovered
/// after its death. Also prints the longest interval between two of its heartbeats before it
/// worked.
fn poll(pod: &Pod, host: InstanceId, mut look: impl FnMut() -> Sight) -> Result<(), StudyError> {
    let (tables, records) = (pod.tables(), pod.tables().records());
    let generations = tables.generations();
    let status = || generations.state(host).map(|state| state.status);
    let (mut is_told, mut is_watched) = (false, false);
    let (mut beats, mut moved, mut longest) = (0, Instant::now(), Duration::ZERO);
    loop {
        let now = records.beats(host);
        if now != beats {
            // Before the first beat the host did not exist. When it works, it may be stopped.
            if beats != 0 && !is_told {
                longest = longest.max(moved.elapsed());
            }
            (beats, moved) = (now, Instant::now());
        }
        let (sight, is_still) = (look(), moved.elapsed() > STILL);
        if is_watched && is_still {
            let is = if sight.in_unit {
                IN_A_UNIT
            } else {
                BETWEEN_UNITS
            };
            println!("{is}");
            is_watched = false;
        } else if !is_watched && !is_still && sight.works {
            println!("{WORKS}");
            (is_told, is_watched) = (true, true);
        }
        match status() {
            Ok(Status::Recovered) if is_told => break,
            Ok(Status::Left) if is_told => {
                return Err(StudyError::void("the host has left, and did not die"));
            }
            _ => std::thread::sleep(INTERVAL),
        }
    }
    // Its members die with it, and are recovered one by one.
    while !has_recovered(pod, host) {
        std::thread::sleep(INTERVAL);
    }
    println!("{RECOVERED}");
    println!("{SILENCE} {}", longest.as_micros());
    Ok(())
}

/// Returns the number of live processes of `hosts`.
fn processes_of(pod: &Pod, hosts: [InstanceId; 2]) -> usize {
    let is_one = |state: State| {
        state.level == Some(Level::Process)
            && state.status == Status::Live
            && hosts.contains(&state.host.into())
    };
    let writers = pod.tables().writers();
    writers.filter(|(_, state)| is_one(*state)).count()
}

/// Identifies the task in which a worker of `host` counts words: returns the worker's heartbeat and
/// the status of the task; `None` if it is in no such task.
fn task_of(pod: &Pod, pool: &str, host: InstanceId) -> Option<(u64, TaskStatus)> {
    let pool = WorkerPool::inspect(pod, pool).ok()?;
    let generations = pod.tables().generations();
    pool.workers.iter().find_map(|worker| {
        let (task, status) = worker.running.as_ref()?;
        let state = generations.state(worker.worker.id).ok()?;
        let counts = worker.lives && is_of(state, host) && task.contains("count_units");
        counts.then_some((worker.heartbeat, *status))
    })
}

/// Returns whether no member of `host` is left to be recovered.
fn has_recovered(pod: &Pod, host: InstanceId) -> bool {
    let generations = pod.tables().generations();
    let mut states = (0..generations.capacity()).filter_map(|id| generations.state(id).ok());
    !states.any(|state| is_of(state, host) && state.status == Status::Dead)
}

/// Returns whether `state` is that of a process or a thread of `host`.
fn is_of(state: State, host: InstanceId) -> bool {
    state.level != Some(Level::Host) && u32::from(state.host) == host
}
