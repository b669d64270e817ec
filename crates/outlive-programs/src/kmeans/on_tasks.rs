//! KMeans in the form that the driver runs: the points in the pod, and a job for each iteration.

use super::kernel::largest;
use super::tasks::{CENTRES, COUNTS, Found, PLAN, POINTS, Plan, SUMS, iterate, words_of_sums};
use super::{Clusters, Options, Points, initial};
use outlive::heap::LocalHeap;
use outlive_run::driver::RunError;
use outlive_run::host::HostError;
use outlive_run::on_tasks::{Ended, PoolOf, TaskProgram};
use outlive_tasks::{Array, Call, PoolError, WorkerPool};

/// The program of tasks that groups points.
#[derive(Clone, Debug)]
pub struct Clustering<'p> {
    points: &'p Points,
    options: Options,
    /// The centres to begin with.
    initial: Vec<f64>,
    task_points: u64,
}

/// The approximate number of squares that a task adds up: some milliseconds' work.
const SQUARES: u64 = 8 << 20;
/// The least points of a task, so that its sums are small compared to them.
const LEAST: u64 = 1000;
/// The number of iterations in which hosts may be killed, as the needed number is unknown.
const WITH_KILLS: u32 = 3;

impl<'p> Clustering<'p> {
    /// Creates the grouping of `points`.
    ///
    /// # Errors
    /// If there are fewer different points than groups, or no group is requested.
    pub fn new(points: &'p Points, options: Options) -> Result<Self, super::ClusterError> {
        let initial = initial(points, options.clusters, options.seed)?;
        // Centres are compared by eights.
        let squares = initial.len().next_multiple_of(8 * points.dimensions());
        Ok(Self {
            points,
            options,
            task_points: (SQUARES / squares as u64).max(LEAST),
            initial,
        })
    }

    /// Sets the maximum number of points of a task.
    #[must_use]
    pub fn with_task_points(mut self, points: u64) -> Self {
        self.task_points = points;
        self
    }

    /// Returns the maximum number of points of a task.
    pub fn task_points(&self) -> u64 {
        self.task_points
    }

    /// Returns the number of tasks of an iteration.
    fn parts(&self) -> u64 {
        (self.points.len() as u64).div_ceil(self.task_points)
    }

    fn plan(&self) -> Plan {
        Plan {
            points: self.points.len() as u64,
            dimensions: self.points.dimensions() as u64,
            clusters: self.options.clusters as u64,
            each: self.task_points,
            iterations: self.options.iterations.into(),
            tolerance: self.options.tolerance,
            largest: largest(self.points.coordinates()),
        }
    }
}

impl TaskProgram for Clustering<'_> {
    type Result = Clusters;

    const POOL: PoolOf = PoolOf {
        number: 18,
        name: "kmeans",
    };

    fn check(&self) -> Result<(), RunError> {
        match self.task_points {
            0 => Err(RunError::Impossible {
                what: "the number of points of a task",
                asked: 0,
                least: 1,
                most: u64::MAX,
            }),
            _ => Ok(()),
        }
    }

    fn phase(&self) -> &'static str {
        "moving"
    }

    fn units(&self) -> u64 {
        u64::from(self.options.iterations.clamp(1, WITH_KILLS)) * self.parts()
    }

    fn units_until(&self, last: u64) -> u64 {
        // The last round only moves the centres.
        last * self.parts()
    }

    fn rounds(&self) -> u64 {
        u64::from(self.options.iterations.max(1)) + 1
    }

    fn likely_rounds(&self) -> u64 {
        self.options.iterations.into()
    }

    fn data_bytes(&self) -> Vec<u64> {
        let words = words_of_sums(self.options.clusters, self.points.dimensions()) as u64;
        let centres = self.initial.len() as u64 * 8;
        vec![
            self.points.coordinates().len() as u64 * 8,
            self.parts() * words * 8,
            centres,
            centres,
            self.options.clusters as u64 * 8,
        ]
    }

    fn put(&self, pool: &WorkerPool, heap: &LocalHeap<'_>) -> Result<(), PoolError> {
        let points = self.points.coordinates();
        pool.put_array(heap, POINTS, points.len(), |array| array.write(0, points))?;
        let sums = words_of_sums(self.options.clusters, self.points.dimensions());
        let sums = sums * self.parts() as usize;
        pool.put_array(heap, SUMS, sums, |array| array.fill(0..sums, 0u64))?;
        for name in CENTRES {
            pool.put_array(heap, name, self.initial.len(), |array: Array<f64>| {
                array.write(0, &self.initial);
            })?;
        }
        let clusters = self.options.clusters;
        pool.put_array(heap, COUNTS, clusters, |array| {
            array.fill(0..clusters, 0u64);
        })?;
        pool.put(heap, PLAN, bytemuck::bytes_of(&self.plan()))
    }

    fn begin(&self) -> Call {
        iterate(0)
    }

    fn result(
        &self,
        pool: &WorkerPool,
        heap: &LocalHeap<'_>,
        ended: &Ended,
    ) -> Result<Clusters, HostError> {
        let Found { iterations, moved } = ended.said()?;
        let centres = pool.array::<f64>(heap, CENTRES[iterations as usize % 2]);
        let counts = pool.array::<u64>(heap, COUNTS);
        Ok(Clusters {
            centres: centres.ok_or(HostError::NoRun)?.to_vec(),
            counts: counts.ok_or(HostError::NoRun)?.to_vec(),
            iterations: iterations as u32,
            moved,
            options: self.options,
        })
    }
}
