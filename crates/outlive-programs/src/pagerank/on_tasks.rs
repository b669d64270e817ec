//! PageRank in the form that the driver runs: the graph in the pod, and a job for each iteration.

use super::tasks::{BEGINS, Found, LEAVING, PLAN, Plan, SOURCES, brings, iterate, sums};
use super::{PageRank, Ranks};
use crate::graph::Graph;
use outlive::heap::LocalHeap;
use outlive_run::driver::RunError;
use outlive_run::host::HostError;
use outlive_run::on_tasks::{Ended, PoolOf, TaskProgram};
use outlive_tasks::{Array, Call, PoolError, WorkerPool};

/// The program of tasks that ranks the vertices of a graph.
#[derive(Clone, Copy, Debug)]
pub struct Ranking<'g> {
    /// The graph whose vertices are ranked.
    pub graph: &'g Graph,
    /// The parameters of the computation.
    pub of: PageRank,
    /// The maximum number of rows that a task computes.
    pub task_rows: u32,
}

impl<'g> Ranking<'g> {
    /// The default number of rows of a task: the best for MODC (§5.2).
    pub const TASK_ROWS: u32 = 15_000;

    /// Creates the ranking of `graph` by the [usual definition](super).
    pub fn new(graph: &'g Graph) -> Self {
        Self {
            graph,
            of: PageRank::default(),
            task_rows: Self::TASK_ROWS,
        }
    }

    /// Returns the number of tasks that compute an iteration.
    fn parts(&self) -> u64 {
        u64::from(self.graph.vertices()).div_ceil(self.task_rows.into())
    }
}

/// Returns the approximate number of iterations that reduce a residual of 1 below the tolerance if
/// only the damping reduces it.
fn iterations_needed(of: &PageRank) -> u32 {
    let needed = of.tolerance.ln() / of.damping.ln();
    // If this is not a number, all iterations are made.
    if needed.is_finite() && needed > 0.0 {
        of.iterations.min(needed.ceil() as u32)
    } else {
        of.iterations
    }
}

/// Returns the number of iterations in which hosts may be killed: the first of those that a graph
/// needs, as graphs with many edges at each vertex need a tenth of
/// [the maximum](iterations_needed).
fn iterations_with_kills(of: &PageRank) -> u32 {
    if of.tolerance > 0.0 {
        (iterations_needed(of) / 10).max(of.iterations.min(3))
    } else {
        of.iterations
    }
}

impl TaskProgram for Ranking<'_> {
    type Result = Ranks;

    const POOL: PoolOf = PoolOf {
        number: 16,
        name: "pagerank",
    };

    fn check(&self) -> Result<(), RunError> {
        let asked = [
            ("the number of vertices", self.graph.vertices()),
            ("the number of rows of a task", self.task_rows),
        ];
        match asked.into_iter().find(|(_, asked)| *asked == 0) {
            Some((what, _)) => Err(RunError::Impossible {
                what,
                asked: 0,
                least: 1,
                most: u32::MAX.into(),
            }),
            None => Ok(()),
        }
    }

    fn phase(&self) -> &'static str {
        "ranking"
    }

    fn units(&self) -> u64 {
        u64::from(iterations_with_kills(&self.of)) * self.parts()
    }

    fn units_until(&self, last: u64) -> u64 {
        // The last round has no units.
        last * self.parts()
    }

    fn rounds(&self) -> u64 {
        u64::from(self.of.iterations) + 1
    }

    fn likely_rounds(&self) -> u64 {
        iterations_needed(&self.of).into()
    }

    fn data_bytes(&self) -> Vec<u64> {
        let (vertices, parts) = (u64::from(self.graph.vertices()), self.parts());
        vec![
            self.graph.edges() * 4,
            (vertices + 1) * 8,
            vertices * 8,
            vertices * 8,
            vertices * 4,
            parts * 16,
            parts * 16,
        ]
    }

    /// Puts the graph and the first vector into the pod.
    fn put(&self, pool: &WorkerPool, heap: &LocalHeap<'_>) -> Result<(), PoolError> {
        let graph = self.graph;
        let n = graph.vertices() as usize;
        let put = |name, from: &[u32]| {
            pool.put_array(heap, name, from.len(), |array| array.write(0, from))
        };
        put(SOURCES, graph.sources())?;
        let begins = graph.begins();
        pool.put_array(heap, BEGINS, begins.len(), |array| array.write(0, begins))?;
        let even = 1.0 / n as f64;
        let leaving = graph.all_leaving();
        pool.put_array(heap, brings(0), n, |array: Array<f64>| {
            for (vertex, leaving) in leaving.iter().enumerate() {
                array.set(vertex, even / f64::from((*leaving).max(1)));
            }
        })?;
        pool.put_array(heap, brings(1), n, |array| array.fill(0..n, 0.0))?;
        put(LEAVING, leaving)?;
        let parts = self.parts() as usize;
        // Nothing has converged before the first iteration.
        pool.put_array(heap, sums(0), 2 * parts, |array: Array<f64>| {
            for (part, rows) in leaving.chunks(self.task_rows as usize).enumerate() {
                let dangling = rows.iter().filter(|leaving| **leaving == 0).count();
                array.set(2 * part, f64::INFINITY);
                array.set(2 * part + 1, dangling as f64 * even);
            }
        })?;
        pool.put_array(heap, sums(1), 2 * parts, |array| {
            array.fill(0..2 * parts, 0.0)
        })?;
        let plan = Plan {
            damping: self.of.damping,
            tolerance: self.of.tolerance,
            iterations: self.of.iterations.into(),
            vertices: graph.vertices().into(),
            rows: self.task_rows.into(),
        };
        pool.put(heap, PLAN, bytemuck::bytes_of(&plan))
    }

    fn begin(&self) -> Call {
        iterate(0)
    }

    fn result(
        &self,
        pool: &WorkerPool,
        heap: &LocalHeap<'_>,
        ended: &Ended,
    ) -> Result<Ranks, HostError> {
        let Found {
            iterations,
            residual,
        } = ended.said()?;
        let brings = pool.array::<f64>(heap, brings(iterations));
        let mut ranks = brings.ok_or(HostError::NoRun)?.to_vec();
        for (rank, leaving) in ranks.iter_mut().zip(self.graph.all_leaving()) {
            *rank *= f64::from((*leaving).max(1));
        }
        Ok(Ranks {
            ranks,
            iterations: iterations as u32,
            residual,
            converged: residual < self.of.tolerance,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kills_are_spread_over_iterations_that_are_made() {
        let of = PageRank::default();
        assert_eq!(iterations_needed(&of), 142);
        assert_eq!(iterations_with_kills(&of), 14);
        let all = PageRank {
            tolerance: 0.0,
            iterations: 10,
            ..of
        };
        assert_eq!(
            (iterations_needed(&all), iterations_with_kills(&all)),
            (10, 10)
        );
        for damping in [0.0, 1.0] {
            let odd = PageRank { damping, ..of };
            assert!(iterations_needed(&odd) <= 200 && iterations_with_kills(&odd) <= 200);
        }
        let few = PageRank {
            iterations: 2,
            ..of
        };
        assert_eq!(iterations_with_kills(&few), 2);
    }
}
