//! `modc-fig3`: PageRank's time by the size of its tasks (MODC, section 5.2), and against a plain
//! program.
//!
//! A run with the paper's best size, 15,000 rows, precedes and follows each run with another size.
//! Every size is compared with the best: the size with the smallest ratio to these runs. Noise
//! affects that choice too, so the best is slightly better than any size really is. A size is
//! judged only where the graph has enough rows for it: where dealing out whole tasks, if they were
//! all equal, would cost at most half of the allowed excess.
//!
//! *Alone*: one worker against the plain program, and two workers against one. The limit of that is
//! the plain program run twice at once, by two threads that share only the graph and the machine.

use super::{PAPERS_ROWS, Subject};
use crate::cost::{CPU, Cost, Costs, WALL, as_many_as_cores, emulated, faster, workers_here};
use crate::paired::{Comparison, SAME};
use crate::row::{Goal, Row};
use crate::scaling::{LIMIT, Runs, Scaling};
use crate::statistics::{Estimate, median, median_estimate};
use crate::{Run, Study, StudyError, machine};

pub const STUDY: Study = Study {
    name: "modc-fig3",
    about: "PageRank by the size of its tasks (MODC Figure 3), and beside a plain program",
    body: study,
};

/// The number of the paper's iterations.
const ITERATIONS: u32 = 10;
/// The number of the paper's workers.
const PAPERS_WORKERS: u32 = 8;
/// The sizes of tasks in rows. Those above 100,000 are powers of two, as the graph's rows are.
const SIZES: [u32; 11] = [
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    1 << 18,
    1 << 19,
    1 << 20,
    1 << 21,
    1 << 22,
    1 << 23,
];

/// Returns the paper's bound on the time with tasks of `rows` rows, relative to the best time.
fn within(rows: u32) -> Option<f64> {
    match rows {
        5_000..=100_000 => Some(1.05),
        100_001.. => Some(1.17),
        _ => None,
    }
}

/// Returns the time to deal out equal tasks of `rows` rows, relative to an ideal division.
fn dealing(vertices: u32, rows: u32, workers: u32) -> f64 {
    let turns = vertices.div_ceil(rows).div_ceil(workers);
    f64::from(turns) * f64::from(rows) * f64::from(workers) / f64::from(vertices)
}

fn study(run: &mut Run<'_>) -> Result<(), StudyError> {
    let subject = Subject::of(run, run.effort().of(2, ITERATIONS, ITERATIONS))?;
    let cores = as_many_as_cores();
    let (sizes, usual): (&[u32], u32) = match run.effort() {
        crate::Effort::Tiny => (&[300, 600], 150),
        _ => (&SIZES, PAPERS_ROWS),
    };
    let rounds = run.effort().of(1, 3, 6);
    by_size(run, &subject, cores, (sizes, usual), rounds)?;
    if cores != PAPERS_WORKERS {
        let some = sizes
            .iter()
            .filter(|rows| [300, 5_000, 100_000].contains(rows));
        let some: Vec<u32> = some.copied().collect();
        let rounds = run.effort().of(1, 1, 3);
        by_size(run, &subject, PAPERS_WORKERS, (&some, usual), rounds)?;
    }
    alone(run, &subject, usual)
}

/// The costs of a size, each between runs with the usual size.
struct Sized {
    rows: u32,
    costs: Costs,
}

impl Sized {
    fn to_the_usual(&self) -> Estimate {
        self.costs.paired(WALL.1).ratio()
    }
}

fn by_size(
    run: &mut Run<'_>,
    subject: &Subject,
    workers: u32,
    (sizes, usual): (&[u32], u32),
    rounds: usize,
) -> Result<(), StudyError> {
    let vertices = subject.graph.vertices();
    let workers_are = workers_here(workers);
    let launcher = run.launcher().clone();
    let rank = |rows| {
        let outcome = subject.in_pod(&launcher, (workers, 0), rows, None)?;
        Ok::<Cost, StudyError>(Cost::from(&outcome))
    };
    // Larger tasks would leave some worker without any.
    let sizes = sizes.iter().filter(|rows| **rows <= vertices / workers);
    let mut sized: Vec<Sized> = sizes
        .map(|rows| Sized {
            rows: *rows,
            costs: Costs::default(),
        })
        .collect();
    if sized.is_empty() {
        return Ok(());
    }
    let mut usuals = vec![rank(usual)?];
    for round in 1..=rounds {
        for size in &mut sized {
            run.go_on()?;
            let rows = size.rows;
            run.begin(&format!(
                "{workers_are}, tasks of {rows} rows: round {round} of {rounds}"
            ));
            let before = usuals[usuals.len() - 1];
            let ours = rank(rows)?;
            let after = rank(usual)?;
            size.costs.push(before, ours, after);
            usuals.push(after);
        }
    }
    let ratios: Vec<(u32, Estimate)> = sized
        .iter()
        .map(|size| (size.rows, size.to_the_usual()))
        .collect();
    let one = Estimate::exactly(1.0);
    let (best_rows, best_ratio) = ratios.iter().fold((usual, one), |best, next| {
        if next.1.value < best.1.value {
            *next
        } else {
            best
        }
    });
    let best = best_ratio.value;
    let usual_wall = median(&usuals.iter().map(|cost| cost.wall).collect::<Vec<_>>());
    let peer = format!("tasks of {best_rows} rows, the best of all");
    let to_the_best = |ratio: Estimate| Estimate {
        value: ratio.value / best,
        low: ratio.low / best,
        high: ratio.high / best,
    };
    let (metric, of) = CPU;
    for (size, (rows, ratio)) in sized.iter().zip(&ratios) {
        let case = format!("{workers_are}, tasks of {rows} rows");
        let said = within(*rows);
        let mut row = emulated(Row::new(&case, WALL.0, "s"))
            .ours(median(&size.costs.paired(WALL.1).ours))
            .peer(&peer, usual_wall * best)
            .ratio(to_the_best(*ratio));
        row.paper = said;
        let enough = |limit: f64| dealing(vertices, *rows, workers) <= 1.0 + (limit - 1.0) / 2.0;
        if let Some(limit) = said.filter(|limit| enough(*limit))
            && workers as usize <= machine::cores()
        {
            row = row.goal(Goal::ratio_at_most(limit));
        }
        let spent = size.costs.paired(of);
        let beside = emulated(Row::new(&case, metric, "s"))
            .ours(median(&spent.ours))
            .peer(format!("tasks of {usual} rows"), spent.peer())
            .ratio(spent.ratio());
        run.answer([row, beside]);
    }
    let same: Vec<f64> = usuals
        .windows(2)
        .map(|two| two[1].wall / two[0].wall)
        .collect();
    let case = format!("{workers_are}, tasks of {usual} rows, the paper's best");
    let mut row = emulated(Row::new(&case, WALL.0, "s"))
        .ours(usual_wall)
        .peer(&peer, usual_wall * best)
        .ratio(faster(1.0, best_ratio))
        .paper(1.0);
    if workers as usize <= machine::cores() && dealing(vertices, usual, workers) <= 1.025 {
        row = row.goal(Goal::ratio_at_most(1.05));
    }
    run.answer([
        row,
        emulated(Row::new(&case, SAME, "s"))
            .peer("the same again", usual_wall)
            .ratio(median_estimate(&same)),
    ]);
    Ok(())
}

fn alone(run: &mut Run<'_>, subject: &Subject, rows: u32) -> Result<(), StudyError> {
    let rounds = run.effort().of(1, 3, 9);
    let launcher = run.launcher().clone();
    let workers = |workers| {
        let outcome = subject.in_pod(&launcher, (workers, 0), rows, None)?;
        Ok::<Cost, StudyError>(Cost::from(&outcome))
    };
    let tasks = format!("tasks of {rows} rows");
    let runs = Runs {
        workers: &workers,
        plain: &|| Ok(subject.plain()),
    };
    let scaling = Scaling::measure(run, (&tasks, rounds), &runs)?;
    let one = format!("1 worker, {tasks}");
    for ((metric, of), goal) in [(WALL, Some(Goal::ratio_at_most(1.1))), (CPU, None)] {
        let comparison = Comparison {
            case: &one,
            metric,
            unit: "s",
            peer: "the plain program, one thread",
            paper: None,
            goal,
        };
        let rows = comparison.rows(&scaling.one.paired(of));
        run.answer(rows.map(emulated));
    }
    if let Some(two) = scaling.two {
        run.answer([
            two.row(&format!("2 workers, {tasks}"), "speedup"),
            two.limit(
                &format!("the limit of that: {LIMIT}"),
                "times as much work in the same time",
            ),
        ]);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_judged_where_there_are_rows_enough() {
        // Two tasks for two workers; three take two turns.
        assert_eq!(dealing(1 << 22, 1 << 21, 2), 1.0);
        assert!(dealing(1 << 22, 2_000_000, 2) > 1.9);
        assert!(dealing(1 << 22, 100_000, 2) < 1.01 && dealing(1 << 20, 100_000, 2) > 1.1);
        assert_eq!(
            (within(15_000), within(1 << 20), within(300)),
            (Some(1.05), Some(1.17), None)
        );
    }
}
