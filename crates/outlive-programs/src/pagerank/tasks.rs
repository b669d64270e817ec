//! PageRank on tasks, by recursive decomposition (MODC, Figure 2).
//!
//! Each iteration is a job. Its root, [`iterate`], adds up the results of the previous iteration's
//! tasks, and spawns a [`rank`] for each large part of the rows, and the job of the next iteration.
//! A `rank` of many rows spawns others of fewer rows, down to the chosen size, and these compute.
//!
//! The driver has put the graph into the pod as three arrays, and two vectors as well. An iteration
//! reads the vector that the previous iteration has written, and writes the other one. That is
//! idempotent: a task writes only its own rows of a vector that is not read before the task's job
//! is complete, and the vector that it reads is not written again before the next job. The sums of
//! a task (the change of its ranks, and the rank of its dangling vertices) go into a place of its
//! own, and are added in the order of the places. So the ranks are the same to the last bit for any
//! number of workers and any deaths.

use crate::graph::Vertex;
use core::sync::atomic::{AtomicU64, Ordering};
use outlive_run::on_tasks::{damaged, next_round, round, spread, unit};
use outlive_tasks::{Array, Call, Context, TaskError, TaskResult, task};

/// Returns the name of the vector that iteration `iteration` reads, of two.
pub(super) fn brings(iteration: u64) -> &'static str {
    ["brings 0", "brings 1"][iteration as usize % 2]
}

/// Returns the name of the results of its tasks: changes and dangling ranks.
pub(super) fn sums(iteration: u64) -> &'static str {
    ["sums 0", "sums 1"][iteration as usize % 2]
}

/// The names of the arrays of the graph, as in [`Graph`](crate::graph::Graph).
pub(super) const BEGINS: &str = "begins";
pub(super) const SOURCES: &str = "sources";
pub(super) const LEAVING: &str = "leaving";
/// The name of the [plan](Plan).
pub(super) const PLAN: &str = "plan";

/// The parameters of a computation.
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub(super) struct Plan {
    pub damping: f64,
    pub tolerance: f64,
    pub iterations: u64,
    pub vertices: u64,
    /// The maximum number of rows that a task computes.
    pub rows: u64,
}

/// The output of the last job: the number of iterations, and the residual of the last one.
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub(super) struct Found {
    pub iterations: u64,
    pub residual: f64,
}

fn plan(context: &Context<'_>) -> Result<Plan, TaskError> {
    let plan: Plan = context.input_of(PLAN)?;
    match plan.rows {
        0 => Err(damaged("the number of rows of a task is 0")),
        _ => Ok(plan),
    }
}

task! {
    /// Begins iteration `iteration`, or ends the run.
    pub fn iterate(context, iteration: u64) {
        let spread_over = |first, last, base| rank(iteration, first, last, base);
        begin(context, iteration, spread_over, iterate(iteration + 1))
    }

    /// Computes rows `first..last` in an iteration, or spawns tasks that do. `base` is the part of
    /// each rank that does not depend on edges.
    pub fn rank(context, iteration: u64, first: u64, last: u64, base: f64) {
        let smaller = |first, last| rank(iteration, first, last, base);
        // A place is written, and not added to: a re-executed task writes the same value.
        let publish = |sums: Array<f64>, place: usize, found: f64| sums.set(place, found);
        rank_rows(context, iteration, (first, last), base, smaller, publish)
    }
}

/// Implements [`iterate`]: `call` makes the tasks of the iteration, and `next` begins the next one.
pub(super) fn begin(
    context: &Context<'_>,
    iteration: u64,
    call: impl Fn(u64, u64, f64) -> Call,
    next: Call,
) -> TaskResult {
    let plan = plan(context)?;
    let found = context.array::<f64>(sums(iteration))?.to_vec();
    let (mut residual, mut dangling) = (0.0, 0.0);
    for part in found.chunks_exact(2) {
        residual += part[0];
        dangling += part[1];
    }
    if iteration >= plan.iterations || residual < plan.tolerance {
        return context.result_of(&Found {
            iterations: iteration,
            residual,
        });
    }
    round(iteration);
    let even = 1.0 / plan.vertices as f64;
    let base = (1.0 - plan.damping) * even + plan.damping * dangling * even;
    spread(context, 0..plan.vertices, plan.rows, |rows| {
        call(rows.start, rows.end, base)
    })?;
    next_round(context, iteration + 1, next)
}

/// Implements [`rank`]: `smaller` makes smaller tasks, and `publish` stores each result of a part
/// in its place.
pub(super) fn rank_rows(
    context: &Context<'_>,
    iteration: u64,
    (first, last): (u64, u64),
    base: f64,
    smaller: impl Fn(u64, u64) -> Call,
    publish: impl Fn(Array<f64>, usize, f64),
) -> TaskResult {
    let plan = plan(context)?;
    if last.saturating_sub(first) > plan.rows {
        return spread(context, first..last, plan.rows, |rows| {
            smaller(rows.start, rows.end)
        });
    }
    let (part, parts) = (first / plan.rows, plan.vertices.div_ceil(plan.rows));
    unit(context, iteration * parts + part, || {
        let rows = (first as usize, last as usize);
        let found = compute(context, plan.damping, iteration, rows, base)?;
        let sums = context.array::<f64>(sums(iteration + 1))?;
        let place = part as usize * 2;
        if place + 2 > sums.len() {
            return Err(damaged("there are fewer sums than parts"));
        }
        publish(sums, place, found[0]);
        publish(sums, place + 1, found[1]);
        Ok(())
    })
}

/// Computes rows. Returns their total change, and the rank of their dangling vertices.
fn compute(
    context: &Context<'_>,
    damping: f64,
    iteration: u64,
    (first, last): (usize, usize),
    base: f64,
) -> Result<[f64; 2], TaskError> {
    let begins = context.array::<u64>(BEGINS)?;
    let sources = context.array::<u32>(SOURCES)?;
    let leaving = context.array::<u32>(LEAVING)?;
    let brings = context.array::<f64>(brings(iteration))?;
    let next = context.array::<f64>(self::brings(iteration + 1))?;
    // The graph was put into the pod before the first job was submitted. The vector was put there
    // as well, or written by the job of the iteration before, which is complete.
    // SAFETY: no task writes to the graph. The next writer of the vector is the job of the next
    // iteration but one, which is opened after this task. The names exist as long as the pool does.
    let (begins, sources, leaving, brings) = unsafe {
        (
            begins.as_slice(),
            sources.as_slice(),
            leaving.as_slice(),
            brings.as_slice(),
        )
    };
    next.map_for_writing(first.min(next.len())..last.min(next.len()));
    let next = next.atomics();
    let mut found = [0.0; 2];
    for from in (first..last).step_by(BLOCK) {
        let rows = from..last.min(from + BLOCK);
        let block = Block {
            begin: begins.get(from).copied(),
            ends: begins.get(from + 1..=rows.end),
            leaving: leaving.get(rows.clone()),
            before: brings.get(rows.clone()),
            next: next.get(rows),
        };
        let here = block.compute(sources, brings, damping, base)?;
        found[0] += here[0];
        found[1] += here[1];
    }
    Ok(found)
}

/// The number of rows that are summed separately: one running sum of millions of small numbers
/// would lose them.
const BLOCK: usize = 1024;

/// The arrays' elements of a few rows; `None` if an array is too short (a damaged segment).
struct Block<'a> {
    begin: Option<u64>,
    ends: Option<&'a [u64]>,
    leaving: Option<&'a [u32]>,
    before: Option<&'a [f64]>,
    next: Option<&'a [AtomicU64]>,
}

impl Block<'_> {
    #[inline]
    fn compute(
        self,
        sources: &[Vertex],
        brings: &[f64],
        damping: f64,
        base: f64,
    ) -> Result<[f64; 2], TaskError> {
        let Self {
            begin: Some(begin),
            ends: Some(ends),
            leaving: Some(leaving),
            before: Some(before),
            next: Some(next),
        } = self
        else {
            return Err(damaged("an array of the graph is too short"));
        };
        let mut begin = begin;
        let (mut residual, mut dangling) = (0.0, 0.0);
        for (((next, brought), leaving), end) in next.iter().zip(before).zip(leaving).zip(ends) {
            let row = sources.get(begin as usize..*end as usize);
            let row = row.ok_or_else(|| damaged("a row ends outside the graph"))?;
            begin = *end;
            let rank = base + damping * sum(row, brings);
            let shares = f64::from((*leaving).max(1));
            residual += (rank - brought * shares).abs();
            if *leaving == 0 {
                dangling += rank;
            }
            next.store((rank / shares).to_bits(), Ordering::Relaxed);
        }
        Ok([residual, dangling])
    }
}

/// Returns the sum of the contributions of `sources`, in four parts, so that an addition does not
/// wait for the previous one.
#[inline(always)]
fn sum(sources: &[Vertex], brings: &[f64]) -> f64 {
    let Some(last) = brings.len().checked_sub(1) else {
        return 0.0;
    };
    let brought = |source: &Vertex| {
        // A source that is not a vertex, in a damaged segment, gives only a wrong rank. The minimum
        // needs no branch.
        let at = (*source as usize).min(last);
        // SAFETY: `at` is not after the last index.
        unsafe { *brings.get_unchecked(at) }
    };
    let mut sums = [0.0; 4];
    let (fours, rest) = sources.as_chunks::<4>();
    for four in fours {
        for (sum, source) in sums.iter_mut().zip(four) {
            *sum += brought(source);
        }
    }
    let mut last = 0.0;
    for source in rest {
        last += brought(source);
    }
    (sums[0] + sums[1]) + (sums[2] + sums[3]) + last
}
