//! MODC's evaluation (section 5): PageRank on tasks, `modc-fig3` by the size of the tasks and
//! `modc-fig4` under failures.
//!
//! The paper's graph is a recursive matrix of 64M x 64M. Here its size depends on the effort or the
//! plan (`outlive-lab study --scale 26` is the paper's size). Its vertices are shuffled, as in
//! Graph500: in an unshuffled recursive matrix the first eighth of the rows has almost half of the
//! edges, and no eight tasks would be equal. The paper's remote latency of 400 ns does not exist
//! here: all memory is this machine's.
//!
//! A worker is a host of one process with one thread. The time of the work begins before the first
//! process is started and ends when the last has ended; making the pod and copying the graph into
//! it come before that. All computed ranks must be those of the plain program, or the measurement
//! is void.

#[cfg(any(feature = "mpi", feature = "ray"))]
mod engines;
mod fig3;
mod fig4;
mod mpi;
mod ray;

pub use fig3::STUDY as FIG3;
pub use fig4::STUDY as FIG4;

/// The names of the studies whose graphs can be scaled.
pub const SCALED: [&str; 2] = [FIG3.name, FIG4.name];

use crate::children::Launcher;
use crate::cost::Cost;
use crate::row::Row;
use crate::{Run, StudyError, hosts};
use outlive_programs::graph::rmat::Rmat;
use outlive_programs::graph::{Graph, Vertex};
use outlive_programs::pagerank::{PageRank, Ranking, Ranks, plain};
use outlive_run::driver::{KillAt, Options, Outcome, Supervise};

/// The scale of the paper's graph: 64M rows.
const PAPERS_SCALE: u32 = 26;
/// The rows of the paper's tasks where it does not vary them, and of the sets that its MPI program
/// deals out.
const PAPERS_ROWS: u32 = 15_000;
/// The tolerated difference of ranks from the plain program's, in parts of the mean rank.
const AGREES: f64 = 1e-9;

/// A graph to be ranked, and the expected ranks.
struct Subject {
    graph: Graph,
    scale: u32,
    of: PageRank,
    expected: Ranks,
}

impl Subject {
    fn of(run: &mut Run<'_>, iterations: u32) -> Result<Self, StudyError> {
        let scale = run.scale().unwrap_or(run.effort().of(12, 19, 22));
        run.begin(&format!(
            "a recursive matrix of 2^{scale} rows is made (the paper: 2^{PAPERS_SCALE})"
        ));
        let graph = shuffled(scale)?;
        let of = PageRank {
            tolerance: 0.0,
            iterations,
            ..PageRank::default()
        };
        run.go_on()?;
        run.begin("the plain program ranks it");
        let expected = plain(&graph, &of);
        let case = format!("the graph: RMAT, vertices shuffled, scale {scale}");
        run.answer([
            Row::new(&case, "rows", "2^20 rows")
                .ours(f64::from(graph.vertices()) / f64::from(1 << 20))
                .paper(64.0),
            Row::new(&case, "edges", "2^20 edges").ours(graph.edges() as f64 / f64::from(1 << 20)),
            Row::new(&case, "iterations", "iterations")
                .ours(f64::from(iterations))
                .paper(10.0),
        ]);
        Ok(Self {
            graph,
            scale,
            of,
            expected,
        })
    }

    /// Returns the rows of a task here that correspond to `papers` rows in the paper: there are as
    /// many tasks as in the paper, unless they would have fewer than 1,000 rows.
    fn scaled(&self, papers: u32) -> u32 {
        let scaled = (u64::from(papers) << self.scale) >> PAPERS_SCALE;
        // A test's graph does not have a thousand rows for each worker.
        let least = if self.scale < 16 { 64 } else { 1_000 };
        (scaled as u32).clamp(least.min(papers), papers)
    }

    /// Fails unless `ranks` are the plain program's.
    fn expect(&self, who: &str, ranks: &Ranks) -> Result<(), StudyError> {
        let difference = ranks.largest_difference(&self.expected);
        let of_the_mean = difference * f64::from(self.graph.vertices());
        if of_the_mean > AGREES || ranks.iterations != self.of.iterations {
            return Err(StudyError::void(format!(
                "{who} ranks differently from the plain program: {} iterations, and the largest difference is \
                 {difference:e}",
                ranks.iterations
            )));
        }
        Ok(())
    }

    /// Runs the plain program: one thread, ordinary memory.
    fn plain(&self) -> Cost {
        Cost::of(|| std::hint::black_box(plain(&self.graph, &self.of))).0
    }

    /// Runs `workers` hosts and `spares` standby hosts in a pod. With `kill_in`, a worker is killed
    /// in that iteration (the first is 1), right before the end of a task; a spare takes its place,
    /// or it is restarted if there is none.
    fn in_pod(
        &self,
        launcher: &Launcher,
        (workers, spares): (u32, u32),
        task_rows: u32,
        kill_in: Option<u32>,
    ) -> Result<Outcome<Ranks>, StudyError> {
        let parts = u64::from(self.graph.vertices().div_ceil(task_rows));
        let unit = |iteration: u32| u64::from(iteration - 1) * parts + parts / 2;
        let options = Options {
            hosts: workers,
            spares,
            threads: 1,
            kills: u32::from(kill_in.is_some()),
            kill_units: kill_in.map(unit).into_iter().collect(),
            kill_at: KillAt::Commit,
            supervise: match spares {
                0 => Supervise::Restart,
                _ => Supervise::None,
            },
            seed: 1,
            ..Options::default()
        };
        let ranking = Ranking {
            graph: &self.graph,
            of: self.of,
            task_rows,
        };
        let outcome = hosts::run(launcher, &options, &ranking)?;
        self.expect(&format!("a pod of {workers} workers"), &outcome.result)?;
        if let Some(iteration) = kill_in {
            let died_in = |unit: &u64| unit / parts == u64::from(iteration - 1);
            let lost = outcome
                .failures
                .first()
                .map(|failure| &failure.units_redone);
            if !lost.is_some_and(|units| units.iter().all(died_in) && !units.is_empty()) {
                return Err(StudyError::void(format!(
                    "a worker was to be killed in iteration {iteration}, but lost {lost:?} of \
                     {parts} tasks an iteration"
                )));
            }
        }
        Ok(outcome)
    }

    /// Returns the part of an iteration's work that is one task, estimated from its edges and rows.
    fn share(&self, unit: u64, task_rows: u32) -> f64 {
        let parts = u64::from(self.graph.vertices().div_ceil(task_rows));
        let first = (unit % parts) as usize * task_rows as usize;
        let last = (first + task_rows as usize).min(self.graph.vertices() as usize);
        let begins = self.graph.begins();
        let here = begins[last] - begins[first] + (last - first) as u64;
        here as f64 / (self.graph.edges() + u64::from(self.graph.vertices())) as f64
    }
}

/// Returns the graph of a scale, with shuffled vertices.
fn shuffled(scale: u32) -> Result<Graph, StudyError> {
    let refused = |error: outlive_programs::graph::GraphError| StudyError::void(error.to_string());
    let rmat = Rmat::new(scale, 16, 1).map_err(refused)?;
    let edges: Vec<[Vertex; 2]> = rmat
        .edges()
        .map(|edge| edge.map(|vertex| elsewhere(vertex, scale)))
        .collect();
    Graph::from_edges(rmat.vertices(), &edges).map_err(refused)
}

/// Returns the shuffled number of a vertex: a permutation of the numbers of `bits` bits.
fn elsewhere(vertex: Vertex, bits: u32) -> Vertex {
    let mask = ((1u64 << bits) - 1) as u32;
    let half = bits.div_ceil(2).max(1);
    let mut at = vertex;
    // Each step is invertible: odd factors, and shifts to the right.
    for factor in [0x9E37_79B1u32, 0x85EB_CA6B, 0xC2B2_AE35] {
        at = at.wrapping_mul(factor) & mask;
        at ^= at >> half;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn shuffling_loses_no_vertex_and_evens_out_the_rows() {
        for bits in [1, 2, 5, 12] {
            let all: BTreeSet<u32> = (0..1 << bits).map(|at| elsewhere(at, bits)).collect();
            assert_eq!(all.len(), 1 << bits, "{bits}");
            assert_eq!(all.last(), Some(&((1 << bits) - 1)));
        }
        let graph = shuffled(14).unwrap();
        let eighth = graph.vertices() as usize / 8;
        for rows in graph.begins().windows(eighth + 1).step_by(eighth) {
            let share = (rows[eighth] - rows[0]) as f64 / graph.edges() as f64;
            assert!((0.08..0.18).contains(&share), "{share}");
        }
    }
}
