//! Many points of one run.

use std::num::NonZero;
use std::sync::Mutex;
use std::thread;

use thiserror::Error;

use super::point::{Point, Wrong};
use crate::cluster::{self, Breakage, Cluster, ClusterError, Stuck, Workload};
use crate::description::{Description, Synchronising};
use crate::engine::{Random, Simulation};
use crate::program::Thread;

/// Which points of a run are tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Points {
    /// Each node's death at each event.
    Every,
    /// So many, drawn evenly; fewer if the run has fewer.
    Drawn(u64),
}

/// How far a machine is run after a crash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Goal {
    /// Until the recovery is over, and a while longer: for programs that cannot end without a thread that has died.
    Recovered,
    /// Until all living threads have ended.
    Finished,
}

/// What is to be swept.
#[derive(Clone, Copy, Debug)]
pub struct Sweep<'a> {
    /// The machine.
    pub description: &'a Description,
    /// Decides what the machine leaves to chance, and who dies when.
    pub seed: u64,
    /// The points.
    pub points: Points,
    /// How many nodes die at each: the second and later ones soon after the first.
    pub deaths: usize,
    /// Those die only when the recovery from the deaths before is over.
    pub apart: bool,
    /// What follows.
    pub goal: Goal,
    /// How many host threads run it; `None` for as many as there are.
    pub workers: Option<NonZero<usize>>,
    /// The machine does this wrong; for tests of the judge.
    pub broken: Option<Breakage>,
}

/// Why nothing could be swept.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SweepError {
    /// There is no such machine, or the workload does not fit on it.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The threads do not end even if nobody dies.
    #[error(transparent)]
    Stuck(#[from] Stuck),
    /// The machine leaves out what would have to be there after a crash.
    #[error(
        "ours.core.synchronisation leaves locks out: one would die with its node, so such a machine cannot be crashed; set it to \
         \"replicated\""
    )]
    LeftOut,
}

/// A point after which something was wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failed {
    /// Where.
    pub point: Point,
    /// What.
    pub what: String,
}

/// What a sweep has found.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Report {
    /// Points that were tried.
    pub points: u64,
    /// Events of the run that is crashed.
    pub events: u64,
    /// Recoveries that came to their end.
    pub recoveries: u64,
    /// Commits before the deaths, summed over the points: all of them are judged.
    pub stores: u64,
    /// Lines that a dead node owned, and to which a recovery gave contents, from logs or memory.
    pub restored: u64,
    /// Points after whose recovery a thread's code gave up, on values that were the last: it has met what the dead have left half
    /// done. Nothing was lost, and the living were watched no longer.
    pub given_up: u64,
    /// Points after which something was wrong.
    pub failed: u64,
    /// Of those, the ones after which a line was not what had been committed to it, or a program broke on what it read.
    pub lost: u64,
    /// The first of them, a few.
    pub failures: Vec<Failed>,
}

/// How many failures are kept.
pub(super) const MOST_KEPT: usize = 8;

impl<'a> Sweep<'a> {
    /// One death at each of 1,000 points, and threads that are to end.
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

    /// Sweeps a workload, whose threads are made anew by each worker. `progress` is told how many more points are done.
    ///
    /// # Errors
    /// If the run cannot begin, or does not end though nobody dies. What is found wrong is not an error, but [`Report::failed`].
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

    /// By rising event.
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
                // One from each of as many equal parts of the run.
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
