//! `recxl-tenfold`: whether inputs that were made shorter say the same as longer ones: the times of the configurations to
//! write-back's, with the studies' inputs and with such as run ten times as long.

use super::grid::{Grid, Line, Variant};
use super::lengths::Lengths;
use super::{TIMES_WB, with};
use crate::row::{How, Row};
use crate::statistics::{Estimate, median_estimate};
use crate::{Run, Study, StudyError};
use outlive_machine::description::Protocol;
use outlive_machine::program::Scale;

pub const STUDY: Study = Study {
    name: "recxl-tenfold",
    about: "the configurations' times with inputs ten times as long as the studies', simulated",
    body: study,
};

/// Of different kinds: one that only moves records, one that sweeps over grids, one that shares much and stores little.
const WORKLOADS: [&str; 3] = ["ycsb", "ocean-cp", "streamcluster"];

fn study(run: &mut Run<'_>) -> Result<(), StudyError> {
    let lengths = Lengths::of(run);
    let (short, long) = run.effort().of(
        (Scale::Test, Scale::Test),
        (Scale::Test, Scale::Study),
        (Scale::Study, Scale::Tenfold),
    );
    let variant =
        |protocol: &Protocol| Variant::new(protocol.name(), with(&lengths.description, *protocol));
    let grid = |scale| Grid {
        workloads: WORKLOADS.to_vec(),
        scale,
        variants: Protocol::ALL.iter().map(variant).collect(),
        seeds: 1,
    };
    let short = grid(short).measure(run, |_| Vec::new())?;
    grid(long).measure(run, |line| {
        let short = short.iter().find(|short| short.workload == line.workload);
        short.map_or(Vec::new(), |short| beside(line, short))
    })?;
    Ok(())
}

fn beside(long: &Line, short: &Line) -> Vec<Row> {
    let others = Protocol::ALL.iter().enumerate().skip(1);
    others
        .map(|(place, protocol)| {
            let times = |line: &Line| {
                let times = line.cells[place].times(&line.cells[0]);
                median_estimate(&times).value
            };
            let (long_times, short_times) = (times(long), times(short));
            Row::new(long.workload, protocol.name(), TIMES_WB)
                .ours(long_times)
                .peer("the studies' inputs", short_times)
                .ratio(Estimate::exactly(long_times / short_times))
                .how(How::Simulated)
        })
        .collect()
}
