//! `recxl-fig2`: the cost of writing every store through (the paper's Figure 2). The paper's number
//! is in its text on Figure 10, which has the same bars.

use super::grid::{Grid, Variant, geometric_mean};
use super::lengths::Lengths;
use super::paper::{self, Judge};
use super::{MEAN, TIMES_WB, row, with};
use crate::row::{How, Row};
use crate::{Run, Study, StudyError};
use outlive_machine::description::Protocol;

pub const STUDY: Study = Study {
    name: "recxl-fig2",
    about: "write-through beside write-back, simulated (ReCXL Figure 2)",
    body: study,
};

fn study(run: &mut Run<'_>) -> Result<(), StudyError> {
    let lengths = Lengths::of(run);
    let protocols = [Protocol::WriteBack, Protocol::WriteThrough];
    let variant =
        |protocol: Protocol| Variant::new(protocol.name(), with(&lengths.description, protocol));
    let grid = Grid::new(&lengths, protocols.map(variant).to_vec());
    let wt = Protocol::WriteThrough.name();
    let lines = grid.measure(run, |line| {
        let [back, through] = &line.cells[..] else {
            return Vec::new();
        };
        vec![row(line.workload, wt, TIMES_WB, &through.times(back))]
    })?;
    let mean = geometric_mean(&lines, |line| line.cells[1].times(&line.cells[0]));
    let row = Row::new(MEAN, wt, TIMES_WB)
        .ours_within(mean)
        .how(How::Simulated);
    let judge = Judge::new(STUDY.name, lengths.length);
    run.answer([judge.beside(paper::WT, row)]);
    Ok(())
}
