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
use std::time::{Duration, Instant};

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
    let called_off = || run.called_off().is_some();
    let process = patiently(called_off, || Ok(pod.join(options.clone())?))?;
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

/// For how long one tries again to join where a predecessor's death is still being dealt with.
const PATIENCE: Duration = Duration::from_secs(20);

/// Tries to join until nothing of a predecessor is in the way, which takes others a moment; not for ever, and not
/// once the run is called off.
fn patiently<T>(
    called_off: impl Fn() -> bool,
    attempt: impl Fn() -> Result<T, HostError>,
) -> Result<T, HostError> {
    let until = Instant::now() + PATIENCE;
    loop {
        let refused = match attempt() {
            Ok(joined) => return Ok(joined),
            Err(refused) => refused,
        };
        let passes = matches!(
            &refused,
            HostError::Join(why) | HostError::Pod(PodError::Join(why))
                if matches!(
                    why,
                    JoinError::InUse { .. } | JoinError::NotRecovered { .. } | JoinError::Gone { .. }
                )
        );
        if !passes || Instant::now() >= until || called_off() {
            return Err(refused);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
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
    let called_off = || run.called_off().is_some();
    let (id, name) = (run.id_of(number), format!("worker {number}"));
    let member = patiently(called_off, || Ok(process.enter(Some(id), &name)?))?;
    let local = member.heap(pod)?;
    let blocks = Blocks {
        buddy: *heap.buddy(),
        member: &member,
        recoverers: member.recoverers().ok_or(HostError::NoRun)?,
    };
    let halt = |unit| {
        if run.halts(unit, host) {
            // Somebody kills us now.
            process.ring();
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

#[cfg(test)]
mod tests {
    use super::*;
    use outlive::pod::PodOptions;

    #[test]
    fn who_finds_a_predecessor_in_the_way_tries_again_for_a_while() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("pod");
        let pod = Pod::create(&path, PodOptions::new().size(8 << 20)).unwrap();
        let own = ProcessOptions::on_host(0).id(1);
        let process = pod.join(own).unwrap();
        let predecessor = process.enter(Some(2), "predecessor").unwrap();
        let goes = || false;
        let enter = || Ok(process.enter(Some(2), "next")?);
        let refused = enter().err();
        assert!(
            matches!(refused, Some(HostError::Join(JoinError::InUse { .. }))),
            "{refused:?}"
        );
        std::thread::scope(|scope| {
            let next = scope.spawn(|| patiently(goes, enter).map(drop));
            std::thread::sleep(Duration::from_millis(50));
            drop(predecessor);
            next.join().unwrap().unwrap();
        });
        // Nobody waits once the run is called off, and nothing else is tried again.
        let there = process.enter(Some(2), "another").unwrap();
        let began = Instant::now();
        let refused = patiently(|| true, enter).map(drop);
        assert!(matches!(refused, Err(HostError::Join(_))), "{refused:?}");
        let refused = patiently(goes, || Ok(process.enter(Some(99_999), "none")?)).map(drop);
        assert!(matches!(refused, Err(HostError::Join(_))), "{refused:?}");
        assert!(began.elapsed() < PATIENCE / 2);
        drop(there);
        process.leave().unwrap();
        drop(pod);
        assert_eq!(Pod::destroy(&path).unwrap(), None);
    }
}
