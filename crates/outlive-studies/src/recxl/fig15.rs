//! `recxl-fig15`: how many lines a node owns at 12.5 ms of a run under proactive (the paper's Figure 15): what a recovery would
//! have to look for in the logs if the node died then. It is counted without a death; it does not depend on what comes after.
//!
//! A directory does not tell whether an owned line was written; the machine does. What was not is Exclusive, or was dropped in
//! silence.

use super::grid::{Grid, Line, Variant};
use super::lengths::Lengths;
use super::{paper, row, with};
use crate::row::{How, Row};
use crate::statistics::median_estimate;
use crate::{Run, Study, StudyError};
use outlive_machine::cluster::OwnedLines;
use outlive_machine::description::Protocol;
use outlive_machine::engine::Time;

pub const STUDY: Study = Study {
    name: "recxl-fig15",
    about: "lines that a node owns when it might crash, under proactive, simulated (ReCXL Figure 15)",
    body: study,
};

/// The node that the paper lets die.
const NODE: usize = 0;

fn study(run: &mut Run<'_>) -> Result<(), StudyError> {
    let lengths = Lengths::lasting(run);
    let at = run.effort().of(
        Time::from_micros(12),
        Time::from_micros(125),
        Time::from_micros(12_500),
    );
    let protocol = Protocol::Proactive;
    let variant = Variant {
        looks: vec![at],
        until: Some(at),
        ..Variant::new(protocol.name(), with(&lengths.description, protocol))
    };
    let description = variant.description.clone();
    let grid = Grid::new(&lengths, vec![variant]);
    let lines = grid.measure(run, |line| of_workload(line, at))?;
    let owned: Vec<f64> = lines
        .iter()
        .filter_map(|line| counts(line, |owned| owned.recorded))
        .map(|counts| median_estimate(&counts).value)
        .collect();
    if !owned.is_empty() {
        let mean = owned.iter().sum::<f64>() / owned.len() as f64;
        let metric = format!("owned lines of a node, at {at} (the paper: below)");
        let row = row("arithmetic mean", metric, "lines", &[mean]);
        run.answer([paper::OWNED.beside(STUDY.name, row)]);
    }
    // L1 and L2 are within the L3, so this is what a node can have at most.
    let most = description.l3.size.0 / 64;
    let metric =
        "lines that a node's caches have room for (the paper counts those of L1 and L2 as well)";
    let room = Row::new("the machine", metric, "lines").ours(most as f64);
    run.answer([Row {
        paper: Some(163_000.0),
        ..room.how(How::Simulated)
    }]);
    Ok(())
}

/// Of each seed; `None` if the program was over by then.
fn counts(line: &Line, count: fn(&OwnedLines) -> u64) -> Option<Vec<f64>> {
    let outcomes = line.cells[0].outcomes.iter();
    let counts = outcomes.map(|outcome| {
        let look = outcome.looks.first()?;
        Some(count(&look.owned[NODE]) as f64)
    });
    counts.collect()
}

fn of_workload(line: &Line, at: Time) -> Vec<Row> {
    let name = line.workload;
    let (Some(recorded), Some(dirty)) = (
        counts(line, |owned| owned.recorded),
        counts(line, |owned| owned.dirty),
    ) else {
        let end = line.cells[0].outcomes[0].end;
        let case = format!("{name} (not measured: it ended at {end})");
        let row = Row::new(case, format!("owned lines, at {at}"), "lines");
        return vec![Row { how: None, ..row }];
    };
    let owned = row(name, format!("owned lines, at {at}"), "lines", &recorded);
    let owned = match name {
        "ycsb" => paper::YCSB_OWNED.beside(STUDY.name, owned),
        _ => owned,
    };
    let others: Vec<f64> = recorded
        .iter()
        .zip(&dirty)
        .map(|(all, dirty)| all - dirty)
        .collect();
    vec![
        owned,
        row(name, "of them dirty", "lines", &dirty),
        row(
            name,
            "of them exclusive, or dropped since",
            "lines",
            &others,
        ),
    ]
}
