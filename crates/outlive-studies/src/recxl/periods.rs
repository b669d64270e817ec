//! `recxl-fig13` and `recxl-fig14`: what happens in a period of dumps (the paper's Figures 13 and 14): how large logs get, and
//! what is sent for accesses, replication and dumps.
//!
//! The period is the paper's 2.5 ms however long the inputs are, so these run the paper's inputs, through two periods: the second one,
//! which begins with the dump of the first one's log, is what rates are of. A first look (`--quick`) is shorter than a period; it
//! has rates without dumps, and says what a log would get to at that rate.

use super::grid::{Cell, Grid, Line, Variant};
use super::lengths::Lengths;
use super::paper::{self, Paper};
use super::{row, with};
use crate::row::Row;
use crate::{Effort, Run, Study, StudyError};
use outlive_machine::description::{Description, Protocol};
use outlive_machine::engine::Time;
use outlive_machine::run::{Measures, Outcome};

pub const FIG13: Study = Study {
    name: "recxl-fig13",
    about: "how large a node's log gets between dumps under proactive, simulated (ReCXL Figure 13)",
    body: |run| study(run, log_sizes),
};

pub const FIG14: Study = Study {
    name: "recxl-fig14",
    about: "bandwidth that proactive takes of the network, simulated (ReCXL Figure 14)",
    body: |run| study(run, bandwidth),
};

/// What a first look lasts.
const GLIMPSE: Time = Time::from_micros(200);

fn study(run: &mut Run<'_>, rows: fn(&Line) -> Vec<Row>) -> Result<(), StudyError> {
    let lengths = Lengths::lasting(run);
    let protocol = Protocol::Proactive;
    let description = with(&lengths.description, protocol);
    let period = description.logging_unit.dump_period;
    let until = match run.effort() {
        Effort::Quick => GLIMPSE,
        Effort::Tiny | Effort::Full => period * 2,
    };
    let variant = Variant {
        looks: vec![until / 2],
        // The dump of the last period is no part of it.
        until: Some(until),
        ..Variant::new(protocol.name(), description)
    };
    let grid = Grid::new(&lengths, vec![variant]);
    grid.measure(run, rows)?;
    Ok(())
}

/// What a run was in its second half; in all of it, if it ended before.
fn steady(outcome: &Outcome, description: &Description) -> Measures {
    match outcome.looks.first() {
        Some(look) if look.at < outcome.end => {
            let (earlier, later) = (
                (&look.statistics, look.at),
                (&outcome.statistics, outcome.end),
            );
            Measures::between(earlier, later, description)
        }
        _ => outcome.measures(description),
    }
}

fn each(cell: &Cell, number: impl Fn(&Measures) -> f64) -> Vec<f64> {
    cell.each(|outcome| number(&steady(outcome, &cell.description)))
}

/// Whether all seeds have seen a period and the dump after it.
fn has_dumped(cell: &Cell) -> bool {
    let period = cell.description.logging_unit.dump_period;
    cell.outcomes.iter().all(|outcome| outcome.end > period)
}

fn log_sizes(line: &Line) -> Vec<Row> {
    let (name, cell) = (FIG13.name, &line.cells[0]);
    let period = cell.description.logging_unit.dump_period;
    let of_period = |measures: &Measures| measures.logging_rate * period.as_seconds() / 1e6;
    let metric = format!("what the busiest node logs in {period}, at the rate that was seen");
    let mut rows = vec![row(line.workload, metric, "MB", &each(cell, of_period))];
    if has_dumped(cell) {
        let largest = each(cell, |measures| measures.largest_log as f64 / 1e6);
        let row = row(
            line.workload,
            "the largest log (the paper: at most)",
            "MB",
            &largest,
        );
        rows.push(paper::LARGEST_LOG.beside(name, row));
    }
    rows.extend(factor(name, line));
    rows
}

/// How much smaller dumps were than what was in them, if there were any.
fn factor(study: &str, line: &Line) -> Option<Row> {
    let cell = &line.cells[0];
    let factors = cell.outcomes.iter();
    let factors = factors.map(|outcome| steady(outcome, &cell.description).dump_factor);
    let factors = factors.collect::<Option<Vec<f64>>>()?;
    let row = row(
        line.workload,
        "compression of dumps",
        "times smaller",
        &factors,
    );
    Some(paper::DUMP_FACTOR.beside(study, row))
}

fn bandwidth(line: &Line) -> Vec<Row> {
    let (name, cell) = (FIG14.name, &line.cells[0]);
    let of = |metric: &str, rate: fn(&Measures) -> f64| {
        let rates = each(cell, |measures| rate(measures) / 1e9);
        row(line.workload, metric, "GB/s", &rates)
    };
    let (paper, least) = match line.workload {
        "ycsb" => (paper::YCSB_RATE, ""),
        _ => (paper::RATE, " (the paper: at most)"),
    };
    // The figure has two parts: what accesses take, replication among it, and what dumps take.
    let metric = format!("accesses and replication{least}");
    let both = of(&metric, |measures| {
        measures.access_rate + measures.replication_rate
    });
    let mut rows = vec![
        of("accesses", |measures| measures.access_rate),
        of("replication", |measures| measures.replication_rate),
        Paper::beside(paper, name, both),
    ];
    if has_dumped(cell) {
        let dumps = of("dumps (the paper: at most)", |measures| measures.dump_rate);
        rows.push(paper::DUMP_RATE.beside(name, dumps));
    }
    rows
}
