//! `recxl-fig17`: the effect of more or fewer replicas on proactive (the paper's Figure 17).

use super::grid::{Grid, Line, Variant, geometric_mean};
use super::lengths::Lengths;
use super::paper::{self, Judge};
use super::{MEAN, row, with};
use crate::row::{How, Row};
use crate::{Run, Study, StudyError};
use outlive_machine::description::Protocol;

pub const STUDY: Study = Study {
    name: "recxl-fig17",
    about: "proactive with fewer and more replicas of a store, simulated (ReCXL Figure 17)",
    body: study,
};

/// The paper's number of replicas, to which all are compared.
const USUAL: u32 = 3;
const UNIT: &str = "times 3 replicas";

fn study(run: &mut Run<'_>) -> Result<(), StudyError> {
    let lengths = Lengths::of(run);
    // Each replica needs another node.
    let most = lengths.description.system.compute_nodes - 1;
    let factors: Vec<u32> = (1..=4).filter(|factor| *factor <= most).collect();
    let variant = |factor: &u32| {
        let mut description = with(&lengths.description, Protocol::Proactive);
        description.logging_unit.replication_factor = *factor;
        Variant::new(format!("N_r = {factor}"), description)
    };
    let grid = Grid::new(&lengths, factors.iter().map(variant).collect());
    let usual = USUAL as usize - 1;
    let times = |line: &Line, place: usize| line.cells[place].times(&line.cells[usual]);
    let others = || {
        factors
            .iter()
            .enumerate()
            .filter(|(_, factor)| **factor != USUAL)
    };
    let lines = grid.measure(run, |line| {
        others()
            .map(|(place, factor)| {
                row(
                    line.workload,
                    format!("N_r = {factor}"),
                    UNIT,
                    &times(line, place),
                )
            })
            .collect()
    })?;
    let judge = Judge::new(STUDY.name, lengths.length);
    let means: Vec<Row> = others()
        .map(|(place, factor)| {
            let mean = geometric_mean(&lines, |line| times(line, place));
            let row = Row::new(MEAN, format!("N_r = {factor}"), UNIT)
                .ours_within(mean)
                .how(How::Simulated);
            match factor {
                4 => judge.beside(paper::FOUR_REPLICAS, row),
                _ => row,
            }
        })
        .collect();
    run.answer(means);
    Ok(())
}
