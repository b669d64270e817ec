//! `recxl-ours`: how far the parameters that the paper does not give carry the results: each is varied alone, and the mean times
//! of configurations to write-back's, on the same machine, stand beside those of the defaults.

use super::grid::{Grid, Line, Variant, geometric_mean};
use super::lengths::Lengths;
use super::{TIMES_WB, with};
use crate::row::{How, Row};
use crate::statistics::Estimate;
use crate::{Effort, Run, Study, StudyError};
use outlive_machine::description::{Description, Protocol};

pub const STUDY: Study = Study {
    name: "recxl-ours",
    about: "what the parameters that the paper does not give do to its results, simulated",
    body: study,
};

/// Of different kinds: one that only moves records, one that sweeps over grids, one that jumps about.
const WORKLOADS: [&str; 3] = ["ycsb", "ocean-cp", "canneal"];

/// Section, field, and what it is set to, one after another: a half and the double, where that can be.
const VARIED: &[(&str, &str, &[&str])] = &[
    ("ours.core", "reorder_buffer", &["176", "704"]),
    ("ours.core", "width", &["4", "8"]),
    ("ours.core", "store_buffer", &["36", "144"]),
    ("ours.core", "l1_misses", &["6", "24"]),
    ("ours.core", "l2_misses", &["24", "96"]),
    ("ours.core", "quantum", &["\"5 ns\"", "\"80 ns\""]),
    ("ours.coherence", "write_back_buffer", &["24", "96"]),
    ("ours.memory", "dram_banks", &["64", "256"]),
    ("ours.memory", "pmem_banks", &["64", "256"]),
    ("ours.memory", "local_latency", &["\"90 ns\""]),
    ("ours.memory", "local_banks", &["16", "64"]),
    (
        "ours.memory",
        "directory_latency",
        &["\"5 ns\"", "\"20 ns\""],
    ),
    ("ours.memory", "interleave", &["\"64 B\"", "\"64 KiB\""]),
    ("ours.fabric", "switch_latency", &["\"20 ns\"", "\"80 ns\""]),
    ("ours.fabric", "reorder_bound", &["\"0 ns\"", "\"20 ns\""]),
    ("ours.wire", "slot", &["\"1 B\"", "\"64 B\""]),
    ("ours.wire", "header", &["\"8 B\"", "\"32 B\""]),
    ("ours.replication", "replica_hash", &["\"modulo\""]),
];

/// What is compared to write-back.
const CONFIGURATIONS: [Protocol; 3] = [
    Protocol::WriteThrough,
    Protocol::Baseline,
    Protocol::Proactive,
];

fn study(run: &mut Run<'_>) -> Result<(), StudyError> {
    let lengths = Lengths::of(run);
    let settings = match run.effort() {
        Effort::Tiny => &VARIED[2..4],
        Effort::Quick | Effort::Full => VARIED,
    };
    let mut machines = vec![("the defaults".to_owned(), lengths.description.clone())];
    for (section, field, values) in settings {
        for value in *values {
            let name = format!("{section}.{field} = {value}");
            machines.push((name, set(&lengths.description, section, field, value)?));
        }
    }
    let protocols = || std::iter::once(Protocol::WriteBack).chain(CONFIGURATIONS);
    let variants = machines.iter().flat_map(|(name, description)| {
        protocols().map(move |protocol| {
            let name = format!("{name}, {}", protocol.name());
            Variant::new(name, with(description, protocol))
        })
    });
    let grid = Grid {
        workloads: match run.effort() {
            Effort::Tiny => lengths.workloads.clone(),
            Effort::Quick | Effort::Full => WORKLOADS.to_vec(),
        },
        scale: lengths.scale,
        variants: variants.collect(),
        seeds: 1,
    };
    let lines = grid.measure(run, |_| Vec::new())?;
    let each = protocols().count();
    let mean = |machine: usize, configuration: usize| {
        let times = |line: &Line| {
            let these = &line.cells[machine * each..][..each];
            these[configuration].times(&these[0])
        };
        geometric_mean(&lines, times).value
    };
    let mut rows = Vec::new();
    for (machine, (name, _)) in machines.iter().enumerate() {
        for (place, protocol) in CONFIGURATIONS.iter().enumerate() {
            let (ours, usual) = (mean(machine, place + 1), mean(0, place + 1));
            let row = Row::new(name, protocol.name(), TIMES_WB).ours(ours);
            let row = match machine {
                0 => row,
                _ => row
                    .peer("the defaults", usual)
                    .ratio(Estimate::exactly(ours / usual)),
            };
            rows.push(row.how(How::Simulated));
        }
    }
    run.answer(rows);
    Ok(())
}

/// The machine with one field set, as a file would have it.
fn set(
    description: &Description,
    section: &str,
    field: &str,
    value: &str,
) -> Result<Description, StudyError> {
    let text = description.to_string();
    let heading = format!("[{section}]");
    let mut within = false;
    let changed = text.lines().map(|line| {
        within = match line.starts_with('[') {
            true => line == heading,
            false => within,
        };
        let is_it = within && line.split(" = ").next() == Some(field);
        match is_it {
            true => format!("{field} = {value}"),
            false => line.to_owned(),
        }
    });
    let changed = changed.collect::<Vec<_>>().join("\n");
    let failed = |error| StudyError::void(format!("{section}.{field} = {value}: {error}"));
    changed.parse().map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_variation_is_a_machine_that_differs_from_the_default() {
        let usual = Description::default();
        for (section, field, values) in VARIED {
            for value in *values {
                let varied = set(&usual, section, field, value).unwrap();
                assert_ne!(varied, usual, "{section}.{field} = {value}");
            }
        }
        assert!(set(&usual, "ours.core", "width", "0").is_err());
    }
}
