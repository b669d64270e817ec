//! `recxl-fig11`: the stores that proactive replicates only when they are the oldest of their store
//! buffer (the paper's Figure 11). The paper gives no numbers in its text; it finds raytrace,
//! fluidanimate and streamcluster high.

use super::grid::{Grid, Line, Variant};
use super::lengths::Lengths;
use super::{row, with};
use crate::row::Row;
use crate::{Run, Study, StudyError};
use outlive_machine::description::Protocol;

pub const STUDY: Study = Study {
    name: "recxl-fig11",
    about: "REPLs that proactive sends when the store is at the head of the store buffer, simulated (ReCXL Figure 11)",
    body: study,
};

fn study(run: &mut Run<'_>) -> Result<(), StudyError> {
    let lengths = Lengths::of(run);
    let protocol = Protocol::Proactive;
    let variant = Variant::new(protocol.name(), with(&lengths.description, protocol));
    let grid = Grid::new(&lengths, vec![variant]);
    grid.measure(run, of_workload)?;
    Ok(())
}

fn of_workload(line: &Line) -> Vec<Row> {
    let cell = &line.cells[0];
    let measured: Vec<_> = cell
        .outcomes
        .iter()
        .map(|outcome| outcome.measures(&cell.description))
        .collect();
    let all = |number: &dyn Fn(usize) -> Option<f64>| {
        let numbers = (0..measured.len()).map(number);
        numbers.collect::<Option<Vec<f64>>>()
    };
    let percent = |share: Option<f64>| share.map(|share| share * 100.0);
    let oldest = all(&|seed| percent(measured[seed].replicated_oldest));
    let coalesced = all(&|seed| percent(measured[seed].coalesced));
    let waits = all(&|seed| percent(Some(measured[seed].replica_wait)));
    let full = all(&|seed| percent(Some(measured[seed].buffer_full)));
    [
        ("REPLs sent when the store was the oldest", oldest),
        ("shared stores that joined another", coalesced),
        (
            "time in which the oldest store waits for its replicas alone",
            waits,
        ),
        ("time in which the store buffer is full", full),
    ]
    .into_iter()
    .filter_map(|(metric, values)| Some(row(line.workload, metric, "%", &values?)))
    .collect()
}
