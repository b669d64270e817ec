//! `recxl-tenfold`: checks that shortened inputs give the results of longer ones: the times of the
//! configurations relative to write-back, with the studies' inputs and with inputs that run ten
//! times as long. A workload's inputs agree if no configuration is off by more than a quarter.

use super::grid::{Grid, Line, Variant};
use super::lengths::{Length, Lengths};
use super::paper::Judge;
use super::{TIMES_WB, with};
use crate::row::{Goal, How, On, Op, Row};
use crate::statistics::{Estimate, median_estimate};
use crate::{Run, Study, StudyError};
use outlive_machine::description::Protocol;
use outlive_machine::program::Scale;

pub const STUDY: Study = Study {
    name: "recxl-tenfold",
    about: "the configurations' times with inputs ten times as long as the studies', simulated",
    body: study,
};

/// Different kinds: one that only moves records, one that sweeps over grids, one that shares much
/// and stores little, and the one with the greatest influence on the studies' means.
const WORKLOADS: [&str; 4] = ["ycsb", "ocean-cp", "streamcluster", "fluidanimate"];

/// The bound on a ratio, or its inverse, of inputs that agree.
const NEAR: f64 = 1.25;

/// The number of workloads that must agree. A first look has no time for as many.
const ENOUGH: f64 = 3.0;

fn study(run: &mut Run<'_>) -> Result<(), StudyError> {
    let lengths = Lengths::of(run);
    let (short, long) = run.effort().of(
        (Scale::Test, Scale::Test),
        (Scale::Test, Scale::Study),
        (Scale::Study, Scale::Tenfold),
    );
    let variant =
        |protocol: &Protocol| Variant::new(protocol.name(), with(&lengths.description, *protocol));
    let workloads = run
        .effort()
        .of(&WORKLOADS[..2], &WORKLOADS[..2], &WORKLOADS[..]);
    let grid = |scale| Grid {
        workloads: workloads.to_vec(),
        scale,
        variants: Protocol::ALL.iter().map(variant).collect(),
        seeds: 1,
    };
    let short = grid(short).measure(run, |_| Vec::new())?;
    let beside = |line: &Line| {
        let short = short.iter().find(|short| short.workload == line.workload);
        short.map_or(Vec::new(), |short| ratios(line, short))
    };
    let lines = grid(long).measure(run, |line| of_workload(line, &beside(line)))?;
    let agreeing = { lines.iter() }.filter(|line| beside(line).iter().all(|ratio| ratio.is_near()));
    // The lengths are the same with --full.
    let length = match lengths.length {
        Length::Test => Length::Test,
        Length::Study | Length::Paper => Length::Study,
    };
    let judge = Judge::new(STUDY.name, length);
    run.answer([verdict(agreeing.count(), lines.len(), judge)]);
    Ok(())
}

/// A configuration's time relative to write-back's, with long and with short inputs.
struct Ratio {
    protocol: Protocol,
    long: f64,
    short: f64,
}

impl Ratio {
    fn of_both(&self) -> f64 {
        self.long / self.short
    }

    fn is_near(&self) -> bool {
        (1.0 / NEAR..=NEAR).contains(&self.of_both())
    }
}

fn ratios(long: &Line, short: &Line) -> Vec<Ratio> {
    let others = Protocol::ALL.iter().enumerate().skip(1);
    others
        .map(|(place, protocol)| {
            let times = |line: &Line| {
                let times = line.cells[place].times(&line.cells[0]);
                median_estimate(&times).value
            };
            Ratio {
                protocol: *protocol,
                long: times(long),
                short: times(short),
            }
        })
        .collect()
}

fn of_workload(line: &Line, ratios: &[Ratio]) -> Vec<Row> {
    let name = line.workload;
    let mut rows: Vec<Row> = { ratios.iter() }
        .map(|ratio| {
            Row::new(name, ratio.protocol.name(), TIMES_WB)
                .ours(ratio.long)
                .peer("the shorter inputs", ratio.short)
                .ratio(Estimate::exactly(ratio.of_both()))
                .how(How::Simulated)
        })
        .collect();
    let near = ratios.iter().filter(|ratio| ratio.is_near()).count();
    let unit = format!("of {}", ratios.len());
    let row = Row::new(name, "configurations within a quarter", unit).ours(near as f64);
    rows.push(row.how(How::Simulated));
    rows
}

/// Returns the row of the number of workloads that agree with longer inputs.
fn verdict(agreeing: usize, of: usize, judge: Judge) -> Row {
    let metric = "workloads with all configurations within a quarter";
    let row = Row::new("all workloads", metric, format!("of {of}"))
        .ours_within(Estimate::exactly(agreeing as f64))
        .how(How::Simulated);
    let goal = Goal {
        on: On::Ours,
        op: Op::AtLeast,
        value: ENOUGH,
    };
    judge.goal(goal, row)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_either_way_is_near() {
        let near = |long| {
            let (protocol, short) = (Protocol::Proactive, 2.0);
            let ratio = Ratio {
                protocol,
                long,
                short,
            };
            ratio.is_near()
        };
        assert!(near(2.0) && near(2.5) && near(1.6));
        assert!(!near(2.6) && !near(1.5));
    }

    #[test]
    fn three_of_them_are_to_agree() {
        let judge = Judge::new(STUDY.name, Length::Study);
        let holds = |agreeing| verdict(agreeing, 4, judge).holds;
        assert_eq!((holds(2), holds(3)), (Some(false), Some(true)));
        let short = Judge::new(STUDY.name, Length::Test);
        assert_eq!(verdict(0, 2, short).holds, None);
    }
}
