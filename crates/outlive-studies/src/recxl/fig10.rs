//! `recxl-fig10`: execution times of the configurations (the paper's Figure 10), and the goals of this reproduction.

use super::grid::{Cell, Grid, Line, Variant, arithmetic_mean, geometric_mean};
use super::lengths::Lengths;
use super::paper::{self, Paper};
use super::{MEAN, TIMES_WB, row, with};
use crate::row::{Goal, How, On, Op, Row};
use crate::statistics::Estimate;
use crate::{Run, Study, StudyError};
use outlive_machine::description::{Protocol, SynchronisationWords};

pub const STUDY: Study = Study {
    name: "recxl-fig10",
    about: "execution times of write-back, write-through and ReCXL's configurations, simulated (ReCXL Figure 10)",
    body: study,
};

/// A machine that is measured.
#[derive(Clone, Copy, PartialEq)]
struct Configuration {
    protocol: Protocol,
    words: SynchronisationWords,
}

/// The protocol as it must be if nodes may fail.
const fn whole(protocol: Protocol) -> Configuration {
    Configuration {
        protocol,
        words: SynchronisationWords::Replicated,
    }
}

/// What the paper's simulator did of it: its traces have locks and barriers as events, without stores.
const fn left_out(protocol: Protocol) -> Configuration {
    Configuration {
        protocol,
        words: SynchronisationWords::LeftOut,
    }
}

/// Without locks and barriers: the two that the paper gives in numbers.
const LEFT_OUT: [Configuration; 2] = [left_out(Protocol::Baseline), left_out(Protocol::Proactive)];

impl Configuration {
    fn name(self) -> String {
        let name = self.protocol.name();
        match self.words {
            SynchronisationWords::Replicated => name.into(),
            SynchronisationWords::LeftOut => format!("{name}, without locks and barriers"),
        }
    }

    fn all() -> impl Iterator<Item = Self> {
        Protocol::ALL.iter().copied().map(whole).chain(LEFT_OUT)
    }

    /// But write-back, beside which they stand.
    fn others() -> impl Iterator<Item = Self> {
        Self::all().filter(|known| known.protocol != Protocol::WriteBack)
    }

    fn cell(self, line: &Line) -> &Cell {
        let place = Self::all().position(|known| known == self);
        &line.cells[place.expect("all configurations were run")]
    }
}

fn study(run: &mut Run<'_>) -> Result<(), StudyError> {
    let lengths = Lengths::of(run);
    let variant = |configuration: Configuration| {
        let mut description = with(&lengths.description, configuration.protocol);
        description.ours.replication.synchronisation = configuration.words;
        Variant::new(configuration.name(), description)
    };
    let grid = Grid::new(&lengths, Configuration::all().map(variant).collect());
    let lines = grid.measure(run, of_workload)?;
    run.answer(means(&lines));
    Ok(())
}

/// How many times as long as another it takes.
fn times(configuration: Configuration, base: Protocol) -> impl Fn(&Line) -> Vec<f64> {
    move |line| configuration.cell(line).times(whole(base).cell(line))
}

fn of_workload(line: &Line) -> Vec<Row> {
    let base = whole(Protocol::WriteBack);
    let micros = base
        .cell(line)
        .each(|outcome| outcome.end.as_seconds() * 1e6);
    let mut rows = vec![row(line.workload, base.name(), "us", &micros)];
    rows.extend(Configuration::others().map(|configuration| {
        let times = times(configuration, Protocol::WriteBack)(line);
        row(line.workload, configuration.name(), TIMES_WB, &times)
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
    let paper_has = |protocol: Protocol| -> Option<(Paper, Goal)> {
        match protocol {
            Protocol::WriteThrough => Some((paper::WT, goal(Op::AtLeast, 5.0))),
            Protocol::Baseline => Some((paper::BASELINE, goal(Op::AtLeast, 2.0))),
            Protocol::Proactive => Some((paper::PROACTIVE, goal(Op::AtMost, 1.3))),
            _ => None,
        }
    };
    let mut rows = Vec::new();
    for configuration in Configuration::others() {
        let ours = geometric_mean(lines, times(configuration, Protocol::WriteBack));
        let row = simulated(MEAN, configuration.name(), TIMES_WB, ours);
        rows.push(match paper_has(configuration.protocol) {
            // Goals are for what may fail.
            Some((paper, goal)) if configuration == whole(configuration.protocol) => {
                paper.beside(STUDY.name, row).goal(goal)
            }
            // That is what the paper's best is to be compared with.
            Some((paper, _)) if configuration.protocol == Protocol::Proactive => {
                paper.beside(STUDY.name, row)
            }
            _ => row,
        });
    }
    // The two replicate what and when they must; parallel is to be a little faster, and no more than that.
    let ours = geometric_mean(lines, times(whole(Protocol::Parallel), Protocol::Baseline));
    let unit = "times baseline";
    let row = simulated(MEAN, "recxl-parallel".into(), unit, ours);
    let row = paper::PARALLEL_TO_BASELINE.beside(STUDY.name, row);
    rows.push(row.goal(goal(Op::AtLeast, 0.95)));
    let row = simulated(MEAN, "recxl-parallel, not above".into(), unit, ours);
    rows.push(row.goal(goal(Op::AtMost, 1.0)));
    // Ours is there to do better than the paper's best.
    let ours = geometric_mean(lines, times(whole(Protocol::Adaptive), Protocol::Proactive));
    let row = simulated(MEAN, "recxl-adaptive".into(), "times proactive", ours);
    rows.push(row.goal(goal(Op::AtMost, 1.0)));
    // The paper does not say which mean its text has.
    for configuration in Configuration::others() {
        let ours = arithmetic_mean(lines, times(configuration, Protocol::WriteBack));
        let name = configuration.name();
        rows.push(simulated("arithmetic mean", name, TIMES_WB, ours));
    }
    rows
}
