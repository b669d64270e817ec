//! `recxl-fig18`: how write-back and proactive scale with the number of compute nodes (the paper's Figure 18). There are as many
//! threads as cores, and always the same amount of work and the same memory nodes.

use super::grid::{Grid, Line, Variant, geometric_mean};
use super::lengths::Lengths;
use super::paper::{self, Paper};
use super::{MEAN, row, with};
use crate::row::{How, Row};
use crate::{Effort, Run, Study, StudyError};
use outlive_machine::description::Protocol;

pub const STUDY: Study = Study {
    name: "recxl-fig18",
    about: "write-back and proactive on 4 to 16 nodes, simulated (ReCXL Figure 18)",
    body: study,
};

const PROTOCOLS: [(Protocol, Paper); 2] = [
    (Protocol::WriteBack, paper::FOUR_NODES_WB),
    (Protocol::Proactive, paper::FOUR_NODES_PROACTIVE),
];

fn study(run: &mut Run<'_>) -> Result<(), StudyError> {
    let lengths = Lengths::of(run);
    // The last one is what the others are compared to.
    let nodes: &[u32] = match run.effort() {
        Effort::Tiny => &[4, 6],
        Effort::Quick | Effort::Full => &[4, 8, 12, 16],
    };
    let mut variants = Vec::new();
    for (protocol, _) in PROTOCOLS {
        for nodes in nodes {
            let mut description = with(&lengths.description, protocol);
            description.system.compute_nodes = *nodes;
            let name = format!("{}, {nodes} nodes", protocol.name());
            variants.push(Variant::new(name, description));
        }
    }
    let grid = Grid::new(&lengths, variants);
    let most = nodes[nodes.len() - 1];
    let unit = format!("times {most} nodes");
    let times = |line: &Line, protocol: usize, place: usize| {
        let these = &line.cells[protocol * nodes.len()..][..nodes.len()];
        these[place].times(&these[nodes.len() - 1])
    };
    let fewer = || nodes[..nodes.len() - 1].iter().enumerate();
    let metric = |protocol: Protocol, nodes: u32| format!("{}, {nodes} nodes", protocol.name());
    let lines = grid.measure(run, |line| {
        let mut rows = Vec::new();
        for (at, (protocol, _)) in PROTOCOLS.iter().enumerate() {
            rows.extend(fewer().map(|(place, nodes)| {
                let metric = metric(*protocol, *nodes);
                row(line.workload, metric, &unit, &times(line, at, place))
            }));
        }
        rows
    })?;
    let mut means = Vec::new();
    for (at, (protocol, paper)) in PROTOCOLS.iter().enumerate() {
        for (place, nodes) in fewer() {
            let mean = geometric_mean(&lines, |line| times(line, at, place));
            let row = Row::new(MEAN, metric(*protocol, *nodes), &unit)
                .ours_within(mean)
                .how(How::Simulated);
            means.push(match (nodes, most) {
                (4, 16) => paper.beside(STUDY.name, row),
                _ => row,
            });
        }
    }
    run.answer(means);
    Ok(())
}
