//! `recxl-fig15`: a node dies 12.5 ms into a run under proactive. Rows: the lines that it owned
//! (the paper's Figure 15), each of which the recovery searches in the logs, and their fate.
//!
//! The directories know which lines the node owns, but not which of these it has written; the
//! simulated caches show that. A line that it has not written is Exclusive, or was dropped. A node
//! does not tell the directory when it drops such a line, so more may be recorded than fit.

use super::grid::{Grid, Line, Variant};
use super::lengths::Lengths;
use super::paper::{self, Judge};
use super::{row, with};
use crate::row::{Goal, How, Row};
use crate::statistics::median_estimate;
use crate::{Run, Study, StudyError};
use outlive_machine::crash;
use outlive_machine::description::Protocol;
use outlive_machine::engine::Time;
use outlive_machine::protocol::NodeId;
use outlive_machine::run::{Crash, Died, Fallout};

pub const STUDY: Study = Study {
    name: "recxl-fig15",
    about: "lines that a node owns when it dies, and their recovery, under proactive, simulated (ReCXL Figure 15)",
    body: study,
};

/// The unit in which directories count, in bytes.
const LINE: u64 = 64;

const OWNED: &str = "lines that a node owns";

fn unit(at: Time) -> String {
    format!("lines at {at}")
}

/// The node that dies.
const NODE: usize = 0;

fn study(run: &mut Run<'_>) -> Result<(), StudyError> {
    let lengths = Lengths::lasting(run);
    let at = run.effort().of(
        Time::from_micros(12),
        Time::from_micros(125),
        Time::from_micros(12_500),
    );
    let protocol = Protocol::Proactive;
    let variant = Variant {
        crashes: vec![Crash {
            at,
            node: NodeId::new(NODE),
        }],
        // The run ends with the recovery.
        until: Some(at),
        ..Variant::new(protocol.name(), with(&lengths.description, protocol))
    };
    crash::silence_judges();
    let description = variant.description.clone();
    let judge = Judge::new(STUDY.name, lengths.length);
    let grid = Grid::new(&lengths, vec![variant]);
    let lines = grid.measure(run, |line| of_workload(line, at, judge))?;
    let owned: Vec<f64> = lines
        .iter()
        .filter_map(|line| counts(line, |died| died.owned.recorded))
        .map(|counts| median_estimate(&counts).value)
        .collect();
    if !owned.is_empty() {
        // The mean of the workloads that last so long.
        let mean = owned.iter().sum::<f64>() / owned.len() as f64;
        let row = row("arithmetic mean", OWNED, unit(at), &[mean]);
        run.answer([judge.beside(paper::OWNED, row)]);
    }
    // A line in an L1 or L2 is in the L3 as well, so the L3 has all lines that a node has. The
    // paper's number is that of L2 and L3 together, as if no line were in both.
    let in_l3 = description.l3.size.0 / LINE;
    let in_l2 = description.l2.size.0 / LINE * u64::from(description.system.cores_per_node);
    let room = |metric: &str, lines: u64| {
        let row = Row::new("the machine", metric, "lines that fit").ours(lines as f64);
        row.how(How::Simulated)
    };
    let in_l3_alone = room(
        "different lines that a node's L3 holds, which has all of L2",
        in_l3,
    );
    let in_both = room("L2 and L3 together, if none were in both", in_l2 + in_l3);
    run.answer([in_l3_alone, judge.beside(paper::CACHED, in_both)]);
    Ok(())
}

/// Returns the result of the death for each seed; `None` if the program ended before.
fn fallouts(line: &Line) -> Option<Vec<&Fallout>> {
    let outcomes = line.cells[0].outcomes.iter();
    let fallouts = outcomes.map(|outcome| {
        let fallout = outcome.fallout.as_ref();
        fallout.filter(|fallout| !fallout.deaths.is_empty())
    });
    fallouts.collect()
}

/// Returns a count of the dead node for each seed.
fn counts(line: &Line, count: fn(&Died) -> u64) -> Option<Vec<f64>> {
    let fallouts = fallouts(line)?.into_iter();
    Some(
        fallouts
            .map(|fallout| count(&fallout.deaths[0]) as f64)
            .collect(),
    )
}

fn of_workload(line: &Line, at: Time, judge: Judge) -> Vec<Row> {
    let name = line.workload;
    let (Some(recorded), Some(dirty), Some(fallouts)) = (
        counts(line, |died| died.owned.recorded),
        counts(line, |died| died.owned.dirty),
        fallouts(line),
    ) else {
        let end = line.cells[0].outcomes[0].end;
        let case = format!("{name} (not measured: it ended at {end}, before {at})");
        let row = Row::new(case, OWNED, unit(at));
        return vec![Row { how: None, ..row }];
    };
    let owned = row(name, OWNED, unit(at), &recorded);
    let owned = match name {
        "ycsb" => judge.beside(paper::YCSB_OWNED, owned),
        _ => owned,
    };
    let not_written: Vec<f64> = recorded
        .iter()
        .zip(&dirty)
        .map(|(all, dirty)| all - dirty)
        .collect();
    let recovered = fallouts.iter().map(|fallout| {
        let from = fallout.deaths[0].crash.at;
        Some((fallout.recovered? - from).as_seconds() * 1e6)
    });
    let until = "from the death to the end of recovery";
    let until = match recovered.collect::<Option<Vec<f64>>>() {
        Some(took) => row(name, until, "us", &took),
        None => Row::new(
            format!("{name} (not measured: its recovery did not end)"),
            until,
            "us",
        ),
    };
    // If a recovery does not end, all recorded lines are lost. The sum is over all runs: a run that
    // has lost nothing does not make up for another.
    let lost = fallouts.iter().zip(&recorded);
    let lost: f64 = lost
        .map(|(fallout, recorded)| match fallout.recovered {
            Some(_) => fallout.lost.len() as f64,
            None => *recorded,
        })
        .sum();
    vec![
        owned,
        row(
            name,
            "of them dirty: written, and not yet in memory",
            unit(at),
            &dirty,
        ),
        row(
            name,
            "of them not written: exclusive, or dropped later",
            unit(at),
            &not_written,
        ),
        until,
        row(
            name,
            "lines that do not hold the committed values, in all runs",
            "lines",
            &[lost],
        )
        .goal(Goal::ours_at_most(0.0)),
    ]
}
