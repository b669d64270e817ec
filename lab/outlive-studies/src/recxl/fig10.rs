//! `recxl-fig10`: execution times of the configurations (the paper's Figure 10), and the goals of
//! this reproduction.
//!
//! Some workloads end before the first dump of the logs, so their times include no dumps; a row
//! says how much was dumped.

use super::grid::{Cell, Grid, Line, Variant, arithmetic_mean, geometric_mean};
use super::lengths::Lengths;
use super::paper::{self, Judge, Paper};
use super::{MEAN, TIMES_WB, row, with};
use crate::row::{Goal, How, On, Op, Row};
use crate::statistics::{Estimate, median_estimate};
use crate::{Run, Study, StudyError};
use outlive_machine::description::{Protocol, Synchronising};
use outlive_machine::run::Placement;

pub const STUDY: Study = Study {
    name: "recxl-fig10",
    about: "execution times of write-back, write-through and ReCXL's configurations, simulated (ReCXL Figure 10)",
    body: study,
};

const DUMPED: &str = "the part of recxl-proactive's log that was dumped before the end";

/// A configuration that is measured.
#[derive(Clone, Copy, PartialEq)]
struct Configuration {
    protocol: Protocol,
    synchronisation: Synchronising,
    placement: Placement,
}

/// Returns the configuration that `protocol` must have if nodes may fail.
const fn whole(protocol: Protocol) -> Configuration {
    Configuration {
        protocol,
        synchronisation: Synchronising::Replicated,
        placement: Placement::Allocated,
    }
}

/// Configurations that the paper's simulator may have used: its traces have locks and barriers as
/// events, and the paper does not say which lines it took for shared. The protocols with numbers
/// in the paper run without replicas of locks and barriers; without locks and barriers in memory;
/// and also with only those lines in shared memory that several threads touch.
const FOR_COMPARISON: [Configuration; 10] = [
    left_out(Protocol::Baseline),
    left_out(Protocol::Proactive),
    events(Protocol::WriteBack),
    events(Protocol::WriteThrough),
    events(Protocol::Baseline),
    events(Protocol::Proactive),
    touched(Protocol::WriteBack),
    touched(Protocol::WriteThrough),
    touched(Protocol::Baseline),
    touched(Protocol::Proactive),
];

const fn left_out(protocol: Protocol) -> Configuration {
    Configuration {
        synchronisation: Synchronising::LeftOut,
        ..whole(protocol)
    }
}

const fn events(protocol: Protocol) -> Configuration {
    Configuration {
        synchronisation: Synchronising::Events,
        ..whole(protocol)
    }
}

/// Returns the configuration with locks and barriers as events.
const fn touched(protocol: Protocol) -> Configuration {
    Configuration {
        placement: Placement::Touched,
        ..events(protocol)
    }
}

impl Configuration {
    fn name(self) -> String {
        let name = self.protocol.name();
        match (self.synchronisation, self.placement) {
            (_, Placement::Touched) => {
                format!("{name}, events, and only lines of several threads shared")
            }
            (Synchronising::Replicated, _) => name.into(),
            (Synchronising::LeftOut, _) => format!("{name}, without locks and barriers"),
            (Synchronising::Events, _) => format!("{name}, locks and barriers as events"),
        }
    }

    /// Returns the write-back configuration that it is compared with.
    fn base(self) -> Self {
        match self.synchronisation {
            Synchronising::Events if self.protocol != Protocol::WriteBack => Self {
                protocol: Protocol::WriteBack,
                ..self
            },
            _ => whole(Protocol::WriteBack),
        }
    }

    fn unit(self) -> &'static str {
        match (self.base().synchronisation, self.base().placement) {
            (_, Placement::Touched) => "times write-back with both",
            (Synchronising::Events, _) => "times write-back with events",
            _ => TIMES_WB,
        }
    }

    /// Returns its time as a multiple of its base's, for each seed.
    fn times(self, line: &Line) -> Vec<f64> {
        self.cell(line).times(self.base().cell(line))
    }

    fn all() -> impl Iterator<Item = Self> {
        let whole = Protocol::ALL.iter().copied().map(whole);
        whole.chain(FOR_COMPARISON)
    }

    /// Returns all but write-back, which they are compared with.
    fn others() -> impl Iterator<Item = Self> {
        Self::all().filter(|known| *known != whole(Protocol::WriteBack))
    }

    fn cell(self, line: &Line) -> &Cell {
        let place = Self::all().position(|known| known == self);
        &line.cells[place.expect("all configurations were run")]
    }
}

fn grid(lengths: &Lengths) -> Grid {
    let variant = |configuration: Configuration| {
        let mut description = with(&lengths.description, configuration.protocol);
        description.ours.core.synchronisation = configuration.synchronisation;
        Variant {
            placement: configuration.placement,
            ..Variant::new(configuration.name(), description)
        }
    };
    Grid::new(lengths, Configuration::all().map(variant).collect())
}

fn study(run: &mut Run<'_>) -> Result<(), StudyError> {
    let lengths = Lengths::of(run);
    let grid = grid(&lengths);
    let lines = grid.measure(run, of_workload)?;
    run.answer(means(&lines, Judge::new(STUDY.name, lengths.length)));
    Ok(())
}

/// Returns the part of the log of recxl-proactive's run that was dumped during the run, in percent;
/// zero if it ended before the first dump.
fn dumped(line: &Line) -> Vec<f64> {
    whole(Protocol::Proactive).cell(line).each(|outcome| {
        let units = || outcome.statistics.logging.iter();
        let logged: u64 = units().map(|unit| unit.logged).sum();
        let dumped: u64 = units().map(|unit| unit.cleared).sum();
        100.0 * dumped as f64 / logged.max(1) as f64
    })
}

/// Returns the time with a protocol as a multiple of that with another one.
fn times(protocol: Protocol, other: Protocol) -> impl Fn(&Line) -> Vec<f64> {
    move |line| whole(protocol).cell(line).times(whole(other).cell(line))
}

fn of_workload(line: &Line) -> Vec<Row> {
    let base = whole(Protocol::WriteBack);
    let micros = base
        .cell(line)
        .each(|outcome| outcome.end.as_seconds() * 1e6);
    let mut rows = vec![row(line.workload, base.name(), "us", &micros)];
    rows.extend(Configuration::others().map(|configuration| {
        let times = configuration.times(line);
        row(
            line.workload,
            configuration.name(),
            configuration.unit(),
            &times,
        )
    }));
    rows.push(row(line.workload, DUMPED, "%", &dumped(line)));
    rows
}

/// Returns the workload with the greatest time, that time, and the mean without the workload.
fn without_the_farthest(
    lines: &[Line],
    times: impl Fn(&Line) -> Vec<f64>,
) -> Option<(&'static str, f64, f64)> {
    let of = |line: &Line| median_estimate(&times(line)).value;
    let farthest = lines.iter().max_by(|a, b| of(a).total_cmp(&of(b)))?;
    let others = { lines.iter() }.filter(|line| line.workload != farthest.workload);
    let others: Vec<Line> = others.cloned().collect();
    let mean = (!others.is_empty()).then(|| geometric_mean(&others, &times).value)?;
    Some((farthest.workload, of(farthest), mean))
}

/// Explains, with this run's numbers, why proactive is slower than in the paper.
fn why_proactive(lines: &[Line]) -> String {
    let number = crate::sheet::number;
    let mean = |configuration: Configuration| {
        number(geometric_mean(lines, |line| configuration.times(line)).value)
    };
    let (as_events, besides) = (
        mean(events(Protocol::Proactive)),
        mean(touched(Protocol::Proactive)),
    );
    let mut why = format!(
        "locks and barriers must survive the death of a node, so their words are replicated too, \
         while their lines are pinned; with locks and barriers as events, as in the paper's \
         traces, the mean is {as_events} (beside write-back with them as events), and {besides} if \
         additionally only lines that several threads touch are shared, which the paper does not \
         mention"
    );
    let proactive = |line: &Line| whole(Protocol::Proactive).times(line);
    if let Some((workload, times, mean)) = without_the_farthest(lines, proactive) {
        why += &format!(
            ". {workload} takes {} times as long; without it the mean is {}",
            number(times),
            number(mean)
        );
    }
    why
}

fn means(lines: &[Line], judge: Judge) -> Vec<Row> {
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
        let ours = geometric_mean(lines, |line| configuration.times(line));
        let row = simulated(MEAN, configuration.name(), configuration.unit(), ours);
        rows.push(match paper_has(configuration.protocol) {
            // The goals are for configurations in which nodes may fail.
            Some((paper, goal)) if configuration == whole(configuration.protocol) => {
                let row = match configuration.protocol {
                    Protocol::Proactive => judge.because(paper, row, &why_proactive(lines)),
                    _ => judge.beside(paper, row),
                };
                judge.goal(goal, row)
            }
            // The paper's numbers are comparable with this one: its traces have locks and barriers
            // as events.
            Some((paper, _)) if configuration.synchronisation == Synchronising::Events => {
                judge.to_compare(paper, row)
            }
            _ => row,
        });
    }
    // Both replicate only what they must, when they must. Parallel should be a little faster, and
    // no more than that.
    let ours = geometric_mean(lines, times(Protocol::Parallel, Protocol::Baseline));
    let unit = "times recxl-baseline";
    let row = simulated(MEAN, "recxl-parallel".into(), unit, ours);
    let row = judge.beside(paper::PARALLEL_TO_BASELINE, row);
    rows.push(judge.goal(goal(Op::AtLeast, 0.95), row));
    let row = simulated(
        MEAN,
        "recxl-parallel, which must not be slower".into(),
        unit,
        ours,
    );
    rows.push(judge.goal(goal(Op::AtMost, 1.0), row));
    // Our own protocol should be faster than the paper's best.
    let ours = geometric_mean(lines, times(Protocol::Adaptive, Protocol::Proactive));
    let unit = "times recxl-proactive";
    let row = simulated(MEAN, "recxl-adaptive".into(), unit, ours);
    rows.push(judge.goal(goal(Op::Below, 1.0), row));
    // The paper does not say which mean its text has.
    for configuration in Configuration::others() {
        let ours = arithmetic_mean(lines, |line| configuration.times(line));
        let (name, unit) = (configuration.name(), configuration.unit());
        rows.push(simulated("arithmetic mean", name, unit, ours));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::super::lengths::Length;
    use super::*;
    use crate::{Effort, Launcher, Plan};

    /// The shortest runs, judged as if they were as long as the studies'.
    const JUDGED: Study = Study {
        name: "judged",
        about: "goals and reasons",
        body: |run| {
            let lines = grid(&Lengths::of(run)).measure(run, |_| Vec::new())?;
            let why = why_proactive(&lines);
            assert!(
                why.contains("as events") && why.contains("without it"),
                "{why}"
            );
            run.answer(means(&lines, Judge::new(STUDY.name, Length::Study)));
            Ok(())
        },
    };

    #[test]
    fn means_have_goals_where_runs_are_long_enough() {
        let plan = Plan::new(Effort::Tiny, Launcher::this_program([]).unwrap());
        let rows = JUDGED.run(&plan, &mut |_| ()).unwrap();
        assert_eq!(rows.iter().filter(|row| row.goal.is_some()).count(), 6);
        let adaptive = rows.iter().find(|row| row.unit == "times recxl-proactive");
        assert_eq!(adaptive.unwrap().goal.unwrap().op, Op::Below);
        // The configuration of the paper's traces has the paper's number too; the one that only
        // leaves out replicas does not.
        let has_paper = |metric: &str| {
            let row = { rows.iter() }.find(|row| row.case == MEAN && row.metric == metric);
            row.unwrap().paper.is_some()
        };
        assert!(has_paper("recxl-proactive, locks and barriers as events"));
        assert!(!has_paper("recxl-proactive, without locks and barriers"));
    }
}
