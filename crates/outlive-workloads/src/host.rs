//! A host of a run: what the process does that the driver starts.

use crate::mapreduce::{MapReduce, WorkError, Worker};
use crate::run::{CalledOff, MapReduceRun, ROOT, Run};
use crate::table::Blocks;
use outlive::heap::Heap;
use outlive::heap::buddy::AllocateError;
use outlive::membership::{JoinError, Process, ProcessOptions};
use outlive::pod::{Pod, PodError};
use outlive::segment::RootError;
use outlive::structures;
use outlive::supervise::Place;
use std::time::Duration;

/// Why a host of a run ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// The pod cannot be opened or joined.
    #[error(transparent)]
    Pod(#[from] PodError),
    /// A thread cannot join.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The root of the run cannot be read.
    #[error(transparent)]
    Root(#[from] RootError),
    /// A block could not be had.
    #[error(transparent)]
    Allocate(#[from] AllocateError),
    /// The map of totals cannot be made.
    #[error(transparent)]
    Totals(#[from] structures::CreateError),
    /// There is no run in the pod.
    #[error("there is no run of MapReduce in this pod")]
    NoRun,
    /// The run is of a program that this library does not have.
    #[error("the run is of program {0}, which this version does not know")]
    NoProgram(u64),
    /// A worker could not go on.
    #[error("worker {number}: {source}")]
    Work {
        /// Which.
        number: u32,
        /// Why.
        source: WorkError,
    },
    /// A thread could not be started.
    #[error("a thread could not be started: {0}")]
    Thread(std::io::Error),
}

/// The run in `pod`, and the heap that it is in.
///
/// # Errors
/// If there is none.
pub fn open(pod: &Pod) -> Result<(Run, Heap), HostError> {
    let memory = pod.segment().memory();
    let root = pod.roots().find::<MapReduceRun>(ROOT)?;
    let at = root.ok_or(HostError::NoRun)?.offset();
    let run = Run::open(memory, at).ok_or(HostError::NoRun)?;
    Ok((run, pod.heap().ok_or(HostError::NoRun)?))
}

/// Works as the host at `place`, with as many threads as the run says, until everything is done or the run is
/// called off.
///
/// # Errors
/// If it could not work. That others called the run off is no error of this host.
pub fn work<P: MapReduce + Sync>(
    place: &Place,
    program: impl FnOnce(u64) -> Option<P>,
) -> Result<(), HostError> {
    let pod = Pod::open(&place.pod)?;
    let (run, heap) = open(&pod)?;
    let program = program(run.program()).ok_or(HostError::NoProgram(run.program()))?;
    let options = ProcessOptions::on_host(place.host)
        .id(place.id)
        .name("workers");
    let process = pod.join(options)?;
    let threads = run.threads();
    let work = |thread: u32| {
        let number = place.host * threads + thread;
        work_as(&pod, &process, run, heap, number, place.host, &program)
    };
    let outcome = std::thread::scope(|scope| {
        let others: Result<Vec<_>, _> = (1..threads)
            .map(|thread| {
                std::thread::Builder::new()
                    .name(format!("worker {thread}"))
                    .spawn_scoped(scope, move || work(thread))
            })
            .collect();
        let others = others.map_err(|error| {
            run.call_off(CalledOff::Failed(place.host * threads));
            HostError::Thread(error)
        });
        let mut outcome = work(0);
        for other in others? {
            let ended = other
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            outcome = outcome.and(ended);
        }
        outcome
    });
    process.leave().map_err(PodError::from)?;
    outcome
}

fn work_as(
    pod: &Pod,
    process: &Process,
    run: Run,
    heap: Heap,
    number: u32,
    host: u32,
    program: &impl MapReduce,
) -> Result<(), HostError> {
    let member = process.enter(Some(run.id_of(number)), &format!("worker {number}"))?;
    let local = member.heap(pod)?;
    let blocks = Blocks {
        buddy: *heap.buddy(),
        member: &member,
        recoverers: member.recoverers().ok_or(HostError::NoRun)?,
    };
    let halt = |unit| {
        if run.halts(unit, host) {
            // Somebody kills us now.
            while run.called_off().is_none() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    };
    match Worker::new(run, &local, blocks, number).work(program, halt) {
        Ok(()) => Ok(()),
        // What the run was called off for is known to whoever began it, unless it is only that a worker failed.
        Err(source) => match source.why(number) {
            CalledOff::Failed(_) => Err(HostError::Work { number, source }),
            _ => Ok(()),
        },
    }
}
