//! `recxl-fig10`: execution times of the configurations (the paper's Figure 10), and the goals of this reproduction.

use super::grid::{Cell, Grid, Line, Variant, arithmetic_mean, geometric_mean};
use super::lengths::Lengths;
use super::paper::{self, Paper};
use super::{MEAN, TIMES_WB, row, with};
use crate::row::{Goal, How, On, Op, Row};
use crate::statistics::Estimate;
use crate::{Run, Study, StudyError};
use outlive_machine::description::Protocol;

pub const STUDY: Study = Study {
    name: "recxl-fig10",
    about: "execution times of write-back, write-through and ReCXL's configurations, simulated (ReCXL Figure 10)",
    body: study,
};

fn study(run: &mut Run<'_>) -> Result<(), StudyError> {
    let lengths = Lengths::of(run);
    let variant =
        |protocol: &Protocol| Variant::new(protocol.name(), with(&lengths.description, *protocol));
    let grid = Grid {
        workloads: lengths.workloads.clone(),
        scale: lengths.scale,
        variants: Protocol::ALL.iter().map(variant).collect(),
        seeds: lengths.seeds,
    };
    let lines = grid.measure(run, of_workload)?;
    run.answer(means(&lines));
    Ok(())
}

/// A configuration of a workload.
fn cell(line: &Line, protocol: Protocol) -> &Cell {
    let place = Protocol::ALL.iter().position(|known| *known == protocol);
    &line.cells[place.expect("all configurations were run")]
}

/// How many times as long as another configuration it takes.
fn times(protocol: Protocol, base: Protocol) -> impl Fn(&Line) -> Vec<f64> {
    move |line| cell(line, protocol).times(cell(line, base))
}

fn others() -> impl Iterator<Item = Protocol> {
    let all = Protocol::ALL.iter().copied();
    all.filter(|protocol| *protocol != Protocol::WriteBack)
}

fn of_workload(line: &Line) -> Vec<Row> {
    let base = cell(line, Protocol::WriteBack);
    let micros = base.each(|outcome| outcome.end.as_seconds() * 1e6);
    let mut rows = vec![row(
        line.workload,
        Protocol::WriteBack.name(),
        "us",
        &micros,
    )];
    rows.extend(others().map(|protocol| {
        let times = cell(line, protocol).times(base);
        row(line.workload, protocol.name(), TIMES_WB, &times)
    }));
    rows
}

fn means(lines: &[Line]) -> Vec<Row> {
    let simulated = |case: &str, metric: String, unit: &str, ours: Estimate| {
        Row::new(case, metric, unit)
            .ours_within(ours)
            .how(How::Simulated)
    };
    let goal = |op, value| Goal {
        on: On::Ours,
        op,
        value,
    };
    let judged = |protocol: Protocol| -> Option<(Paper, Goal)> {
        match protocol {
            Protocol::WriteThrough => Some((paper::WT, goal(Op::AtLeast, 5.0))),
            Protocol::Baseline => Some((paper::BASELINE, goal(Op::AtLeast, 2.0))),
            Protocol::Proactive => Some((paper::PROACTIVE, goal(Op::AtMost, 1.3))),
            _ => None,
        }
    };
    let mut rows = Vec::new();
    for protocol in others() {
        let ours = geometric_mean(lines, times(protocol, Protocol::WriteBack));
        let row = simulated(MEAN, protocol.name().into(), TIMES_WB, ours);
        rows.push(match judged(protocol) {
            Some((paper, goal)) => paper.beside(STUDY.name, row).goal(goal),
            None => row,
        });
    }
    // The two replicate what and when they must; parallel is to be a little faster, and no more than that.
    let ours = geometric_mean(lines, times(Protocol::Parallel, Protocol::Baseline));
    let unit = "times baseline";
    let row = simulated(MEAN, "recxl-parallel".into(), unit, ours);
    let row = paper::PARALLEL_TO_BASELINE.beside(STUDY.name, row);
    rows.push(row.goal(goal(Op::AtLeast, 0.95)));
    let row = simulated(MEAN, "recxl-parallel, not above".into(), unit, ours);
    rows.push(row.goal(goal(Op::AtMost, 1.0)));
    // The paper does not say which mean its text has.
    for protocol in others() {
        let ours = arithmetic_mean(lines, times(protocol, Protocol::WriteBack));
        rows.push(simulated(
            "arithmetic mean",
            protocol.name().into(),
            TIMES_WB,
            ours,
        ));
    }
    rows
}
