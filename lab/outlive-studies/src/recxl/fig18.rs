//! `recxl-fig18`: the scaling of write-back and proactive with the number of compute nodes (the
//! paper's Figure 18). There are as many threads as cores; the work and the memory nodes are the
//! same.

use super::grid::{Grid, Line, Variant, geometric_mean};
use super::lengths::Lengths;
use super::paper::{self, Judge, Paper};
use super::{MEAN, row, with};
use crate::row::{How, Row};
use crate::{Effort, Run, Study, StudyError};
use outlive_machine::description::{Protocol, Synchronising};

pub const STUDY: Study = Study {
    name: "recxl-fig18",
    about: "write-back and proactive on 4 to 16 nodes, simulated (ReCXL Figure 18)",
    body: study,
};

/// The configurations that are scaled, and their numbers in the paper.
const SCALED: [(Protocol, Synchronising, Paper); 4] = [
    (
        Protocol::WriteBack,
        Synchronising::Replicated,
        paper::FOUR_NODES_WB,
    ),
    (
        Protocol::Proactive,
        Synchronising::Replicated,
        paper::FOUR_NODES_PROACTIVE,
    ),
    // The difference that remains when threads hand locks over at once.
    (
        Protocol::WriteBack,
        Synchronising::Events,
        paper::FOUR_NODES_WB,
    ),
    (
        Protocol::Proactive,
        Synchronising::Events,
        paper::FOUR_NODES_PROACTIVE,
    ),
];

fn study(run: &mut Run<'_>) -> Result<(), StudyError> {
    let lengths = Lengths::of(run);
    // The others are compared to the last one.
    let nodes: &[u32] = match run.effort() {
        Effort::Tiny => &[4, 6],
        Effort::Quick | Effort::Full => &[4, 8, 12, 16],
    };
    let metric = |protocol: Protocol, synchronisation: Synchronising, nodes: u32| {
        let so = match synchronisation {
            Synchronising::Replicated => "",
            Synchronising::LeftOut => ", without locks and barriers",
            Synchronising::Events => ", locks and barriers as events",
        };
        format!("{}, {nodes} nodes{so}", protocol.name())
    };
    let mut variants = Vec::new();
    for (protocol, synchronisation, _) in SCALED {
        for nodes in nodes {
            let mut description = with(&lengths.description, protocol);
            description.system.compute_nodes = *nodes;
            description.ours.core.synchronisation = synchronisation;
            let name = metric(protocol, synchronisation, *nodes);
            variants.push(Variant::new(name, description));
        }
    }
    let grid = Grid::new(&lengths, variants);
    let most = nodes[nodes.len() - 1];
    let unit = format!("times {most} nodes");
    let times = |line: &Line, scaled: usize, place: usize| {
        let these = &line.cells[scaled * nodes.len()..][..nodes.len()];
        these[place].times(&these[nodes.len() - 1])
    };
    let fewer = || nodes[..nodes.len() - 1].iter().enumerate();
    let lines = grid.measure(run, |line| {
        let mut rows = Vec::new();
        for (at, (protocol, synchronisation, _)) in SCALED.iter().enumerate() {
            rows.extend(fewer().map(|(place, nodes)| {
                let metric = metric(*protocol, *synchronisation, *nodes);
                row(line.workload, metric, &unit, &times(line, at, place))
            }));
        }
        rows
    })?;
    let judge = Judge::new(STUDY.name, lengths.length);
    let mut means = Vec::new();
    for (at, (protocol, synchronisation, paper)) in SCALED.iter().enumerate() {
        for (place, nodes) in fewer() {
            let mean = geometric_mean(&lines, |line| times(line, at, place));
            let row = Row::new(MEAN, metric(*protocol, *synchronisation, *nodes), &unit)
                .ours_within(mean)
                .how(How::Simulated);
            means.push(match (nodes, most) {
                (4, 16) => judge.beside(*paper, row),
                _ => row,
            });
        }
    }
    run.answer(means);
    Ok(())
}
