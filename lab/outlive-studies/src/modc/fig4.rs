//! `modc-fig4`: PageRank when a worker is killed in each of its iterations (MODC, section 5.3).
//!
//! A run without a failure precedes and follows each run with one: in iteration 1, 2, and so on,
//! repeatedly. The worker dies right before the end of a task, all of which is lost. A hot spare
//! takes its place (the paper's non-shrinking recovery), so that there are as many workers as
//! before. The spare also stands by in the runs without a failure. With more workers than cores
//! wall time says little. So the goal is on the processor time, including that of the dead worker:
//! that of a run without failures plus one task, the lost one, estimated from its edges and rows.
//!
//! With as many workers as cores, the peers are an MPI program, run in the same rounds
//! ([`mpi`](super::mpi)), and an engine in wide use ([`ray`](super::ray)).

use super::mpi::Mpi;
use super::ray::Ray;
use super::{PAPERS_ROWS, Subject};
use crate::cost::{CPU, Cost, Costs, WALL, as_many_as_cores, emulated, workers_here};
use crate::paired::{Comparison, Paired};
use crate::row::{Goal, Row};
use crate::statistics::{Estimate, longest, median_estimate};
use crate::{Run, Study, StudyError};
use outlive_programs::pagerank::Ranks;
use outlive_run::driver::Outcome;

pub const STUDY: Study = Study {
    name: "modc-fig4",
    about: "PageRank with a failure in each iteration (MODC Figure 4), beside MPI with checkpoints and Ray",
    body: study,
};

const PAPERS_WORKERS: u32 = 14;
const PEER: &str = "the same run without a failure";

fn study(run: &mut Run<'_>) -> Result<(), StudyError> {
    let iterations = run.effort().of(6, 10, 10);
    let rounds = run.effort().of(1, 1, 4);
    let subject = Subject::of(run, iterations)?;
    let rows = subject.scaled(PAPERS_ROWS);
    let parts = subject.graph.vertices().div_ceil(rows);
    run.answer([
        Row::paper_alone(
            "the paper: 64M rows, 14 workers on 288 cores, a failure in any iteration",
            "wall time",
            "s",
            23.3,
        ),
        Row::new(
            format!("tasks of {rows} rows (the paper: {PAPERS_ROWS})"),
            "tasks in an iteration",
            "tasks",
        )
        .ours(f64::from(parts)),
    ]);
    let cores = as_many_as_cores();
    // A missing requirement of these is found now or not at all.
    let (mut mpi, ray) = (Mpi::new(&subject, cores)?, Ray::new(&subject, cores)?);
    if cores != PAPERS_WORKERS {
        // A first look has no time for all of them.
        let iterations: Vec<u32> = match run.effort() {
            crate::Effort::Full => (1..=iterations).collect(),
            _ => vec![1, iterations / 2],
        };
        let steps = steps(
            run,
            &subject,
            (PAPERS_WORKERS, rows),
            (rounds, &iterations),
            |_| Ok(()),
        )?;
        answer(
            run,
            (&workers_here(PAPERS_WORKERS), subject.of.iterations),
            &steps,
        );
    }
    let iterations: Vec<u32> = (1..=iterations).collect();
    let beside = |iteration| mpi.go(&subject, iteration);
    let steps = steps(run, &subject, (cores, rows), (rounds, &iterations), beside)?;
    answer(run, (&workers_here(cores), subject.of.iterations), &steps);
    mpi.answer(run, &steps);
    ray.beside(run, &subject, rows)
}

/// A run in which a worker was killed, between two without a kill.
pub(super) struct Step {
    pub iteration: u32,
    pub before: Cost,
    pub failed: Cost,
    pub after: Cost,
    /// The part of an iteration's work that was lost.
    share: f64,
    redone: u64,
    /// Microseconds from the kill until it was reported, and until the spare began a task.
    told: Option<f64>,
    replaced: Option<f64>,
}

impl Step {
    fn costs<'s>(steps: impl Iterator<Item = &'s Self>) -> Costs {
        let mut costs = Costs::default();
        for step in steps {
            costs.push(step.before, step.failed, step.after);
        }
        costs
    }
}

/// Executes `rounds` rounds, each of a run with a failure in each of `iterations`, between two
/// without. `beside` is called after each of these runs.
fn steps(
    run: &Run<'_>,
    subject: &Subject,
    (workers, rows): (u32, u32),
    (rounds, iterations): (usize, &[u32]),
    mut beside: impl FnMut(u32) -> Result<(), StudyError>,
) -> Result<Vec<Step>, StudyError> {
    let rank = |kill_in| {
        run.go_on()?;
        subject.in_pod(run.launcher(), (workers, 1), rows, kill_in)
    };
    let mut before = Cost::from(&rank(None)?);
    let mut steps = Vec::new();
    for round in 1..=rounds {
        for iteration in iterations {
            run.begin(&format!(
                "{}, one killed in iteration {iteration}: round {round} of {rounds}",
                workers_here(workers)
            ));
            let failed = rank(Some(*iteration))?;
            let after = Cost::from(&rank(None)?);
            steps.push(step(*iteration, before, &failed, after, |unit| {
                subject.share(unit, rows)
            }));
            before = after;
            beside(*iteration)?;
        }
    }
    Ok(steps)
}

fn step(
    iteration: u32,
    before: Cost,
    failed: &Outcome<Ranks>,
    after: Cost,
    share: impl Fn(u64) -> f64,
) -> Step {
    let lost = failed.failures.iter().flat_map(|it| &it.units_redone);
    let failure = failed.failures.first();
    let since_the_kill = |at: Option<f64>| Some((at? - failure?.killed_at?) * 1e6);
    Step {
        iteration,
        before,
        failed: Cost::from(failed),
        after,
        share: lost.map(|unit| share(*unit)).sum(),
        redone: failed.units_redone,
        told: since_the_kill(failure.and_then(|it| it.detected_at)),
        replaced: since_the_kill(failure.and_then(|it| it.taken_over_at)),
    }
}

fn answer(run: &mut Run<'_>, (workers, last): (&str, u32), steps: &[Step]) {
    let mut iterations: Vec<u32> = steps.iter().map(|step| step.iteration).collect();
    iterations.sort_unstable();
    iterations.dedup();
    let compare = |case: &str, metric: &str, paper, goal, paired: &Paired| {
        let comparison = Comparison {
            case,
            metric,
            unit: "s",
            peer: PEER,
            paper,
            goal,
        };
        comparison.rows(paired).map(emulated)
    };
    let dead = |metric| format!("{metric}, including dead workers");
    for iteration in &iterations {
        let case = format!("{workers}, one killed in iteration {iteration} of {last}");
        let costs = Step::costs(steps.iter().filter(|step| step.iteration == *iteration));
        let [cpu, _] = compare(&case, &dead(CPU.0), None, None, &costs.paired(CPU.1));
        let [wall, _] = compare(&case, WALL.0, None, None, &costs.paired(WALL.1));
        run.answer([cpu, wall]);
    }
    let case = format!("{workers}, one killed in any iteration");
    let costs = Step::costs(steps.iter());
    let cpu = costs.paired(CPU.1);
    let tasks = |at: usize| {
        let free = f64::midpoint(cpu.before[at], cpu.after[at]);
        steps[at].share * free / f64::from(last)
    };
    let less = Paired {
        ours: cpu
            .ours
            .iter()
            .enumerate()
            .map(|(at, spent)| spent - tasks(at))
            .collect(),
        ..cpu.clone()
    };
    run.answer(compare(
        &case,
        &format!("{}, without that of the lost task", dead(CPU.0)),
        None,
        Some(Goal::ratio_at_most(1.01)),
        &less,
    ));
    let [all, _] = compare(&case, &dead(CPU.0), None, None, &cpu);
    // MODC §5.3: less than 1 % slower.
    let wall = compare(&case, WALL.0, Some(1.01), None, &costs.paired(WALL.1));
    let more: Vec<f64> = cpu.more().iter().map(|more| more * 1e3).collect();
    let most = longest(
        &steps
            .iter()
            .map(|step| step.redone as f64)
            .collect::<Vec<_>>(),
    );
    run.answer([all]);
    run.answer(wall);
    run.answer([
        emulated(Row::new(&case, "processor time of the failure", "ms"))
            .ours_within(median_estimate(&more)),
        emulated(Row::new(
            &case,
            "tasks re-executed, the maximum of all runs",
            "tasks",
        ))
        .ours_within(Estimate::exactly(most))
        .goal(Goal::ours_at_most(1.0)),
    ]);
    // If a worker dies at the very end, its spare has nothing to do.
    type Time = fn(&Step) -> Option<f64>;
    let times: [(&str, Time); 2] = [
        ("from the kill to its notification", |step| step.told),
        ("from the kill to the spare's first task", |step| {
            step.replaced
        }),
    ];
    for (metric, of) in times {
        let times: Vec<f64> = steps.iter().filter_map(of).collect();
        if !times.is_empty() {
            let row = emulated(Row::new(&case, metric, "us"));
            run.answer([row.ours_within(median_estimate(&times))]);
        }
    }
}
