//! `recxl-fig12`: the gain of proactive from coalescing stores (the paper's Figure 12): its speedup
//! over a design that never coalesces, and replicates each store as soon as it has retired. The
//! paper gives no numbers in its text; streamcluster gains by coalescing, raytrace loses.

use super::grid::{Grid, Variant, geometric_mean};
use super::lengths::Lengths;
use super::{MEAN, row, with};
use crate::row::{How, Row};
use crate::{Run, Study, StudyError};
use outlive_machine::description::Protocol;

pub const STUDY: Study = Study {
    name: "recxl-fig12",
    about: "speedup of proactive by coalescing stores, simulated (ReCXL Figure 12)",
    body: study,
};

const METRIC: &str = "speedup by coalescing";
const UNIT: &str = "times as fast";

fn study(run: &mut Run<'_>) -> Result<(), StudyError> {
    let lengths = Lengths::of(run);
    let variant =
        |protocol: Protocol| Variant::new(protocol.name(), with(&lengths.description, protocol));
    let variants = [Protocol::Proactive, Protocol::Uncoalesced].map(variant);
    let grid = Grid::new(&lengths, variants.to_vec());
    let lines = grid.measure(run, |line| {
        let [coalescing, never] = &line.cells[..] else {
            return Vec::new();
        };
        vec![row(line.workload, METRIC, UNIT, &never.times(coalescing))]
    })?;
    let mean = geometric_mean(&lines, |line| line.cells[1].times(&line.cells[0]));
    let row = Row::new(MEAN, METRIC, UNIT)
        .ours_within(mean)
        .how(How::Simulated);
    run.answer([row]);
    Ok(())
}
