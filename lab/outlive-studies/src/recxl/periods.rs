//! `recxl-fig13` and `recxl-fig14`: the sizes of logs and the traffic of accesses, replication and
//! dumps in a period between dumps (the paper's Figures 13 and 14).
//!
//! The period is the paper's 2.5 ms however long the inputs are. So the studies run the paper's
//! inputs through two periods. Rates are those of the second one, which begins with the dump of the
//! first one's log. A first look (`--quick`) is shorter than a period: it has rates without dumps,
//! and the size that a log would reach at that rate.
//!
//! Dumps are compressed by gzip, after each entry is replaced by its difference to earlier ones:
//! the paper only says gzip.
//!
//! The paper's rate of accesses to CXL memory includes reads, writes, invalidations and
//! acknowledgements, and no replication. So its number is compared with our accesses alone; their
//! rate with the replication of stores is in a row of its own.

use super::grid::{Cell, Grid, Line, Variant, arithmetic_mean};
use super::lengths::Lengths;
use super::paper::{self, Judge};
use super::{row, with};
use crate::row::{How, Row};
use crate::{Effort, Run, Study, StudyError};
use outlive_machine::description::{Description, Protocol};
use outlive_machine::engine::Time;
use outlive_machine::logging::LoggingCounts;
use outlive_machine::run::{Measures, Outcome, Placement};

pub const FIG13: Study = Study {
    name: "recxl-fig13",
    about: "the size of a node's log between dumps under proactive, simulated (ReCXL Figure 13)",
    body: |run| study(run, "recxl-fig13", log_sizes),
};

pub const FIG14: Study = Study {
    name: "recxl-fig14",
    about: "network bandwidth that proactive uses, simulated (ReCXL Figure 14)",
    body: |run| study(run, "recxl-fig14", bandwidth),
};

/// The duration of a first look.
const GLIMPSE: Time = Time::from_micros(200);

/// The units of the sizes of logs.
const MIB: f64 = (1 << 20) as f64;
const KIB: f64 = 1024.0;

/// A second variant, since the paper does not say which lines it took for shared.
const TOUCHED: &str = "if only lines of several threads are shared";

fn study(
    run: &mut Run<'_>,
    name: &'static str,
    rows: fn(&Line, Judge) -> Vec<Row>,
) -> Result<(), StudyError> {
    let lengths = Lengths::lasting(run);
    let judge = Judge::new(name, lengths.length);
    let protocol = Protocol::Proactive;
    let description = with(&lengths.description, protocol);
    let period = description.logging_unit.dump_period;
    let until = match run.effort() {
        Effort::Quick => GLIMPSE,
        Effort::Tiny | Effort::Full => period * 2,
    };
    let variant = |placement: Placement| Variant {
        placement,
        looks: vec![until / 2],
        // The dump at the end of the last period is not a part of it.
        until: Some(until),
        ..Variant::new(
            format!("{}, shared {placement:?}", protocol.name()),
            description.clone(),
        )
    };
    let variants = [Placement::Allocated, Placement::Touched].map(variant);
    let grid = Grid::new(&lengths, variants.to_vec());
    let lines = grid.measure(run, |line| rows(line, judge))?;
    run.answer(mean_factor(&lines, judge));
    Ok(())
}

/// Returns the measures of a run's second half; of the whole run if it ended before.
fn steady(outcome: &Outcome, description: &Description) -> Measures {
    match outcome.looks.first() {
        Some(look) if look.at < outcome.end => {
            let (earlier, later) = (
                (&look.statistics, look.at),
                (&outcome.statistics, outcome.end),
            );
            Measures::between(earlier, later, description)
        }
        _ => outcome.measures(description),
    }
}

fn each(cell: &Cell, number: impl Fn(&Measures) -> f64) -> Vec<f64> {
    cell.each(|outcome| number(&steady(outcome, &cell.description)))
}

/// Returns whether all seeds have seen a period and the dump after it.
fn has_dumped(cell: &Cell) -> bool {
    let period = cell.description.logging_unit.dump_period;
    cell.outcomes.iter().all(|outcome| outcome.end > period)
}

/// Returns a number of the logging units for each seed, over the whole run.
fn of_units(cell: &Cell, number: impl Fn(&[LoggingCounts]) -> f64) -> Vec<f64> {
    cell.each(|outcome| number(&outcome.statistics.logging))
}

fn log_sizes(line: &Line, judge: Judge) -> Vec<Row> {
    let (name, cell) = (line.workload, &line.cells[0]);
    let period = cell.description.logging_unit.dump_period;
    let of_period = |measures: &Measures| measures.logging_rate * period.as_seconds() / MIB;
    let metric = format!("log of the busiest node in {period}, at the measured rate");
    let mut rows = vec![row(name, metric, "MiB", &each(cell, of_period))];
    if has_dumped(cell) {
        let largest = each(cell, |measures| measures.largest_log as f64 / MIB);
        let row = row(
            name,
            "the largest log (the paper: 18 at most)",
            "MiB",
            &largest,
        );
        rows.push(judge.beside(paper::LARGEST_LOG, row));
    }
    let local = &line.cells[1];
    if has_dumped(local) {
        let largest = each(local, |measures| measures.largest_log as f64 / MIB);
        let row = row(
            name,
            format!("the same, {TOUCHED} (the paper: 18 at most)"),
            "MiB",
            &largest,
        );
        rows.push(judge.beside(paper::LARGEST_LOG, row));
    }
    rows.extend(pressure(name, cell));
    rows.extend(factor(line));
    rows
}

/// Returns the rows of the fill levels of logs and their buffers.
fn pressure(name: &str, cell: &Cell) -> [Row; 3] {
    let entry = cell.description.ours.replication.log_entry.0 as f64;
    let most = |of: fn(&LoggingCounts) -> u32| {
        move |units: &[LoggingCounts]| f64::from(units.iter().map(of).max().unwrap_or(0))
    };
    let share = |units: &[LoggingCounts]| {
        let sum = |of: fn(&LoggingCounts) -> u64| units.iter().map(of).sum::<u64>() as f64;
        100.0 * sum(|unit| unit.past_full) / sum(|unit| unit.moved).max(1.0)
    };
    let in_sram = of_units(cell, most(|unit| unit.peak_sram));
    let beyond = of_units(cell, most(|unit| unit.peak_spill));
    let kibibytes = |entries: Vec<f64>| -> Vec<f64> {
        { entries.iter() }
            .map(|entries| entries * entry / KIB)
            .collect()
    };
    let buffer = cell.description.logging_unit.sram_size;
    let metric = "entries that found the log full and are kept behind it";
    let unit = "% of entries";
    // A log that the run does not fill until the first dump is never full.
    let found_full = match has_dumped(cell) {
        true => row(name, metric, unit, &of_units(cell, share)),
        false => {
            let until = cell.description.logging_unit.dump_period;
            {
                let metric = format!("{metric} (not measured: it ended before {until})");
                Row {
                    how: None,
                    ..Row::new(name, metric, unit)
                }
            }
        }
    };
    [
        row(
            name,
            format!("the most that a node had in its log buffer of {buffer}"),
            "KiB",
            &kibibytes(in_sram),
        ),
        row(
            name,
            "the most that did not fit into the buffer and went to DRAM directly",
            "KiB",
            &kibibytes(beyond),
        ),
        found_full,
    ]
}

/// Returns the compression factors of dumps, if there were any.
fn factors(line: &Line) -> Option<Vec<f64>> {
    let cell = &line.cells[0];
    let factors = cell.outcomes.iter();
    let factors = factors.map(|outcome| steady(outcome, &cell.description).dump_factor);
    factors.collect()
}

const SMALLER: &str = "times smaller";
const FACTOR: &str = "compression of dumps, by gzip of the entries' differences";

fn factor(line: &Line) -> Option<Row> {
    Some(row(line.workload, FACTOR, SMALLER, &factors(line)?))
}

/// Returns the row of the mean factor: the paper gives an average.
fn mean_factor(lines: &[Line], judge: Judge) -> Option<Row> {
    if judge.is_of("recxl-fig14") || lines.iter().any(|line| factors(line).is_none()) {
        return None;
    }
    let mean = arithmetic_mean(lines, |line| factors(line).unwrap_or_default());
    let row = Row::new("arithmetic mean", FACTOR, SMALLER)
        .ours_within(mean)
        .how(How::Simulated);
    Some(judge.beside(paper::DUMP_FACTOR, row))
}

fn bandwidth(line: &Line, judge: Judge) -> Vec<Row> {
    let cell = &line.cells[0];
    let of = |metric: &str, rate: fn(&Measures) -> f64| {
        let rates = each(cell, |measures| rate(measures) / 1e9);
        row(line.workload, metric, "GB/s", &rates)
    };
    let accesses = of("accesses", |measures| measures.access_rate);
    let accesses = match line.workload {
        "ycsb" => judge.beside(paper::YCSB_RATE, accesses),
        _ => accesses,
    };
    let mut rows = vec![
        accesses,
        of("replication", |measures| measures.replication_rate),
        of("accesses with replication", |measures| {
            measures.access_rate + measures.replication_rate
        }),
    ];
    let local = each(&line.cells[1], |measures| {
        (measures.access_rate + measures.replication_rate) / 1e9
    });
    let metric = format!("the same, {TOUCHED}");
    rows.push(row(line.workload, metric, "GB/s", &local));
    if has_dumped(cell) {
        let dumps = of("dumps (the paper: below 5 in all)", |measures| {
            measures.dump_rate
        });
        rows.push(judge.beside(paper::DUMP_RATE, dumps));
    }
    rows
}
