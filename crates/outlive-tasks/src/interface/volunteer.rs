//! Worker processes from outside: a process joins the pod, its threads work in a pool, and it
//! leaves in an orderly way.
//!
//! Any launcher may start it: a person, `mpirun`, `srun`, a service manager; at any time, and any
//! number of times. It needs the path of the pod and the name of the pool, and announces itself to
//! no process: its threads only claim slots in the pool. If it is killed, other workers re-execute
//! its tasks. If it is restarted, it is a worker like any other.

use crate::pool::worker::{Ended, Served};
use crate::{PoolError, WorkerPool};
use outlive::membership::{
    Instance, InstanceId, JoinError, Level, Process, ProcessOptions, Status, StillMembers,
};
use outlive::pod::{Pod, PodError};
use outlive::supervise::Stop;
use std::io;
use std::num::NonZeroU32;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::{Duration, Instant};
use thiserror::Error;

/// A process that works in a pool for as long as the pool requests it.
///
/// ```no_run
/// use outlive::pod::Pod;
/// use outlive::supervise::Stop;
/// use outlive_tasks::Volunteer;
///
/// // A main program like this one can be started by hand, by `mpirun -n 8`, by `srun`, by systemd.
/// let pod = Pod::open("/dev/shm/sums")?;
/// let served = Volunteer::new().threads(2.try_into()?).work(&pod, "sums", &Stop::default())?;
/// println!("{} tasks", served.tasks);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Volunteer {
    host: Option<InstanceId>,
    fence_command: Option<String>,
    name: String,
    threads: NonZeroU32,
    stands_by: bool,
    besides: bool,
}

impl Default for Volunteer {
    fn default() -> Self {
        Self::new()
    }
}

/// The reason why a volunteer could not work, or had to stop.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum VolunteerError {
    /// The pool does not exist, has no free slot, or cannot continue.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The pod refused the process.
    #[error(transparent)]
    Pod(#[from] PodError),
    /// The pod refused one of its threads.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// A thread could not be started.
    #[error("a thread cannot be started: {0}; raise the limits on threads (`ulimit -u`)")]
    Thread(io::Error),
    /// The process could not leave.
    #[error(transparent)]
    Leave(#[from] StillMembers),
}

impl Volunteer {
    /// Returns a worker process with one thread, on a host of its own, that starts to work
    /// immediately.
    pub fn new() -> Self {
        Self {
            host: None,
            fence_command: None,
            name: "worker".into(),
            threads: NonZeroU32::MIN,
            stands_by: false,
            besides: false,
        }
    }

    /// Sets the host of the worker's process (hosts fail as a whole). Default: a host of its own.
    pub fn host(self, host: InstanceId) -> Self {
        let host = Some(host);
        Self { host, ..self }
    }

    /// Sets the pod's [fence command](ProcessOptions::fence_command), if the pod was created with
    /// one. Default: that of the environment.
    pub fn fence_command(self, command: impl Into<String>) -> Self {
        let fence_command = Some(command.into());
        Self {
            fence_command,
            ..self
        }
    }

    /// Sets the display name of the worker.
    pub fn name(self, name: impl Into<String>) -> Self {
        let name = name.into();
        Self { name, ..self }
    }

    /// Sets the number of the worker's threads.
    pub fn threads(self, threads: NonZeroU32) -> Self {
        Self { threads, ..self }
    }

    /// Sets whether its threads are [hot spares](WorkerPool::stand_by). They work when the pool has
    /// fewer workers than it requests, and wait again, instead of ending, when it has more.
    pub fn stands_by(self, stands_by: bool) -> Self {
        Self { stands_by, ..self }
    }

    /// Sets whether its threads are [guests](WorkerPool::work_besides): additional workers, until
    /// the pool requests none. Ignored if they [stand by](Self::stands_by).
    pub fn works_besides(self, besides: bool) -> Self {
        Self { besides, ..self }
    }

    /// Joins the pod with a process, on the host that was set or on one of its own: other processes
    /// then continue when it freezes and is fenced. Also for processes that do not join [to
    /// work](Self::work).
    ///
    /// # Errors
    /// If the pod refuses the process.
    pub fn join(&self, pod: &Pod) -> Result<Process, VolunteerError> {
        let as_of = |host| {
            let mut options = ProcessOptions::on_host(host).host_name(&self.name);
            if let Some(command) = &self.fence_command {
                options = options.fence_command(command);
            }
            pod.join(options.name(&self.name))
        };
        if let Some(host) = self.host {
            return Ok(as_of(host)?);
        }
        // Processes that join at the same time try the same ids: each begins at another one.
        let until = Instant::now() + PATIENCE;
        let mut skip = std::process::id() as usize % 4;
        loop {
            match as_of(free_host(pod, skip)) {
                Ok(process) if is_first(pod, &process) => return Ok(process),
                Ok(process) => process.leave()?,
                Err(PodError::Join(
                    JoinError::InUse { .. }
                    | JoinError::Gone { .. }
                    | JoinError::NotRecovered { .. },
                )) if Instant::now() < until => {}
                Err(error) => return Err(error.into()),
            }
            skip = (skip + 1) % 8;
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Joins `pod`, works in its pool `pool` until `stop` is set or the pool requests none of its
    /// threads any more, and leaves. Returns the sum of its threads' work.
    ///
    /// # Errors
    /// If the process cannot join, or one of its threads cannot work. Then the other threads end,
    /// and the process leaves.
    ///
    /// # Crash
    /// Survivors are notified, and re-execute the unfinished tasks of its threads.
    pub fn work(&self, pod: &Pod, pool: &str, stop: &Stop) -> Result<Served, VolunteerError> {
        self.work_as(pod, pool, stop, |_| ())
    }

    /// Does the same as [`work`](Self::work); `joined` is called with the process's instance before
    /// it works.
    ///
    /// # Errors
    /// Returns the errors of [`work`](Self::work).
    pub fn work_as(
        &self,
        pod: &Pod,
        pool: &str,
        stop: &Stop,
        joined: impl FnOnce(Instance),
    ) -> Result<Served, VolunteerError> {
        // First: without the pool there is no reason to join.
        let pool = WorkerPool::open(pod, pool)?;
        let process = self.join(pod)?;
        joined(process.instance());
        let all = Mutex::new(Served::default());
        let work = |number: u32| -> Result<(), VolunteerError> {
            let member = process.enter(None, &format!("{} {number}", self.name))?;
            let heap = member.heap(pod)?;
            let served = match self.stands_by {
                true => pool.stand_by(&heap, stop)?,
                false => {
                    let (served, ended) = match self.besides {
                        true => pool.work_besides(&heap, stop)?,
                        false => pool.work(&heap, stop)?,
                    };
                    debug_assert!(ended == Ended::Surplus || stop.is_stopped());
                    served
                }
            };
            all.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .add(served);
            Ok(())
        };
        let worked = std::thread::scope(|scope| {
            let started: Vec<_> = (0..self.threads.get())
                .map(|number| {
                    let worker = std::thread::Builder::new().name(format!("worker {number}"));
                    let worker = worker.spawn_scoped(scope, move || {
                        let together = StopsOthers(stop);
                        let worked = work(number);
                        // A worker that cannot do a task leaves it to others, which may be threads
                        // of this process.
                        let leaves = |error: &VolunteerError| {
                            matches!(error, VolunteerError::Pool(PoolError::Unable { .. }))
                        };
                        if worked.as_ref().err().is_none_or(leaves) {
                            core::mem::forget(together);
                        }
                        worked
                    });
                    worker.map_err(|error| {
                        stop.stop();
                        VolunteerError::Thread(error)
                    })
                })
                .collect();
            let ended = started.into_iter().map(|worker| {
                let join = |worker: std::thread::ScopedJoinHandle<'_, _>| worker.join();
                worker.and_then(|worker| {
                    join(worker).unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                })
            });
            // Waits for all of them; the first error is returned.
            let ended: Vec<Result<(), VolunteerError>> = ended.collect();
            ended.into_iter().collect::<Result<(), _>>()
        });
        process.leave()?;
        worked?;
        Ok(all.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Stops the other threads when it is dropped: after an error, or by a panic.
struct StopsOthers<'s>(&'s Stop);

impl Drop for StopsOthers<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// The time for which a process tries to get a host of its own, while others do the same.
const PATIENCE: Duration = Duration::from_secs(20);

/// Returns whether `me` keeps its host among the processes that are there.
fn is_first(pod: &Pod, me: &Process) -> bool {
    let host = me.host().id;
    pod.tables().writers().all(|(id, state)| {
        let beside = state.level == Some(Level::Process) && u32::from(state.host) == host;
        // Processes that joined at the same time see each other: the highest id stays.
        !beside || id <= me.instance().id
    })
}

/// Returns the highest id of a host that never joined, after skipping `skip`, or else of one that
/// is no longer there; or the last id, and joining reports why it is not available.
fn free_host(pod: &Pod, skip: usize) -> InstanceId {
    let generations = pod.tables().generations();
    // A host's id is 16 bits in the words of its processes.
    let ids = generations.capacity().min(1 << 16);
    let with = |status| {
        (0..ids).rev().filter(move |id| {
            let state = generations.state(*id);
            state.is_ok_and(|state| state.status == status)
        })
    };
    let fresh = with(Status::Free)
        .nth(skip)
        .or_else(|| with(Status::Free).next());
    fresh
        .or_else(|| with(Status::Left).next())
        .or_else(|| with(Status::Recovered).next())
        .unwrap_or(ids.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use outlive::membership::{FenceCommandDigest, Settings};
    use outlive::pod::PodOptions;

    #[test]
    fn a_volunteer_brings_the_fence_command() {
        let path = format!("/dev/shm/outlive-volunteer-{}", std::process::id());
        let settings = Settings {
            uid: rustix::process::geteuid().as_raw(),
            fence_command: Some(FenceCommandDigest::of("/bin/off")),
            ..Settings::default()
        };
        let options = PodOptions::new().size(4 << 20).ids(16).settings(settings);
        let pod = Pod::create(&path, options).unwrap();
        let refused = Volunteer::new().join(&pod);
        let joined = Volunteer::new().fence_command("/bin/off").join(&pod);
        let left = joined.map(|process| process.leave());
        Pod::destroy(&path).unwrap();
        assert!(matches!(
            refused,
            Err(VolunteerError::Pod(PodError::Join(
                JoinError::FenceCommand { .. }
            )))
        ));
        left.unwrap().unwrap();
    }
}
