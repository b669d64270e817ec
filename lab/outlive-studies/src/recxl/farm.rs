//! Many runs of the simulated machine, as many at once as there are cores. They share nothing, so it does not matter which of
//! them are together.

use crate::{Run, StudyError, machine};
use outlive_machine::description::Description;
use outlive_machine::engine::Time;
use outlive_machine::program::{Scale, workloads};
use outlive_machine::run::{self, Crash, Outcome, Placement, RunError, Subject};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How often it is said how far they are.
const PAUSE: Duration = Duration::from_millis(200);

/// A run that is wanted. It has as many threads as its machine has cores.
#[derive(Clone, Debug)]
pub struct Job {
    pub workload: &'static str,
    pub scale: Scale,
    /// What is special about it, for people.
    pub variant: String,
    pub description: Description,
    pub seed: u64,
    pub looks: Vec<Time>,
    pub until: Option<Time>,
    pub crashes: Vec<Crash>,
    pub placement: Placement,
}

/// What the lanes and whoever waits for them tell each other.
#[derive(Default)]
struct Shared {
    next: AtomicUsize,
    stop: AtomicBool,
    /// Instructions of all runs.
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
        let workload = workloads::by_name(self.workload, threads, self.scale)
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
            // Relaxed: nothing comes with it.
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

/// Runs all `jobs`, and gives `done` the outcome of each as it comes, with its place among them.
///
/// # Errors
///
/// The first run that fails, or that the study was told to stop. The others are stopped then.
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
                    // Relaxed: a number that each lane gets once.
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
                // The first one is the cause of the others.
                Ok((_, Err(error))) => {
                    failed.get_or_insert(error);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if failed.is_some() || run.go_on().is_err() {
                shared.stop.store(true, Ordering::Relaxed);
                // No lane begins another.
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

/// Says how far they are.
fn say(run: &Run<'_>, jobs: usize, ended: usize, shared: &Shared, begun: Instant) {
    let instructions = shared.instructions.load(Ordering::Relaxed) as f64;
    let speed = instructions / begun.elapsed().as_secs_f64().max(1e-3) / 1e6;
    run.begin(&format!(
        "{ended} of {jobs} runs, {:.0} million instructions simulated, {speed:.1} million a second",
        instructions / 1e6
    ));
}
