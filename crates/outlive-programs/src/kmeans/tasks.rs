//! The tasks of an iteration.
//!
//! Each iteration is a job. Its root, [`iterate`], combines the sums of the previous iteration's
//! tasks, moves the centres, and spawns tasks that [add up](add_part) a part of the points each,
//! and the job of the next iteration. The last job only moves the centres.
//!
//! There are two lists of centres: a root reads the list that the previous root has written, and
//! writes the other one, so it may be re-executed. A task writes its sums as a whole into a place
//! of its own, which only the next job reads. Sums are whole numbers, so centres are the same to
//! the last bit, whichever workers ran the tasks, and however the points were divided.

use super::kernel::{self, Centres, Grid, Sums};
use super::{Options, is_last};
use outlive_run::on_tasks::{damaged, next_round, round, spread, unit};
use outlive_tasks::{Context, TaskError, task};

/// The name of the points.
pub(super) const POINTS: &str = "points";
/// The names of the centres: those of even iterations, and of odd ones.
pub(super) const CENTRES: [&str; 2] = ["centres 0", "centres 1"];
/// The name of the sums of all parts.
pub(super) const SUMS: &str = "sums";
/// The name of the final numbers of points of the centres.
pub(super) const COUNTS: &str = "counts";
/// The name of the [plan](Plan).
pub(super) const PLAN: &str = "plan";

/// The parameters of a computation.
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub(super) struct Plan {
    pub points: u64,
    pub dimensions: u64,
    pub clusters: u64,
    /// The maximum number of points of a task.
    pub each: u64,
    pub iterations: u64,
    pub tolerance: f64,
    /// The largest coordinate.
    pub largest: f64,
}

/// The output of the last job: the number of iterations, and the largest distance that a centre
/// moved in the last one.
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub(super) struct Found {
    pub iterations: u64,
    pub moved: f64,
}

/// Returns the words of the sums of a part: two for each sum, and one for each count.
pub(super) fn words_of_sums(clusters: usize, dimensions: usize) -> usize {
    clusters * (2 * dimensions + 1)
}

fn to_words(sums: &Sums) -> Vec<u64> {
    let halves = sums.sums().iter();
    let halves = halves.flat_map(|sum| [*sum as u64, (*sum >> 64) as u64]);
    halves.chain(sums.counts().iter().copied()).collect()
}

fn from_words(words: &[u64], clusters: usize) -> Sums {
    let (halves, counts) = words.split_at(words.len() - clusters);
    let sums = halves.as_chunks::<2>().0.iter();
    let sums = sums.map(|[low, high]| i128::from(*high as i64) << 64 | i128::from(*low));
    Sums::from_parts(sums.collect(), counts.to_vec())
}

fn plan(context: &Context<'_>) -> Result<Plan, TaskError> {
    let plan: Plan = context.input_of(PLAN)?;
    match [plan.points, plan.dimensions, plan.clusters, plan.each].contains(&0) {
        true => Err(damaged("a number in the plan is 0")),
        false => Ok(plan),
    }
}

task! {
    /// Ends iteration `iteration`, counted from 1, and begins the next one or ends the run.
    pub fn iterate(context, iteration: u64) {
        let plan = plan(context)?;
        if iteration > 0 {
            let moved = move_centres(context, &plan, iteration)?;
            let options = Options {
                clusters: plan.clusters as usize,
                iterations: plan.iterations as u32,
                tolerance: plan.tolerance,
                seed: 0,
            };
            if is_last(&options, iteration as u32, moved) {
                return context.result_of(&Found { iterations: iteration, moved });
            }
        }
        round(iteration);
        spread(context, 0..plan.points, plan.each, |points| {
            add_part(iteration, points.start, points.end)
        })?;
        next_round(context, iteration + 1, iterate(iteration + 1))
    }

    /// Adds up points `first..last` after `iteration` iterations, or spawns tasks that do.
    pub fn add_part(context, iteration: u64, first: u64, last: u64) {
        let plan = plan(context)?;
        if last.saturating_sub(first) > plan.each {
            return spread(context, first..last, plan.each, |points| {
                add_part(iteration, points.start, points.end)
            });
        }
        let (part, parts) = (first / plan.each, plan.points.div_ceil(plan.each));
        unit(context, iteration * parts + part, || {
            let sums = add(context, &plan, iteration, (first as usize, last as usize))?;
            let all = context.array::<u64>(SUMS)?;
            let words = to_words(&sums);
            if all.len() / words.len() <= part as usize {
                return Err(damaged("there are fewer sums than parts"));
            }
            all.write(part as usize * words.len(), &words);
            Ok(())
        })
    }
}

/// Moves the centres to the means of the sums of the previous iteration's tasks. Returns the
/// largest distance that a centre moved.
fn move_centres(context: &Context<'_>, plan: &Plan, iteration: u64) -> Result<f64, TaskError> {
    let (clusters, dimensions) = (plan.clusters as usize, plan.dimensions as usize);
    let mut centres = centres(context, plan, iteration - 1)?;
    let (all, words) = (
        context.array::<u64>(SUMS)?,
        words_of_sums(clusters, dimensions),
    );
    let mut sums = Sums::new(clusters, dimensions);
    let mut part = vec![0; words];
    for number in 0..all.len() / words {
        all.read(number * words, &mut part);
        sums.merge(&from_words(&part, clusters));
    }
    let moved = sums.means(Grid::of(plan.largest), &mut centres);
    let next = context.array::<f64>(CENTRES[iteration as usize % 2])?;
    let counts = context.array::<u64>(COUNTS)?;
    if next.len() != centres.len() || counts.len() != clusters {
        return Err(damaged("there are fewer centres than groups"));
    }
    next.write(0, &centres);
    counts.write(0, sums.counts());
    Ok(moved)
}

/// Returns the centres after `iteration` iterations.
fn centres(context: &Context<'_>, plan: &Plan, iteration: u64) -> Result<Vec<f64>, TaskError> {
    let centres = context
        .array::<f64>(CENTRES[iteration as usize % 2])?
        .to_vec();
    match centres.len() as u64 == plan.clusters * plan.dimensions {
        true => Ok(centres),
        false => Err(damaged("there are fewer centres than groups")),
    }
}

/// Adds up points.
fn add(
    context: &Context<'_>,
    plan: &Plan,
    iteration: u64,
    (first, last): (usize, usize),
) -> Result<Sums, TaskError> {
    let (clusters, dimensions) = (plan.clusters as usize, plan.dimensions as usize);
    let centres = centres(context, plan, iteration)?;
    let points = context.array::<f64>(POINTS)?;
    // SAFETY: the points were put into the pod before the first job was submitted, no task writes
    // to them, and their name exists as long as the pool.
    let points = unsafe { points.as_slice() };
    let points = points.get(first * dimensions..last * dimensions);
    let points = points.ok_or_else(|| damaged("the array of points is too short"))?;
    let mut sums = Sums::new(clusters, dimensions);
    let (packed, grid) = (Centres::new(&centres, dimensions), Grid::of(plan.largest));
    kernel::add(points, &packed, grid, &mut sums);
    Ok(sums)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_words_and_back() {
        let sums = [0, 1, -1, i128::MAX, i128::MIN, -(1 << 70) + 5].to_vec();
        let sums = Sums::from_parts(sums, vec![3, 0, u64::MAX]);
        let words = to_words(&sums);
        assert_eq!(words.len(), words_of_sums(3, 2));
        assert_eq!(from_words(&words, 3), sums);
    }
}
