//! `recxl-fig15`: how many lines one node owns 12.5 ms into a run under proactive (the paper's Figure 15). If the node died then,
//! the recovery would have to search the logs for each of them. No node dies here: the count is of the moment before.
//!
//! The directories know which lines the node owns, but not which of these it has written; that is looked up in the simulated
//! caches. A line that it has not written is Exclusive, or was dropped: a node does not tell the directory when it drops such a line.

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

/// The node that dies in the paper, and whose lines are counted here.
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
        let metric = format!(
            "lines that a node owns at {at}, over the workloads that last so long (the paper: fewer than)"
        );
        let row = row("arithmetic mean", metric, "lines", &[mean]);
        run.answer([paper::OWNED.beside(STUDY.name, row)]);
    }
    // What is in an L1 or L2 is in the L3 as well, so the L3 has all lines that a node has.
    let most = description.l3.size.0 / 64;
    let metric =
        "lines that fit into a node's caches, each counted once (the paper adds up L1, L2 and L3)";
    let room = Row::new("the machine", metric, "lines").ours(most as f64);
    run.answer([Row {
        paper: Some(163_000.0),
        ..room.how(How::Simulated)
    }]);
    Ok(())
}

/// A count for each seed; `None` if the program had ended before the time to look.
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
        let case = format!("{name} (not measured: it ended already at {end})");
        let row = Row::new(case, format!("lines that a node owns at {at}"), "lines");
        return vec![Row { how: None, ..row }];
    };
    let owned = row(
        name,
        format!("lines that a node owns at {at}"),
        "lines",
        &recorded,
    );
    let owned = match name {
        "ycsb" => paper::YCSB_OWNED.beside(STUDY.name, owned),
        _ => owned,
    };
    let not_written: Vec<f64> = recorded
        .iter()
        .zip(&dirty)
        .map(|(all, dirty)| all - dirty)
        .collect();
    vec![
        owned,
        row(
            name,
            "of them dirty: written, and not yet in memory",
            "lines",
            &dirty,
        ),
        row(
            name,
            "of them not written: exclusive, or dropped since",
            "lines",
            &not_written,
        ),
    ]
}
