//! A host of a run: the processes that the driver starts, and their work.
//!
//! A host is a tree of processes. Its first one is started by the driver. It starts the others,
//! which have the ids after its own, as children of its own, and supervises them
//! ([`ProcessSupervisor`]): a child that dies alone is started again. All of them work.
//!
//! The tree lives and dies as a whole. Children die with the first process
//! ([`die_with`](crate::driver::die_with)), and are in its process group, by which the driver kills
//! all of them at the same time. The first process of the next incarnation joins when no process of
//! the former tree lives, so that the death of the host is reported before its next life begins.

use crate::header::{CalledOff, Header};
use crate::input::InputError;
use outlive::heap::LocalHeap;
use outlive::heap::buddy::AllocateError;
use outlive::membership::{InstanceId, JoinError, Level, Process, ProcessOptions};
use outlive::pod::{Pod, PodError};
use outlive::segment::RootError;
use outlive::structures;
use outlive::supervise::{Child, Outlook, Place, ProcessSupervisor, RestartPolicy, home};
use outlive_tasks::PoolError;
use std::cell::RefCell;
use std::error::Error;
use std::process::Command;
use std::time::{Duration, Instant};

/// The interval at which a worker polls a gate.
const GATE_POLL: Duration = Duration::from_micros(200);

/// The reason why a host of a run ended.
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
    /// A block cannot be allocated.
    #[error(transparent)]
    Allocate(#[from] AllocateError),
    /// The map of totals cannot be made.
    #[error(transparent)]
    Totals(#[from] structures::CreateError),
    /// The pool of workers cannot be made, opened or used.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// An input that the driver puts into the pod cannot be read.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The pod does not contain a run.
    #[error("this pod does not contain a run")]
    NoRun,
    /// The run is of a program that this version does not have.
    #[error(
        "the run has the program number {0}, which this version does not have; use the version \
         that started the run"
    )]
    NoProgram(u64),
    /// A worker could not continue.
    #[error("worker {number}: {source}")]
    Work {
        /// The number of the worker.
        number: u32,
        /// The cause.
        source: Box<dyn Error + Send + Sync>,
    },
    /// A thread cannot be started.
    #[error("a thread cannot be started: {0}; raise the limits on threads (`ulimit -u`)")]
    Thread(std::io::Error),
    /// No process of the run has the id of this process.
    #[error("the run has no process with the id {0}")]
    NoProcess(InstanceId),
    /// Processes of the previous incarnation of a host do not end.
    #[error(
        "processes of the previous incarnation of host {0} do not end; end them, then start it again"
    )]
    FormerLife(InstanceId),
    /// A process of this host failed repeatedly.
    #[error("process {0} of this host failed repeatedly and is not restarted again")]
    GivenUp(InstanceId),
}

/// The work of a host's workers: a program.
pub trait Work: Sync {
    /// Works at `post` until everything is done or the run is cancelled.
    ///
    /// # Errors
    /// If this worker cannot continue; it has called the run off then. It is not an error if
    /// another worker has called it off.
    fn work(&self, post: &Post<'_>) -> Result<(), Box<dyn Error + Send + Sync>>;
}

/// A worker's place in a run.
#[derive(Clone, Copy, Debug)]
pub struct Post<'p> {
    /// The pod of the run.
    pub pod: &'p Pod,
    /// The worker's process.
    pub process: &'p Process,
    /// The header of the run.
    pub header: Header,
    /// The worker's heap handle.
    pub heap: &'p LocalHeap<'p>,
    /// The worker's number.
    pub number: u32,
    /// The worker's host.
    pub host: u32,
}

impl Post<'_> {
    /// Runs `work` on this thread, with this post as the one to which [`may_die_before`] refers.
    /// Tasks that the worker runs find the post by the thread.
    pub fn stand<T>(&self, work: impl FnOnce() -> T) -> T {
        /// Clears the post, even if `work` panics.
        struct Leaving;
        impl Drop for Leaving {
            fn drop(&mut self) {
                HERE.set(None);
            }
        }
        HERE.set(Some((self.header, self.host, self.process.clone())));
        let _leaving = Leaving;
        work()
    }
}

thread_local! {
    /// The post of this thread.
    static HERE: RefCell<Option<(Header, u32, Process)>> = const { RefCell::new(None) };
}

/// Returns the header of the run in which this thread [stands](Post::stand).
pub fn header_here() -> Option<Header> {
    HERE.with_borrow(|here| here.as_ref().map(|(header, ..)| *header))
}

/// Waits for a due kill. A worker calls this right before it commits `unit`. If the host of the
/// post at which this thread [stands](Post::stand) must be killed before this commit, the call
/// returns only if the run is cancelled before the kill.
pub fn may_die_before(unit: u64) {
    HERE.with_borrow(|here| {
        if let Some((header, host, process)) = here {
            die_before(unit, *header, *host, process);
        }
    });
}

/// Waits while a gate with a unit below `units` is shut, unless the run is cancelled.
pub fn wait_at_gates(units: u64) {
    HERE.with_borrow(|here| {
        let Some((header, _, process)) = here else {
            return;
        };
        let is_shut = || header.is_gated(units) && header.called_off().is_none();
        if is_shut() {
            process.ring();
            while is_shut() {
                std::thread::sleep(GATE_POLL);
            }
        }
    });
}

fn die_before(unit: u64, header: Header, host: u32, process: &Process) {
    if header.halts(unit, host) {
        // The driver kills this host now.
        process.ring();
        while header.called_off().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Works as the process at `place`, with as many threads as the run says, until everything is done
/// or the run is cancelled. `program` returns the program with a number, as
/// `outlive_programs::by_number` does. The first process of a host starts the others: `command`
/// returns the command for such a process, which calls this function with the [`Place`] in its
/// environment. It has to die with this process, as by [`die_with`](crate::driver::die_with). The
/// calling thread should therefore be the main one: to the kernel, the parent of a child is the
/// thread that started it.
///
/// # Errors
/// If it could not work, or had to give up one of its children. It is not an error of this host if
/// another one called the run off.
pub fn work(
    place: &Place,
    program: impl FnOnce(u64) -> Option<Box<dyn Work>>,
    command: impl FnMut() -> Command + Clone + Send + 'static,
) -> Result<(), HostError> {
    let pod = Pod::open(&place.pod)?;
    let header = Header::find(&pod)?.ok_or(HostError::NoRun)?;
    let number = header.program();
    let program = program(number).ok_or(HostError::NoProgram(number))?;
    let options = ProcessOptions::on_host(place.host)
        .id(place.id)
        .name("workers");
    let called_off = || header.called_off().is_some();
    let crew = header.crew();
    let index = crew
        .process_at(place.id)
        .ok_or(HostError::NoProcess(place.id))?;
    let is_first = index % crew.processes == 0;
    let process = patiently(called_off, || {
        if is_first && lives(&pod, place.host) {
            return Err(HostError::FormerLife(place.host));
        }
        Ok(pod.join(options.clone())?)
    })?;
    let threads = crew.threads;
    let first = index * threads;
    let work = |thread: u32| {
        let number = first + thread;
        work_as(&pod, &process, header, number, place.host, &*program)
    };
    let outcome = std::thread::scope(|scope| {
        let workers: Result<Vec<_>, _> = (0..threads)
            .map(|thread| {
                std::thread::Builder::new()
                    .name(format!("worker {thread}"))
                    .spawn_scoped(scope, move || work(thread))
            })
            .collect();
        let workers = workers.map_err(|error| {
            header.call_off(CalledOff::Failed(first));
            HostError::Thread(error)
        });
        let mut outcome = if is_first {
            tend(place, &process, crew.processes, &command)
        } else {
            Ok(())
        };
        for worker in workers? {
            let ended = worker
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            outcome = ended.and(outcome);
        }
        outcome
    });
    process.leave().map_err(PodError::from)?;
    outcome
}

/// Starts the other processes of the host at `place`, and restarts those that fail, until all have
/// ended or are given up.
fn tend(
    place: &Place,
    process: &Process,
    processes: u32,
    command: &(impl FnMut() -> Command + Clone + Send + 'static),
) -> Result<(), HostError> {
    let mut supervisor = ProcessSupervisor::new(process.clone(), &place.pod)
        .policy(RestartPolicy::default())
        .placement(home);
    for id in (place.id + 1)..(place.id + processes) {
        supervisor = supervisor.child(Child::new(id, place.host, command.clone()));
    }
    let given_up = supervisor
        .run()
        .into_iter()
        .find(|(_, outlook)| *outlook == Outlook::GaveUp);
    given_up.map_or(Ok(()), |(id, _)| Err(HostError::GivenUp(id)))
}

/// Returns whether a process of `host` may still write.
fn lives(pod: &Pod, host: InstanceId) -> bool {
    pod.tables()
        .writers()
        .any(|(_, state)| state.level == Some(Level::Process) && u32::from(state.host) == host)
}

/// The time for which a process or thread tries to join while its predecessor's id is not free yet.
const PATIENCE: Duration = Duration::from_secs(20);

/// Retries `attempt` while a predecessor is still in the way, which other members change soon.
/// Gives up after `PATIENCE`, or when the run is cancelled.
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
        let passes = match &refused {
            HostError::FormerLife(_) => true,
            HostError::Join(why) | HostError::Pod(PodError::Join(why)) => matches!(
                why,
                JoinError::InUse { .. } | JoinError::NotRecovered { .. } | JoinError::Gone { .. }
            ),
            _ => false,
        };
        if !passes || Instant::now() >= until || called_off() {
            return Err(refused);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn work_as(
    pod: &Pod,
    process: &Process,
    header: Header,
    number: u32,
    host: u32,
    program: &dyn Work,
) -> Result<(), HostError> {
    let called_off = || header.called_off().is_some();
    let (id, name) = (header.crew().id_of(number), format!("worker {number}"));
    let member = patiently(called_off, || Ok(process.enter(Some(id), &name)?))?;
    let local = member.heap(pod)?;
    let post = Post {
        pod,
        process,
        header,
        heap: &local,
        number,
        host,
    };
    program
        .work(&post)
        .map_err(|source| HostError::Work { number, source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use outlive::pod::PodOptions;

    #[test]
    fn a_host_begins_anew_when_nobody_of_its_former_life_is_left() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("pod");
        let pod = Pod::create(&path, PodOptions::new().size(8 << 20)).unwrap();
        let other = pod.join(ProcessOptions::on_host(1).id(3)).unwrap();
        assert!(!lives(&pod, 0) && lives(&pod, 1));
        let child = pod.join(ProcessOptions::on_host(0).id(5)).unwrap();
        assert!(lives(&pod, 0));
        let attempt = || match lives(&pod, 0) {
            true => Err(HostError::FormerLife(0)),
            false => Ok(()),
        };
        assert!(patiently(|| true, attempt).is_err());
        std::thread::scope(|scope| {
            let next = scope.spawn(|| patiently(|| false, attempt));
            std::thread::sleep(Duration::from_millis(20));
            assert!(!next.is_finished());
            child.leave().unwrap();
            next.join().unwrap().unwrap();
        });
        other.leave().unwrap();
        assert_eq!(Pod::destroy(&path).unwrap(), None);
    }

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
        // After the run is cancelled there is no retry, nor for any other error.
        let there = process.enter(Some(2), "another").unwrap();
        let began = Instant::now();
        let refused = patiently(|| true, enter).map(drop);
        assert!(matches!(refused, Err(HostError::Join(_))), "{refused:?}");
        let refused = patiently(goes, || Ok(process.enter(Some(99_999), "none")?)).map(drop);
        assert!(matches!(refused, Err(HostError::Join(_))), "{refused:?}");
        assert!(began.elapsed() < PATIENCE / 2);
        drop(there);
        process.leave().unwrap();
        assert_eq!(Pod::destroy(&path).unwrap(), None);
    }
}
