//! `recxl-ours`: the influence on the results of the parameters that the paper does not give. Each
//! is varied alone. The mean times of configurations, relative to write-back on the same machine,
//! are compared with those of the defaults.
//!
//! Each parameter has one other value, in the direction that gives a core less to wait with, or
//! makes messages and replicas slower: there the claims are most at risk. The effects of locks and
//! barriers are in `recxl-fig10`.

use super::grid::{Grid, Line, Variant, geometric_mean};
use super::lengths::Lengths;
use super::{TIMES_WB, with};
use crate::row::{How, Row};
use crate::statistics::Estimate;
use crate::{Effort, Run, Study, StudyError};
use outlive_machine::description::{Description, Protocol};

pub const STUDY: Study = Study {
    name: "recxl-ours",
    about: "the effect of parameters that the paper does not give on its results, simulated",
    body: study,
};

/// Different kinds: one that only moves records, one that sweeps over grids, and the one with the
/// greatest influence on the studies' means. (canneal's times are all similar.)
const WORKLOADS: [&str; 3] = ["ycsb", "ocean-cp", "fluidanimate"];

/// The configurations that are compared to write-back.
const CONFIGURATIONS: [Protocol; 3] = [
    Protocol::WriteThrough,
    Protocol::Proactive,
    Protocol::Adaptive,
];

/// The parameters, and the value of each instead of its default.
const VARIED: [(&str, &str); 22] = [
    ("ours.core.reorder_buffer", "176"),
    ("ours.core.width", "4"),
    ("ours.core.store_buffer", "9"),
    ("ours.core.eager_part", "72"),
    ("ours.core.coalescing", "\"never\""),
    ("ours.core.l1_misses", "6"),
    ("ours.core.l2_misses", "24"),
    ("ours.core.quantum", "\"80 ns\""),
    ("ours.coherence.write_back_buffer", "24"),
    ("ours.memory.dram_banks", "32"),
    ("ours.memory.pmem_banks", "32"),
    ("ours.memory.local_latency", "\"90 ns\""),
    ("ours.memory.local_banks", "16"),
    ("ours.memory.directory_latency", "\"20 ns\""),
    ("ours.memory.interleave", "\"64 KiB\""),
    ("ours.fabric.reorder_bound", "\"20 ns\""),
    ("ours.wire.slot", "\"64 B\""),
    ("ours.wire.header", "\"32 B\""),
    ("ours.replication.entries_per_cycle", "1"),
    ("ours.replication.dump_entries_per_cycle", "8"),
    ("ours.replication.own_unit", "\"skipped\""),
    ("ours.replication.replica_hash", "\"modulo\""),
];

fn study(run: &mut Run<'_>) -> Result<(), StudyError> {
    let lengths = Lengths::of(run);
    let settings = match run.effort() {
        Effort::Tiny => &VARIED[2..4],
        Effort::Quick | Effort::Full => &VARIED[..],
    };
    let usual = lengths.description.clone();
    let mut machines = vec![("the defaults".to_owned(), usual.clone())];
    for (parameter, value) in settings {
        let varied = set(&usual, parameter, value)?;
        machines.push((format!("{parameter} = {value}"), varied));
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
        seeds: 1,
        ..Grid::new(&lengths, variants.collect())
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

/// Returns the machine with one field set, as a file would have it.
fn set(description: &Description, parameter: &str, value: &str) -> Result<Description, StudyError> {
    let text = description.to_string();
    let (section, field) = parameter.rsplit_once('.').unwrap_or(("", parameter));
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
    let failed = |error| StudyError::void(format!("{parameter} = {value}: {error}"));
    changed.parse().map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use outlive_machine::description::SWEPT;

    #[test]
    fn a_field_is_set_as_a_file_would_set_it() {
        let usual = Description::default();
        for swept in SWEPT {
            for (value, setting) in swept.values.iter().zip(swept.settings()) {
                let varied = set(&usual, swept.parameter, value).unwrap();
                assert_eq!(Ok(varied), setting.parse(), "{setting}");
            }
        }
        assert!(set(&usual, "ours.core.width", "0").is_err());
    }

    #[test]
    fn each_parameter_is_varied_once_and_is_not_its_default() {
        let usual = Description::default();
        for (parameter, value) in VARIED {
            assert_ne!(set(&usual, parameter, value).unwrap(), usual, "{parameter}");
        }
        // The first has rows in recxl-fig10. The second only moves where a message is late.
        let elsewhere = ["ours.core.synchronisation", "ours.fabric.switch_latency"];
        let swept = { SWEPT.iter() }.filter(|swept| !elsewhere.contains(&swept.parameter));
        let swept: Vec<_> = swept.map(|swept| swept.parameter).collect();
        assert_eq!(VARIED.map(|(parameter, _)| parameter).to_vec(), swept);
    }
}
