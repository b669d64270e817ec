//! The time that a run takes, and paired costs of our runs and a peer's.

use crate::paired::Paired;
use crate::row::{How, Row};
use crate::statistics::Estimate;
use crate::{Run, StudyError, clock, machine};
use outlive_run::driver::Outcome;
use std::time::Instant;

/// The cost of a run, in seconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    /// Wall time.
    pub wall: f64,
    /// Processor time.
    pub cpu: f64,
}

impl Cost {
    /// Runs `work`, which uses this thread alone. Returns its cost and its result.
    pub fn of<R>(work: impl FnOnce() -> R) -> (Self, R) {
        let (began, cpu) = (Instant::now(), clock::thread_cpu_seconds());
        let made = work();
        let cost = Self {
            wall: began.elapsed().as_secs_f64(),
            cpu: clock::thread_cpu_seconds() - cpu,
        };
        (cost, made)
    }

    /// Runs `work` on two threads at the same time, which share only their input and the machine.
    ///
    /// # Errors
    /// If one of them fails.
    pub fn of_two(work: impl Fn() -> Result<Self, StudyError> + Sync) -> Result<Self, StudyError> {
        std::thread::scope(|scope| {
            let other = scope.spawn(&work);
            let first = work();
            let other = other
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            let (first, other) = (first?, other?);
            Ok(Self {
                wall: first.wall.max(other.wall),
                cpu: first.cpu + other.cpu,
            })
        })
    }

    #[cfg(any(feature = "mpi", feature = "ray"))]
    pub fn add(&mut self, other: Self) {
        self.wall += other.wall;
        self.cpu += other.cpu;
    }
}

/// The cost from the start of the first host to the end of the last.
impl<T> From<&Outcome<T>> for Cost {
    fn from(outcome: &Outcome<T>) -> Self {
        Self {
            wall: outcome.seconds_of_work,
            cpu: outcome.cpu_seconds_of_work,
        }
    }
}

/// The two metrics that a row can have.
pub const WALL: Metric = ("wall time of the work", |cost| cost.wall);
pub const CPU: Metric = ("processor time of the work", |cost| cost.cpu);

/// The name of a metric, and its value in a cost.
pub type Metric = (&'static str, fn(&Cost) -> f64);

/// The costs of our runs, each between two of the peer's.
#[derive(Clone, Debug, Default)]
pub struct Costs {
    pub ours: Vec<Cost>,
    pub before: Vec<Cost>,
    pub after: Vec<Cost>,
}

impl Costs {
    /// Executes `rounds` rounds. A peer's run is shared by two adjacent rounds.
    pub fn measure(
        run: &Run<'_>,
        (case, rounds): (&str, usize),
        mut ours: impl FnMut() -> Result<Cost, StudyError>,
        mut peer: impl FnMut() -> Result<Cost, StudyError>,
    ) -> Result<Self, StudyError> {
        let mut costs = Self::default();
        run.go_on()?;
        run.begin(case);
        let mut last = peer()?;
        for round in 1..=rounds {
            run.go_on()?;
            run.begin(&format!("{case}: round {round} of {rounds}"));
            let ours = ours()?;
            let next = peer()?;
            costs.push(last, ours, next);
            last = next;
        }
        Ok(costs)
    }

    pub fn push(&mut self, before: Cost, ours: Cost, after: Cost) {
        self.before.push(before);
        self.ours.push(ours);
        self.after.push(after);
    }

    pub fn paired(&self, of: fn(&Cost) -> f64) -> Paired {
        let all = |costs: &[Cost]| costs.iter().map(of).collect();
        Paired {
            ours: all(&self.ours),
            before: all(&self.before),
            after: all(&self.after),
        }
    }
}

/// Returns the factor by which ours is faster: `over` divided by the ratio of the times.
pub fn faster(over: f64, ratio: Estimate) -> Estimate {
    Estimate {
        value: over / ratio.value,
        low: over / ratio.high,
        high: over / ratio.low,
    }
}

/// Returns the name of a case with `workers` workers, which says whether they outnumber the cores.
pub fn workers_here(workers: u32) -> String {
    let cores = machine::cores();
    match workers as usize {
        1 => "1 worker".into(),
        more if more > cores => format!("{more} workers on {cores} cores (oversubscribed)"),
        more => format!("{more} workers"),
    }
}

/// Returns the number of cores, as a number of workers.
pub fn as_many_as_cores() -> u32 {
    machine::cores() as u32
}

/// Marks a row as emulated: the hosts are processes of this machine.
pub fn emulated(row: Row) -> Row {
    row.how(How::Emulated)
}
