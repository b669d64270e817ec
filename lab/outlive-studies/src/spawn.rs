//! `spawn`: the cost of an empty task from its spawn until it is done, through the whole pool, as a
//! program uses it: a job's tasks spawn batches, the pool's workers run them, and the caller waits
//! for the job. The peer is `rayon::scope`, which keeps its closures in private memory and loses
//! them with its process.
//!
//! The goal is on processor time, which a task costs whichever worker runs it; wall time is
//! reported too. (A benchmark measures the engine alone, without the pool: `cargo bench -p
//! outlive-tasks --bench spawn`.)

use crate::paired::{Comparison, Paired};
use crate::row::Goal;
use crate::scratch::ScratchPod;
use crate::{Run, Study, StudyError, clock};
use outlive::heap::LocalHeap;
use outlive::supervise::Stop;
use outlive_tasks::{Options, WorkerPool, task};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

pub const STUDY: Study = Study {
    name: "spawn",
    about: "an empty task, from spawn to completion, beside rayon's",
    body: study,
};

/// The number of tasks that a parent spawns.
const BATCH: u64 = 1000;
const POOL: &str = "spawn";

task! {
    fn empty(_context) {
        Ok(())
    }

    fn batches(context, left: u64) {
        for _ in 0..BATCH {
            context.spawn(empty())?;
        }
        // Runs after those tasks: the first spawned task is the first to run.
        if left > 1 { context.spawn(batches(left - 1)) } else { Ok(()) }
    }
}

/// The times of one task, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Took {
    wall: f64,
    cpu: f64,
}

/// Selects one of the two times.
type Which = fn(&Took) -> f64;

impl Took {
    /// Returns the times of one task of `work`, which runs `tasks` of them.
    fn of(tasks: u64, work: impl FnOnce() -> Result<(), StudyError>) -> Result<Self, StudyError> {
        let (began, cpu) = (Instant::now(), clock::process_cpu_seconds());
        work()?;
        let each = 1e9 / tasks as f64;
        Ok(Self {
            wall: began.elapsed().as_secs_f64() * each,
            cpu: (clock::process_cpu_seconds() - cpu) * each,
        })
    }
}

/// The results of the rounds.
#[derive(Default)]
struct Rounds {
    ours: Vec<Took>,
    before: Vec<Took>,
    after: Vec<Took>,
}

impl Rounds {
    fn paired(&self, of: Which) -> Paired {
        let [ours, before, after] =
            [&self.ours, &self.before, &self.after].map(|all| all.iter().map(of).collect());
        Paired {
            ours,
            before,
            after,
        }
    }
}

fn void(error: impl std::fmt::Display) -> StudyError {
    StudyError::void(error.to_string())
}

fn study(run: &mut Run<'_>) -> Result<(), StudyError> {
    for workers in [1, 2] {
        run.go_on()?;
        let case = match workers {
            1 => "1 worker".to_owned(),
            workers => format!("{workers} workers"),
        };
        let rounds = measure(run, workers, &case)?;
        let metrics: [(&str, Which, Option<Goal>); 2] = [
            (
                "processor time of a task, from spawn to completion",
                |took| took.cpu,
                Some(Goal::ratio_at_most(3.0)),
            ),
            ("wall time of the same", |took| took.wall, None),
        ];
        for (metric, of, goal) in metrics {
            let comparison = Comparison {
                case: &case,
                metric,
                unit: "ns",
                peer: "rayon::scope",
                paper: None,
                goal,
            };
            run.answer(comparison.rows(&rounds.paired(of)));
        }
    }
    Ok(())
}

/// Measures ours between two of rayon's, with `workers` threads on either side.
fn measure(run: &Run<'_>, workers: usize, case: &str) -> Result<Rounds, StudyError> {
    let batches_of = run.effort().of(2, 200, 500);
    let rounds = run.effort().of(2, 13, 31);
    let tasks = BATCH * batches_of;
    let scratch = ScratchPod::with_heap(128 << 20)?;
    let process = scratch.join(0)?;
    let result = {
        let member = process.enter(None, "caller")?;
        let heap = member.heap(scratch.pod())?;
        let pool = WorkerPool::create(scratch.pod(), &heap, POOL, Options::new()).map_err(void)?;
        let (stop, ran) = (Stop::default(), AtomicU64::new(0));
        let work = || -> Result<(), StudyError> {
            let member = process.enter(None, "worker")?;
            let heap = member.heap(scratch.pod())?;
            let (served, _) = pool.work(&heap, &stop).map_err(void)?;
            ran.fetch_add(served.tasks, Ordering::Relaxed);
            Ok(())
        };
        let result = std::thread::scope(|scope| {
            // Also stops the workers after a failure: the scope would else wait for them for ever.
            let _stopping = Stopping(&stop);
            let threads: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
            let measured = take_turns(run, workers, case, (rounds, batches_of), pool, &heap);
            stop.stop();
            for thread in threads {
                let ended = thread.join();
                ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            }
            measured
        });
        let result = result.and_then(|(rounds, jobs)| {
            let (ran, expected) = (ran.into_inner(), jobs * (tasks + batches_of));
            match ran == expected {
                true => Ok(rounds),
                false => Err(StudyError::void(format!(
                    "{ran} tasks were run instead of {expected}"
                ))),
            }
        });
        WorkerPool::destroy(scratch.pod(), &heap, POOL).map_err(void)?;
        result
    };
    process.leave()?;
    result
}

/// Stops the workers when it is dropped, also during a panic.
struct Stopping<'s>(&'s Stop);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Returns the rounds and the number of jobs.
fn take_turns(
    run: &Run<'_>,
    workers: usize,
    case: &str,
    (rounds, batches_of): (usize, u64),
    pool: WorkerPool,
    heap: &LocalHeap<'_>,
) -> Result<(Rounds, u64), StudyError> {
    let tasks = BATCH * batches_of;
    let theirs = rayon::ThreadPoolBuilder::new().num_threads(workers).build();
    let theirs = theirs.map_err(void)?;
    let rayon = || {
        Took::of(tasks, || {
            theirs.install(|| {
                for _ in 0..batches_of {
                    rayon::scope(|scope| {
                        for _ in 0..BATCH {
                            scope.spawn(|_| {
                                black_box(());
                            });
                        }
                    });
                }
            });
            Ok(())
        })
    };
    let mut jobs = 0u64;
    let mut ours = || {
        let name = format!("job {jobs}");
        jobs += 1;
        Took::of(tasks, || {
            let job = pool
                .submit(heap, &name, batches(batches_of))
                .map_err(void)?;
            job.wait(None).map(drop).map_err(void)
        })
    };
    // The first runs warm up.
    rayon()?;
    ours()?;
    let mut all = Rounds::default();
    for round in 0..rounds {
        run.go_on()?;
        run.begin(&format!("{case}, round {} of {rounds}", round + 1));
        all.before.push(rayon()?);
        all.ours.push(ours()?);
        all.after.push(rayon()?);
    }
    Ok((all, jobs))
}
