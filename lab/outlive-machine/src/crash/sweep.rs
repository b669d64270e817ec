//! Sweeps over many crash points of one run.

use std::num::NonZero;
use std::sync::Mutex;
use std::thread;

use thiserror::Error;

use super::point::{Point, Wrong};
use crate::cluster::{self, Breakage, Cluster, ClusterError, Stuck, Workload};
use crate::description::{Description, Synchronising};
use crate::engine::{Random, Simulation};
use crate::program::Thread;

/// The points of a run that are tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Points {
    /// The death of each node at each event.
    Every,
    /// This number of points, drawn evenly; fewer if the run has fewer.
    Drawn(u64),
}

/// How far a machine is run after a crash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Goal {
    /// Until the recovery is over, and a while longer: for programs that cannot end without a
    /// thread that has died.
    Recovered,
    /// Until all living threads have ended.
    Finished,
}

/// The parameters of a sweep.
#[derive(Clone, Copy, Debug)]
pub struct Sweep<'a> {
    /// The machine.
    pub description: &'a Description,
    /// The seed of the machine's random choices, and of the times and nodes of the deaths.
    pub seed: u64,
    /// The points to try.
    pub points: Points,
    /// The number of deaths at each point: the second and later ones follow soon after the first.
    pub deaths: usize,
    /// Whether each later death happens only after the recovery from the deaths before.
    pub apart: bool,
    /// How far the machine is run after the deaths.
    pub goal: Goal,
    /// The number of host threads that run the sweep; `None` for one per available core.
    pub workers: Option<NonZero<usize>>,
    /// A fault built into the machine, for tests of the judge.
    pub broken: Option<Breakage>,
}

/// The reason why a sweep cannot run.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SweepError {
    /// Such a machine cannot exist, or the workload does not fit on it.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The threads do not end even without a death.
    #[error(transparent)]
    Stuck(#[from] Stuck),
    /// The machine omits state that would have to exist after a crash.
    #[error(
        "ours.core.synchronisation keeps locks out of shared memory: they would be lost with their \
         node, so no node may die; set it to \"replicated\""
    )]
    LeftOut,
}

/// A point after which a fault was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failed {
    /// The point.
    pub point: Point,
    /// A description of the fault.
    pub what: String,
}

/// The results of a sweep.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Report {
    /// The number of points tried.
    pub points: u64,
    /// The number of events of the run that is crashed.
    pub events: u64,
    /// The number of completed recoveries.
    pub recoveries: u64,
    /// Commits before the deaths, summed over the points. All of them are judged.
    pub stores: u64,
    /// Lines that a dead node owned and that a recovery restored, from logs or memory.
    pub restored: u64,
    /// Points after whose recovery a thread's code gave up on current values, because it met state
    /// that a dead thread left half changed. Nothing was lost, and the survivors were not watched
    /// further.
    pub given_up: u64,
    /// The number of points after which a fault was found.
    pub failed: u64,
    /// Of those, the points after which a line did not hold the values committed to it, or a
    /// program broke on a value that it read.
    pub lost: u64,
    /// The first few failures.
    pub failures: Vec<Failed>,
}

/// The maximum number of failures that are kept.
const MOST_KEPT: usize = 8;

impl Report {
    /// Adds the counts and failures of another sweep.
    pub fn add(&mut self, other: Report) {
        self.points += other.points;
        self.events += other.events;
        self.recoveries += other.recoveries;
        self.stores += other.stores;
        self.restored += other.restored;
        self.given_up += other.given_up;
        self.failed += other.failed;
        self.lost += other.lost;
        self.failures.extend(other.failures);
        self.failures.truncate(MOST_KEPT);
    }
}

impl<'a> Sweep<'a> {
    /// Returns a sweep with one death at each of 1,000 points, in which all threads must end.
    pub fn new(description: &'a Description, seed: u64) -> Self {
        Self {
            description,
            seed,
            points: Points::Drawn(1_000),
            deaths: 1,
            apart: false,
            goal: Goal::Finished,
            workers: None,
            broken: None,
        }
    }

    /// Sweeps a workload; each worker creates its threads anew. Calls `progress` with the number of
    /// points newly done.
    ///
    /// # Errors
    /// If the run cannot begin, or does not end without a death. Faults found are not errors; they
    /// are counted in [`Report::failed`].
    pub fn run<T: Thread + Clone>(
        &self,
        workload: &(dyn Fn() -> Workload<T> + Sync),
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<Report, SweepError> {
        let ours = &self.description.ours;
        let left_out = match ours.core.synchronisation {
            Synchronising::Replicated => false,
            Synchronising::LeftOut => ours.coherence.protocol.replicates(),
            Synchronising::Events => true,
        };
        if left_out {
            return Err(SweepError::LeftOut);
        }
        let mut whole = self.begin(workload)?;
        cluster::run(&mut whole)?;
        let events = whole.handled();
        let points = self.points(events);
        let workers = self
            .workers
            .or_else(|| thread::available_parallelism().ok());
        let workers = workers.map_or(1, NonZero::get).min(points.len().max(1));
        let report = Mutex::new(Report {
            events,
            ..Report::default()
        });
        let share = points.len().div_ceil(workers).max(1);
        let broken = thread::scope(|scope| {
            let workers: Vec<_> = points
                .chunks(share)
                .map(|share| scope.spawn(|| self.work(workload, share, &report, progress)))
                .collect();
            let ends = workers.into_iter().map(|worker| worker.join());
            ends.filter_map(|end| {
                end.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                    .err()
            })
            .next()
        });
        match broken {
            Some(error) => Err(error),
            None => Ok(report
                .into_inner()
                .unwrap_or_else(|poisoned| poisoned.into_inner())),
        }
    }

    fn begin<T: Thread>(
        &self,
        workload: &(dyn Fn() -> Workload<T> + Sync),
    ) -> Result<Simulation<Cluster<T>>, SweepError> {
        let workload = workload();
        let image = workload.image.clone();
        let mut simulation = Cluster::simulation(self.description, workload, self.seed)?;
        simulation.machine_mut().judge_values(&image);
        if let Some(broken) = self.broken {
            simulation.machine_mut().break_it(broken);
        }
        Ok(simulation)
    }

    /// Returns the points in the order of their events.
    fn points(&self, events: u64) -> Vec<Point> {
        let nodes = self.description.system.compute_nodes as u64;
        let point = |place: u64| {
            let (event, node) = (place / nodes, (place % nodes) as usize);
            Point::drawn(
                (event, node),
                nodes as usize,
                (self.deaths, self.apart),
                self.seed,
            )
        };
        let all = events * nodes;
        match self.points {
            Points::Drawn(count) if count < all => {
                let mut random = Random::new(self.seed);
                // One point is drawn from each of `count` equal parts of the run.
                let drawn = (0..count).map(|part| {
                    let (from, to) = (part * all / count, (part + 1) * all / count);
                    point(from + random.below(to - from))
                });
                drawn.collect()
            }
            _ => (0..all).map(point).collect(),
        }
    }

    /// Runs the machine once, and forks it at each of these points.
    fn work<T: Thread + Clone>(
        &self,
        workload: &(dyn Fn() -> Workload<T> + Sync),
        points: &[Point],
        report: &Mutex<Report>,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<(), SweepError> {
        let mut simulation = self.begin(workload)?;
        for point in points {
            let event = point.deaths.first().map_or(0, |death| death.after);
            while simulation.handled() < event && simulation.step() {}
            let outcome = point.judge(simulation.clone(), self.goal);
            let mut report = report
                .lock()
                .unwrap_or_else(|poisoned| poisoned.into_inner());
            report.points += 1;
            match outcome {
                Ok(outcome) => {
                    report.recoveries += outcome.recoveries;
                    report.stores += outcome.stores;
                    report.restored += outcome.restored;
                    report.given_up += u64::from(outcome.given_up);
                }
                Err(wrong) => {
                    report.failed += 1;
                    let what = match wrong {
                        Wrong::Lost(what) => {
                            report.lost += 1;
                            what
                        }
                        Wrong::Other(what) => what,
                    };
                    if report.failures.len() < MOST_KEPT {
                        let point = point.clone();
                        report.failures.push(Failed { point, what });
                    }
                }
            }
            drop(report);
            progress(1);
        }
        Ok(())
    }
}
