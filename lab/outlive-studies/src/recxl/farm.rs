//! Runs of the simulated machine, as many at once as there are cores. They share nothing, so it
//! does not matter which of them run at the same time.

use crate::{Run, StudyError, machine};
use outlive_machine::description::Description;
use outlive_machine::engine::Time;
use outlive_machine::program::Scale;
use outlive_machine::run::{self, Crash, Outcome, Placement, RunError, Subject};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// The interval at which progress is reported.
const PAUSE: Duration = Duration::from_millis(200);

/// A run to be done. It has as many threads as its machine has cores.
#[derive(Clone, Debug)]
pub struct Job {
    pub workload: &'static str,
    pub scale: Scale,
    /// The property that distinguishes its machine, for people.
    pub variant: String,
    pub description: Description,
    pub seed: u64,
    pub looks: Vec<Time>,
    pub until: Option<Time>,
    pub crashes: Vec<Crash>,
    pub placement: Placement,
}

/// The state that the farm's threads share with the thread that waits for them.
#[derive(Default)]
struct Shared {
    next: AtomicUsize,
    stop: AtomicBool,
    /// The number of instructions of all runs.
    instructions: AtomicU64,
}

impl Job {
    fn void(&self, why: &dyn std::fmt::Display) -> StudyError {
        let Self {
            workload,
            variant,
            seed,
            ..
        } = self;
        StudyError::void(format!("{workload}, {variant}, seed {seed}: {why}"))
    }

    fn run(&self, shared: &Shared) -> Result<Outcome, StudyError> {
        let system = &self.description.system;
        let threads = system.compute_nodes as usize * system.cores_per_node as usize;
        let workload = outlive_kernels::by_name(self.workload, threads, self.scale)
            .ok_or_else(|| self.void(&"there is no such workload"))?;
        let run = run::Run {
            looks: self.looks.clone(),
            until: self.until,
            crashes: self.crashes.clone(),
            placement: self.placement,
            ..run::Run::new(&self.description, self.seed)
        };
        let mut told = 0;
        let outcome = run.of(&Subject::program(workload), &mut |progress| {
            let more = progress.instructions - told;
            told = progress.instructions;
            // Relaxed: a number for people.
            shared.instructions.fetch_add(more, Ordering::Relaxed);
            // Relaxed: the flag publishes no other data.
            match shared.stop.load(Ordering::Relaxed) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        outcome.map_err(|error| match error {
            RunError::Stopped => StudyError::Stopped,
            error => self.void(&error),
        })
    }
}

/// Runs all `jobs`. Calls `done` with the index and the outcome of each as it ends.
///
/// # Errors
///
/// The first failing run's, or [`StudyError::Stopped`]. The other runs are stopped then.
pub fn all(
    run: &mut Run<'_>,
    jobs: &[Job],
    mut done: impl FnMut(&mut Run<'_>, usize, Outcome),
) -> Result<(), StudyError> {
    run.go_on()?;
    let (shared, begun) = (Shared::default(), Instant::now());
    let (sender, receiver) = channel();
    let mut failed = None;
    let mut ended = 0;
    std::thread::scope(|scope| {
        for _ in 0..machine::cores().min(jobs.len()) {
            let (sender, shared) = (sender.clone(), &shared);
            scope.spawn(move || {
                loop {
                    // Relaxed: each value is returned to one thread only.
                    let place = shared.next.fetch_add(1, Ordering::Relaxed);
                    let Some(job) = jobs.get(place) else { break };
                    let outcome = job.run(shared);
                    let over = outcome.is_err();
                    if sender.send((place, outcome)).is_err() || over {
                        break;
                    }
                }
            });
        }
        drop(sender);
        loop {
            say(run, jobs.len(), ended, &shared, begun);
            match receiver.recv_timeout(PAUSE) {
                Ok((place, Ok(outcome))) => {
                    ended += 1;
                    done(run, place, outcome);
                }
                // The first error is the cause of the others.
                Ok((_, Err(error))) => {
                    failed.get_or_insert(error);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if failed.is_some() || run.go_on().is_err() {
                shared.stop.store(true, Ordering::Relaxed);
                // No thread begins another run.
                shared.next.store(jobs.len(), Ordering::Relaxed);
            }
        }
    });
    match failed {
        Some(error) => Err(error),
        None if ended < jobs.len() => Err(StudyError::Stopped),
        None => Ok(()),
    }
}

/// Reports the progress.
fn say(run: &Run<'_>, jobs: usize, ended: usize, shared: &Shared, begun: Instant) {
    let instructions = shared.instructions.load(Ordering::Relaxed) as f64;
    let speed = instructions / begun.elapsed().as_secs_f64().max(1e-3) / 1e6;
    run.begin(&format!(
        "{ended} of {jobs} runs, {:.0} million instructions simulated, {speed:.1} million a second",
        instructions / 1e6
    ));
}
