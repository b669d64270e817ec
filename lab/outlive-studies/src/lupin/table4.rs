//! `lupin-table4`: the cost of kills of hosts to the six programs (LUPIN, Table 4).
//!
//! Of 16 hosts of one worker, none, one or eight are killed right before they commit a unit of
//! work, which loses the most, and restarted. A run without kills precedes and follows each run
//! with kills. There are more processes than cores. So the goals are on the processor time,
//! including that of dead processes, and on the re-executed units. The wall time is listed with the
//! paper's, whose hosts have cores of their own.

use super::{Crew, PROGRAMS, Sizes, Subject, TINY, paper};
use crate::cost::{CPU, Cost, Costs, WALL, emulated};
use crate::paired::{Paired, SAME};
use crate::row::{Goal, Row};
use crate::statistics::{Estimate, longest, median, median_estimate};
use crate::{Run, Study, StudyError};
use outlive_run::driver::Outcome;

pub const STUDY: Study = Study {
    name: "lupin-table4",
    about: "six programs on 16 hosts of which one and eight are killed (LUPIN Table 4)",
    body: study,
};

const HOSTS: u32 = 16;
const KILLS: [u32; 2] = [1, 8];
/// The goal for the processor time of a run with kills relative to one without.
const ALLOWED: f64 = 1.05;
const PEER: &str = "the same run without kills";

/// A kill costs the same in a short run, so this may miss a goal that a full study reaches.
const QUICK: Sizes = Sizes {
    text: 150,
    points: 2_500_000,
    side: 2_400,
    rows: 48_000,
    options: 8_000_000,
    files: 60,
};
/// Ten seconds of processor time or more, as far as the size of a picture permits; the paper's runs
/// take 3 (histogram), 12 (dedup), 20 (wordcount) to 166 (matmul).
const FULL: Sizes = Sizes {
    text: 800,
    points: 12_000_000,
    side: 5_600,
    rows: 170_000,
    options: 48_000_000,
    files: 320,
};

/// A program's runs with kills, each between two without.
struct Killed {
    kills: u32,
    costs: Costs,
    /// Re-executed units of each run.
    redone: Vec<f64>,
    threads: Vec<f64>,
}

/// The results of a program.
struct Measured {
    name: &'static str,
    size: String,
    units: u64,
    /// The runs with kills, in the order of [`KILLS`].
    killed: Vec<Killed>,
}

fn study(run: &mut Run<'_>) -> Result<(), StudyError> {
    let sizes = run.effort().of(TINY, QUICK, FULL);
    let mut all = Vec::new();
    for (name, make) in PROGRAMS {
        run.go_on()?;
        run.begin(&format!(
            "{name}: an input is created, and the plain program runs"
        ));
        let subject = make(&sizes)?;
        all.push(measure(run, name, &*subject)?);
    }
    answer(run, &all);
    Ok(())
}

fn measure(
    run: &Run<'_>,
    name: &'static str,
    subject: &dyn Subject,
) -> Result<Measured, StudyError> {
    let rounds = run.effort().of(1, 1, 4);
    let hosts = run.effort().of(3, HOSTS, HOSTS);
    let kills = KILLS.iter().filter(|kills| **kills < hosts);
    let mut killed: Vec<Killed> = kills
        .map(|kills| Killed {
            kills: *kills,
            costs: Costs::default(),
            redone: Vec::new(),
            threads: Vec::new(),
        })
        .collect();
    let go = |kills| {
        run.go_on()?;
        let crew = Crew {
            kills,
            ..Crew::of(hosts, 1)
        };
        subject.in_pod(run.launcher(), crew)
    };
    run.begin(&format!("{name}, {hosts} hosts"));
    let mut last = go(0)?;
    let units = last.units;
    for round in 1..=rounds {
        for killed in &mut killed {
            let kills = killed.kills;
            run.begin(&format!(
                "{name}, {kills} of {hosts} hosts killed: round {round} of {rounds}"
            ));
            let outcome = go(kills)?;
            let next = go(0)?;
            let [before, after] = [&last, &next].map(Cost::from);
            killed.costs.push(before, Cost::from(&outcome), after);
            killed.redone.push(outcome.units_redone as f64);
            killed.threads.push(threads_lost(&outcome) as f64);
            last = next;
        }
    }
    Ok(Measured {
        name,
        size: subject.size(),
        units,
        killed,
    })
}

fn threads_lost(outcome: &Outcome<()>) -> usize {
    let failures = outcome.failures.iter();
    failures.map(|failure| failure.threads_lost).sum()
}

/// Returns by how many percent ours is greater.
fn percent(ratio: Estimate) -> Estimate {
    let percent = |ratio: f64| (ratio - 1.0) * 100.0;
    Estimate {
        value: percent(ratio.value),
        low: percent(ratio.low),
        high: percent(ratio.high),
    }
}

fn answer(run: &mut Run<'_>, all: &[Measured]) {
    let hosts = run.effort().of(3, HOSTS, HOSTS);
    let units = format!("the inputs, on {hosts} hosts of 1 worker");
    run.answer(all.iter().map(|it| {
        emulated(Row::new(
            &units,
            format!("{}, {}", it.name, it.size),
            "units",
        ))
        .ours(it.units as f64)
    }));
    let cases = all.first().map_or(0, |it| it.killed.len());
    for at in 0..cases {
        let killed = || all.iter().map(|it| (it.name, &it.killed[at]));
        let kills = all[0].killed[at].kills;
        let case = |what: &str| format!("{kills} of {hosts} hosts killed: {what}");
        let name = case("processor time of the work, including dead workers");
        let goal = Goal::ratio_at_most(ALLOWED);
        let rows: Vec<Row> = killed()
            .map(|(program, it)| compare(&name, program, &it.costs.paired(CPU.1)).goal(goal))
            .collect();
        run.answer(rows);
        run.answer([same(&name, killed().map(|(_, it)| it.costs.paired(CPU.1)))]);
        let name = case("processor time of a kill");
        run.answer(killed().map(|(program, it)| {
            emulated(Row::new(&name, program, "ms")).ours_within(cost(&it.costs, kills))
        }));
        let name = case("units re-executed, the maximum of all runs");
        run.answer(killed().map(|(program, it)| {
            let threads = it.threads.iter().copied().fold(f64::INFINITY, f64::min);
            emulated(Row::new(&name, program, "units"))
                .ours_within(Estimate::exactly(longest(&it.redone)))
                .peer("threads killed", threads)
                .goal(Goal::ours_at_most(threads))
        }));
        let name = case("wall time of the work");
        let rows: Vec<Row> = killed()
            .map(|(program, it)| compare(&name, program, &it.costs.paired(WALL.1)))
            .collect();
        run.answer(rows);
        run.answer([same(&name, killed().map(|(_, it)| it.costs.paired(WALL.1)))]);
        let name = case("slowdown in wall time (the paper: 16 machines)");
        run.answer(
            killed()
                .zip(&paper::TABLE_4)
                .map(|((program, it), papers)| {
                    let slower = percent(it.costs.paired(WALL.1).ratio());
                    let row = emulated(Row::new(&name, program, "%")).ours_within(slower);
                    Row {
                        paper: papers.with(kills),
                        ..row
                    }
                }),
        );
    }
    run.answer(paper::without_crashes());
}

fn compare(case: &str, program: &str, paired: &Paired) -> Row {
    emulated(Row::new(case, program, "s"))
        .ours(median(&paired.ours))
        .peer(PEER, paired.peer())
        .ratio(paired.ratio())
}

/// Returns the row that compares runs without kills with each other.
fn same(case: &str, all: impl Iterator<Item = Paired>) -> Row {
    let ratios: Vec<f64> = all.flat_map(|paired| paired.same_ratios()).collect();
    Row::new(case, SAME, "s").ratio(median_estimate(&ratios))
}

/// Returns the processor time in milliseconds that one kill costs.
fn cost(costs: &Costs, kills: u32) -> Estimate {
    let more = costs.paired(CPU.1).more();
    let costs: Vec<f64> = more
        .iter()
        .map(|more| more * 1e3 / f64::from(kills))
        .collect();
    median_estimate(&costs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kill_costs_what_a_run_takes_more() {
        let mut costs = Costs::default();
        let cost_of = |cpu| Cost { wall: 1.0, cpu };
        costs.push(cost_of(2.0), cost_of(2.2), cost_of(2.4));
        costs.push(cost_of(2.4), cost_of(2.24), cost_of(2.0));
        let Estimate { value, low, high } = cost(&costs, 8);
        assert!(low <= value && value <= high);
        assert!((value - 2.5).abs() < 1e-9, "{value}");
        assert!((percent(costs.paired(CPU.1).ratio()).value - 10.0 / 11.0).abs() < 1e-9);
    }
}
