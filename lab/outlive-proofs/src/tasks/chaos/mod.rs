//! Chaos over tasks: worker processes are killed at random while they run graphs with known exact
//! results.
//!
//! A [graph] grows as it runs: its tasks follow from its number, and are not known in advance. In
//! the end it must yield the right sum, found by exactly the expected number of tasks, each of
//! which counts once however often it was begun; a task is begun again at most once for each worker
//! that was killed; and when the names, the jobs and the pool are removed, nothing is left in the
//! pod.
//!
//! A program that runs this registers the tasks by [`chaos_tasks!`](crate::chaos_tasks), and starts
//! itself as the worker processes, which call [`work`]. The graphs and the kills follow from a
//! seed; the places that the kills hit do not, since processes run freely.

pub mod graph;
mod scene;

pub use crate::killing::{PATIENCE, Until};
pub use scene::{Role, Scene, work};

use crate::killing::{self, Schedule, text};
use core::fmt;
use outlive::heap::LocalHeap;
use outlive::membership::ProcessOptions;
use outlive::memory::{Memory, Ordering};
use outlive_tasks::{
    Call, Context, Data, Job, JobState, Options as PoolOptions, TaskError, WorkerPool,
};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// The number of rounds of a graph.
const ROUNDS: u64 = 3;
/// The size of the pod in bytes.
const BYTES: u64 = 128 << 20;
/// The name of the number of runs.
const RUNS: &str = "runs";
/// The time that a leaf of a graph takes: long enough to be hit.
const WHILE: Duration = Duration::from_micros(100);

/// The options of a chaos run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// The end of the kills. Work begun by then is completed.
    pub until: Until,
    /// The seed of the graphs and the kills.
    pub seed: u64,
    /// The number of workers of each process that works from the beginning.
    pub processes: Vec<u32>,
    /// The number of additional processes, with one worker each, to take places of dead ones.
    pub spares: u32,
    /// Whether all workers stand by, and work when they are needed; otherwise they work at once, or
    /// leave, and there can be no spares.
    pub stand_by: bool,
    /// Set, it ends the killing early; the final check follows. For signal handlers.
    pub enough: Arc<AtomicBool>,
}

impl Options {
    /// Returns options for three processes with two workers each.
    pub fn new(until: Until, seed: u64) -> Self {
        Self {
            until,
            seed,
            processes: vec![2; 3],
            spares: 0,
            stand_by: true,
            enough: Arc::default(),
        }
    }
}

/// The progress of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// The time since the start.
    pub elapsed: Duration,
    /// The number of graphs that yielded the right result.
    pub graphs: u64,
    /// The number of their tasks, each of which took effect once.
    pub tasks: u64,
    /// The number of tasks begun in vain: the worker was killed, and another ran the task.
    pub redone: u64,
    /// The number of processes killed.
    pub kills: u64,
    /// The number of their workers.
    pub workers: u64,
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.0} s: {} graphs of {} tasks in all, {} of them redone; {} processes with {} workers killed",
            self.elapsed.as_secs_f64(),
            self.graphs,
            self.tasks,
            self.redone,
            self.kills,
            self.workers
        )
    }
}

/// The result of a run.
pub type Report = killing::Report<Progress>;

/// Counts the start of a task.
///
/// # Errors
/// If the number of runs is missing.
#[doc(hidden)]
pub fn count(context: &Context<'_>) -> Result<(), TaskError> {
    add_run(context.memory(), context.input(RUNS)?, 1);
    Ok(())
}

fn add_run(memory: outlive::memory::Native, runs: Data, one: u64) -> u64 {
    // Relaxed: a number by itself, read when all is done.
    memory.fetch_add(runs.start(), one, Ordering::Relaxed)
}

/// Spins for the time of a short part.
#[doc(hidden)]
pub fn take_a_while() {
    let since = Instant::now();
    while since.elapsed() < WHILE {
        core::hint::spin_loop();
    }
}

/// Runs graphs, one after the other, while workers are killed. `name` is part of the pod's name;
/// `root` is the task `chaos_round`; `command` makes the command of a worker process; `on_progress`
/// gets the progress every second.
///
/// # Errors
/// If the run was impossible. Faults found by the run are in the report.
pub fn run(
    name: &str,
    options: &Options,
    root: fn(u64, u64, u64, [u64; 2]) -> Call,
    command: impl Fn() -> Command + 'static,
    on_progress: impl FnMut(&Progress),
) -> Result<Report, String> {
    outlive_prove::kill::require_effective_kills().map_err(text)?;
    let mut scene = Scene::new(name, BYTES, command)?;
    let pod = scene.pod.clone();
    let process = pod.join(ProcessOptions::on_host(1)).map_err(text)?;
    let member = process.enter(None, "chaos driver").map_err(text)?;
    let heap = member.heap(&pod).map_err(text)?;
    let workers = options.processes.iter().sum();
    // The kills are not caused by the tasks.
    let shape = PoolOptions::new().workers(workers).crash_limit(200);
    let pool = WorkerPool::create(&pod, &heap, Scene::POOL, shape).map_err(text)?;
    pool.put(&heap, RUNS, &[0; 8]).map_err(text)?;
    let schedule = Schedule::new(options.until, options.seed, &options.enough);
    let mut show = Show {
        options,
        scene: &mut scene,
        heap: &heap,
        pool,
        root,
        schedule,
        progress: Progress::default(),
        on_progress,
    };
    let me = [
        process.host().id,
        process.instance().id,
        member.instance().id,
    ];
    let failures = match show.play(&me) {
        Ok(()) => Vec::new(),
        Err(failure) => vec![failure],
    };
    let mut progress = show.progress;
    progress.elapsed = show.schedule.elapsed();
    drop(show);
    scene.clear();
    drop(heap);
    drop(member);
    process.leave().map_err(text)?;
    Ok(Report { progress, failures })
}

struct Show<'r, H> {
    options: &'r Options,
    scene: &'r mut Scene,
    heap: &'r LocalHeap<'r>,
    pool: WorkerPool,
    root: fn(u64, u64, u64, [u64; 2]) -> Call,
    schedule: Schedule,
    progress: Progress,
    on_progress: H,
}

impl<H: FnMut(&Progress)> Show<'_, H> {
    /// Runs everything, up to the first failure.
    fn play(&mut self, me: &[u32]) -> Result<(), String> {
        let role = self.role();
        for threads in &self.options.processes {
            self.scene.start(*threads, role)?;
        }
        for _ in 0..self.options.spares {
            self.scene.start(1, role)?;
        }
        let mut graph = 0;
        while graph == 0 || !self.schedule.is_over(self.progress.kills) {
            self.run_graph(graph)?;
            graph += ROUNDS;
        }
        let (pool, heap) = (self.pool, self.heap);
        let runs = pool
            .data(heap, RUNS)
            .ok_or("the number of runs is missing")?;
        let runs = add_run(heap.memory(), runs, 0);
        let redone = runs
            .checked_sub(self.progress.tasks)
            .ok_or_else(|| format!("{} tasks took effect in {runs} runs", self.progress.tasks))?;
        self.progress.redone = redone;
        self.scene.end(me)?;
        if redone > self.progress.workers {
            let workers = self.progress.workers;
            return Err(format!(
                "{redone} tasks were re-executed for {workers} workers that were killed"
            ));
        }
        self.scene.demand_nothing_leaks(heap, Some(pool))?;
        self.scene.demand_clean_pod()?;
        WorkerPool::destroy(&self.scene.pod, heap, Scene::POOL).map_err(text)?;
        self.scene.demand_nothing_leaks(heap, None)
    }

    /// Returns the workers' role. A worker that comes when a spare has its place already is
    /// superfluous, and leaves: so all stand by, or none.
    fn role(&self) -> Role {
        match self.options.stand_by {
            false => Role::Works,
            true => Role::StandsBy,
        }
    }

    /// Runs the graph from round `graph` on, checks its result, and removes it.
    fn run_graph(&mut self, graph: u64) -> Result<(), String> {
        let (pool, heap) = (self.pool, self.heap);
        let len = 200 + self.schedule.draw(800);
        let rounds = graph..graph + ROUNDS;
        let call = (self.root)(graph, ROUNDS, len, [0; 2]);
        pool.submit(heap, &graph::job(graph), call).map_err(text)?;
        let last = graph::job(graph + ROUNDS - 1);
        let end = self.wait_until(|it| {
            if let Some(failed) = it.jobs().find(|job| job.state() == JobState::Failed) {
                let why = failed.error().unwrap_or_default();
                return Err(format!("job `{}` failed: {why}", failed.name()));
            }
            let end = it.pool.job(it.heap, &last);
            Ok(end.filter(|job| job.state().is_over()))
        })?;
        let found = end.wait_for::<[u64; 2]>(Some(PATIENCE)).map_err(text)?;
        let expected = rounds.clone().fold([0, 0], |sum, graph| {
            let one = graph::expected(graph, 0, len);
            [sum[0] + one[0], sum[1] + one[1] + 2]
        });
        if found != Some(expected) {
            return Err(format!(
                "graph {graph} of {len} numbers: the sum and the number of tasks are {found:?}, not {expected:?}"
            ));
        }
        for round in rounds {
            let job = graph::job(round);
            self.wait_until(|it| Ok(it.pool.remove_job(it.heap, &job).ok().filter(|was| *was)))?;
            for name in graph::names(round, 0, len) {
                let removed = |it: &mut Self| it.pool.remove_data(it.heap, &name).ok();
                if !self.wait_until(|it| Ok(removed(it)))? {
                    return Err(format!("`{name}` is missing"));
                }
            }
        }
        self.progress.graphs += 1;
        self.progress.tasks += expected[1];
        Ok(())
    }

    fn jobs(&self) -> impl Iterator<Item = Job<'_>> {
        self.pool.jobs(self.heap).into_iter()
    }

    /// Waits until `look` returns a value, and kills a process from time to time.
    fn wait_until<T>(
        &mut self,
        mut look: impl FnMut(&mut Self) -> Result<Option<T>, String>,
    ) -> Result<T, String> {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = look(self)? {
                return Ok(found);
            }
            if Instant::now() >= until {
                let status = self.pool.status(&self.scene.pod);
                return Err(format!("it has not ended within {PATIENCE:?}: {status:#?}"));
            }
            self.kill_if_due()?;
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn kill_if_due(&mut self) -> Result<(), String> {
        if let Some(elapsed) = self.schedule.new_second() {
            self.progress.elapsed = elapsed;
            (self.on_progress)(&self.progress);
        }
        if !self.schedule.is_kill_due(self.progress.kills) {
            return Ok(());
        }
        let index = self.schedule.draw(self.scene.children() as u64) as usize;
        let threads = self.scene.kill(index)?;
        self.scene.start(threads, self.role())?;
        self.progress.kills += 1;
        self.progress.workers += u64::from(threads);
        Ok(())
    }
}
