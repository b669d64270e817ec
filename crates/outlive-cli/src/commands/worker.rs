//! `outlive worker`: a process that works in a task pool, independent of the pool's creator.

use super::guest::{Found, refused};
use super::pools::{self, NoPool};
use crate::failure::Failure;
use crate::{interruption, output};
use clap::Args;
use outlive::pod::Pod;
use outlive::supervise::Stop;
use outlive_run::header::Header;
use outlive_tasks::{Volunteer, WorkerPool};
use std::num::NonZeroU32;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Arguments of `outlive worker`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    outlive run pagerank rmat:22 --pod /dev/shm/ranks --tolerance 0   # in one terminal\n  \
    outlive worker --pod /dev/shm/ranks                               # in another, as often as you like; kill -9 it\n  \
    mpirun -n 4 outlive worker --pod /dev/shm/ranks --threads 2\n  \
    srun -n 64 outlive worker --pod /dev/dax0.0 --wait 60\n  \
    systemd-run --user -p Restart=on-failure outlive worker --pod /dev/shm/ranks\n\n\
    Workers need not be counted, named or known to each other, and can be started at any time. A \
    worker joins the pod, takes tasks from the present workers, and ends when the pool wants no \
    more workers. On SIGINT, SIGTERM or SIGHUP it finishes its tasks and leaves in good order. If \
    it is killed, other workers re-execute its unfinished tasks. The pool is that of a run of this \
    program (pagerank, for example), or of any program that registers the same tasks. The report \
    of a run counts only the units of its own workers. In a run with --spares, workers started by \
    hand are additional to its hosts and replace none of them: for each host that dies, a spare is \
    called. In a run with --elastic, they stand by like its own workers.\n\n\
    Each process is a host of its own, unless --host gives the host to which it belongs. \
    docs/launchers.md has an example of each launcher; `outlive pod status` shows the workers.")]
pub struct Worker {
    /// The pod: a file (for example in /dev/shm), a DAX device, or a PCI device's resource file
    #[arg(long, value_name = "PATH")]
    pod: PathBuf,
    /// Name of the pool, if the pod has several
    #[arg(long, value_name = "NAME")]
    pool: Option<String>,
    /// Number of worker threads
    #[arg(long, value_name = "T", default_value = "1")]
    threads: NonZeroU32,
    /// Id of the host to which this process belongs [default: an unused one]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=65_535))]
    host: Option<u32>,
    /// The pod's fence command, if it was created with one [default: OUTLIVE_FENCE_COMMAND of the
    /// environment]
    #[arg(long, value_name = "COMMAND")]
    fence_command: Option<String>,
    /// Name of this process in reports
    #[arg(long, default_value = "worker")]
    name: String,
    /// Stand by as a hot spare: work when the pool has fewer workers than it wants, until
    /// interrupted or the pod is removed
    #[arg(long)]
    spare: bool,
    /// Time in seconds to wait for the pod and its pool to exist
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    wait: u64,
}

/// The interval at which an interruption, or the end of the pool, is checked for.
const PATIENCE: Duration = Duration::from_millis(20);

impl Worker {
    pub fn run(self) -> Result<(), Failure> {
        let interrupted = interruption::flag(&interruption::SIGNALS)?;
        let is_interrupted = || interrupted.load(Ordering::Relaxed);
        let (pod, pool, found) = self.find(is_interrupted)?;
        let volunteer = Volunteer::new()
            .name(&self.name)
            .threads(self.threads)
            .stands_by(self.spare || is_elastic(&pod, &pool))
            .works_besides(has_spares(&pod));
        let volunteer = match self.host {
            Some(host) => volunteer.host(host),
            None => volunteer,
        };
        let volunteer = match &self.fence_command {
            Some(command) => volunteer.fence_command(command),
            None => volunteer,
        };
        let (stop, ended) = (Stop::default(), AtomicBool::new(false));
        let served = std::thread::scope(|scope| {
            let watcher = std::thread::Builder::new().spawn_scoped(scope, || {
                while !ended.load(Ordering::Relaxed) {
                    // A removed pod cannot be opened, and the results of a run with a dead driver
                    // are lost.
                    let is_over = found.is_gone() || driver_is_gone(&pod);
                    if is_over || is_interrupted() {
                        return stop.stop();
                    }
                    std::thread::sleep(PATIENCE);
                }
            });
            let tell = |process| {
                // The work continues if the output is closed.
                let _ = output::line(format_args!(
                    "process {process}, pid {}, works in the pool {pool} of {} with {} thread{}",
                    std::process::id(),
                    self.pod.display(),
                    self.threads,
                    if self.threads.get() == 1 { "" } else { "s" },
                ));
            };
            let _ended = SaysSo(&ended);
            watcher.map_err(Failure::no_thread)?;
            volunteer.work_as(&pod, &pool, &stop, tell).map_err(refused)
        });
        found.leave(&pod);
        let served = served?;
        let _ = output::line(format_args!(
            "left in good order; {} tasks done, {} of them begun by dead workers",
            served.tasks, served.taken_over
        ));
        Ok(())
    }

    /// Returns the pod and the name of its pool, once they exist.
    fn find(&self, is_interrupted: impl Fn() -> bool) -> Result<(Pod, String, Found), Failure> {
        let until = std::time::Instant::now() + Duration::from_secs(self.wait);
        loop {
            let found = Found::at(&self.pod);
            let missing = match self.look() {
                Ok((pod, pool)) => return Ok((pod, pool, found)),
                Err(missing) => missing,
            };
            if std::time::Instant::now() >= until || is_interrupted() {
                return Err(missing);
            }
            std::thread::sleep(PATIENCE);
        }
    }

    fn look(&self) -> Result<(Pod, String), Failure> {
        let pod = Pod::open(&self.pod)?;
        refuse_another_users(&pod)?;
        let pool = pools::choose(&pod, &self.pod, self.pool.as_deref());
        let pool = pool.map_err(|error| match error {
            NoPool::None(_) => Failure::new(format_args!("{error}; --wait SECONDS waits for one")),
            _ => Failure::new(error),
        })?;
        Ok((pod, pool))
    }
}

/// Sets a flag on drop, also in a panic.
struct SaysSo<'e>(&'e AtomicBool);

impl Drop for SaysSo<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Returns whether the pool resizes itself. Other workers have to stand by there, like its own.
fn is_elastic(pod: &Pod, pool: &str) -> bool {
    WorkerPool::inspect(pod, pool).is_ok_and(|pool| pool.is_elastic)
}

/// Returns whether the pod is that of a run with spares. Its pool wants as many workers as its
/// hosts have: a worker started by hand has to be additional, or one of them would be superfluous.
pub(super) fn has_spares(pod: &Pod) -> bool {
    let run = Header::find(pod).ok().flatten();
    run.is_some_and(|run| run.crew().spares > 0)
}

/// Returns whether the pod is that of a run with a driver that may not write any more.
fn driver_is_gone(pod: &Pod) -> bool {
    let run = Header::find(pod).ok().flatten();
    run.is_some_and(|run| {
        let driver = pod.tables().generations().state(run.crew().driver());
        driver.is_ok_and(|driver| !driver.status.may_write())
    })
}

/// Refuses the pod of another user. Its owner could make this process read any file of this user:
/// the names of a run's inputs are in the pod. Root could read them anyway.
fn refuse_another_users(pod: &Pod) -> Result<(), Failure> {
    let me = rustix::process::geteuid().as_raw();
    let file = pod.segment().file().metadata();
    match file {
        Ok(file) if file.is_file() && ![0, me].contains(&file.uid()) => {
            Err(Failure::new(format_args!(
                "{} belongs to user {}, who could make this worker read any file that you may \
                 read; run the worker as that user",
                pod.segment().path().display(),
                file.uid()
            )))
        }
        _ => Ok(()),
    }
}
