//! `outlive-lab machine trace-info`: describes a trace, and checks that it is complete.

use crate::amount::{Bytes, Many};
use crate::failure::Failure;
use crate::output;
use crate::table::Table;
use clap::Args;
use outlive_machine::trace::{Counts, Survey, Trace, TraceError};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The command that describes a trace.
#[derive(Args, Debug)]
#[command(
    after_help = "Reads and checks the whole trace. If it is damaged or cut off, prints where."
)]
pub struct TraceInfo {
    /// The file that a recorded program has written
    #[arg(value_name = "FILE")]
    trace: PathBuf,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Info<'a> {
    bytes: u64,
    origin: BTreeMap<&'a str, &'a str>,
    region_only: bool,
    spins: bool,
    shared_bytes: u64,
    image_bytes: u64,
    words_in_parts: u64,
    locks: usize,
    conditions: usize,
    barriers: usize,
    total: Row,
    threads: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    events: u64,
    instructions: u64,
    loads: u64,
    stores: u64,
    part_stores: u64,
    atomics: u64,
    private_loads: u64,
    private_stores: u64,
    locks_taken: u64,
    barriers_passed: u64,
    waits: u64,
    fences: u64,
    store_fraction: f64,
    stores_to_shared: f64,
}

impl Row {
    fn new(counts: &Counts) -> Self {
        let of = |part: u64, whole: u64| {
            if whole == 0 {
                0.0
            } else {
                part as f64 / whole as f64
            }
        };
        let shared = counts.stores + counts.atomics;
        let stores = shared + counts.private_stores;
        Self {
            events: counts.events,
            instructions: counts.instructions,
            loads: counts.loads,
            stores: counts.stores,
            part_stores: counts.part_stores,
            atomics: counts.atomics,
            private_loads: counts.private_loads,
            private_stores: counts.private_stores,
            locks_taken: counts.locks,
            barriers_passed: counts.barriers,
            waits: counts.waits,
            fences: counts.fences,
            store_fraction: of(
                stores,
                stores + counts.loads + counts.atomics + counts.private_loads,
            ),
            stores_to_shared: of(shared, stores),
        }
    }
}

impl TraceInfo {
    pub fn run(self) -> Result<(), Failure> {
        let named =
            |error: TraceError| Failure::new(format_args!("{}: {error}", self.trace.display()));
        let trace = Trace::open(&self.trace).map_err(named)?;
        let survey = trace.survey().map_err(named)?;
        let info = info(&trace, &survey);
        if self.json {
            output::json(&info)
        } else {
            tell(&info)
        }
    }
}

fn info<'a>(trace: &'a Trace, survey: &Survey) -> Info<'a> {
    let about = trace.about();
    let origin = about.origin.iter();
    Info {
        bytes: trace.bytes(),
        origin: origin
            .map(|(name, what)| (name.as_str(), what.as_str()))
            .collect(),
        region_only: about.region_only,
        spins: about.spins,
        shared_bytes: about.words * 8,
        image_bytes: survey.image_words * 8,
        words_in_parts: survey.in_parts.len() as u64,
        locks: about.locks.len(),
        conditions: about.conditions.len(),
        barriers: about.barriers.len(),
        total: Row::new(&survey.total),
        threads: survey.threads.iter().map(Row::new).collect(),
    }
}

fn tell(info: &Info<'_>) -> Result<(), Failure> {
    for (name, what) in &info.origin {
        // The trace's author has chosen this text: no part of it may reach a terminal as a command.
        output::line(format_args!(
            "{}: {}",
            name.escape_debug(),
            what.escape_debug()
        ))?;
    }
    let part = if info.region_only {
        "the region of interest"
    } else {
        "the whole program"
    };
    output::line(format_args!(
        "recorded: {part}, {} in the file",
        Bytes(info.bytes)
    ))?;
    output::line(format_args!(
        "shared memory: {}, of which {} in the initial image; {} written in parts by several \
         threads",
        Bytes(info.shared_bytes),
        Bytes(info.image_bytes),
        Many(info.words_in_parts, "word")
    ))?;
    output::line(format_args!(
        "synchronisation: {}, {}, {}; spinning {}",
        Many(info.locks as u64, "lock"),
        Many(info.conditions as u64, "condition variable"),
        Many(info.barriers as u64, "barrier"),
        if info.spins {
            "was seen and is not recorded"
        } else {
            "was not seen"
        }
    ))?;
    if info.total.instructions == 0 {
        let region_only = info.region_only;
        return output::line(TraceError::Empty { region_only });
    }
    let mut table = Table::new([
        "thread",
        "instructions",
        "loads",
        "stores",
        "atomics",
        "private loads",
        "private stores",
        "locks",
        "barriers",
        "store share",
        "shared of stores",
    ]);
    let numbered = info.threads.iter().enumerate();
    let rows = numbered.map(|(thread, row)| (thread.to_string(), row));
    for (name, row) in rows.chain([("all".to_owned(), &info.total)]) {
        table.row([
            name,
            row.instructions.to_string(),
            row.loads.to_string(),
            row.stores.to_string(),
            row.atomics.to_string(),
            row.private_loads.to_string(),
            row.private_stores.to_string(),
            row.locks_taken.to_string(),
            row.barriers_passed.to_string(),
            format!("{:.3}", row.store_fraction),
            format!("{:.3}", row.stores_to_shared),
        ]);
    }
    for line in table.lines() {
        output::line(line)?;
    }
    Ok(())
}
