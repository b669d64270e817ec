//! `recxl-fig16`: the effect of narrower links on write-back and proactive (the paper's Figure 16).
//! All times are relative to write-back at the paper's bandwidth. The paper gives no numbers in its
//! text: YCSB suffers in both, canneal in proactive only, streamcluster in neither, and on the mean
//! proactive suffers and write-back does not.

use super::grid::{Grid, Line, Variant, geometric_mean};
use super::lengths::Lengths;
use super::{MEAN, row, with};
use crate::row::{How, Row};
use crate::{Run, Study, StudyError};
use outlive_machine::description::{Protocol, Rate};

pub const STUDY: Study = Study {
    name: "recxl-fig16",
    about: "write-back and proactive with links of 160 to 20 GB/s, simulated (ReCXL Figure 16)",
    body: study,
};

const GIGABYTES: [u64; 4] = [160, 80, 40, 20];
const PROTOCOLS: [Protocol; 2] = [Protocol::WriteBack, Protocol::Proactive];
const UNIT: &str = "times write-back at 160 GB/s";

fn study(run: &mut Run<'_>) -> Result<(), StudyError> {
    let lengths = Lengths::of(run);
    let mut variants = Vec::new();
    for protocol in PROTOCOLS {
        for gigabytes in GIGABYTES {
            let mut description = with(&lengths.description, protocol);
            let rate = Rate::from_bytes_per_second(gigabytes * 1_000_000_000);
            description.cxl.link_bandwidth = rate.expect("not zero");
            let name = format!("{}, {gigabytes} GB/s", protocol.name());
            variants.push(Variant::new(name, description));
        }
    }
    let names: Vec<String> = variants
        .iter()
        .map(|variant| variant.name.clone())
        .collect();
    let grid = Grid::new(&lengths, variants);
    let times = |line: &Line, place: usize| line.cells[place].times(&line.cells[0]);
    let lines = grid.measure(run, |line| {
        let named = names.iter().enumerate();
        named
            .map(|(place, name)| row(line.workload, name, UNIT, &times(line, place)))
            .collect()
    })?;
    let means = names.iter().enumerate().map(|(place, name)| {
        let mean = geometric_mean(&lines, |line| times(line, place));
        Row::new(MEAN, name, UNIT)
            .ours_within(mean)
            .how(How::Simulated)
    });
    run.answer(means);
    Ok(())
}
