//! The limits on the values of a description.

use crate::engine::{Frequency, Time};
use crate::protocol::MAX_NODES;

use super::error::Impossible;
use super::paper::Cache;
use super::quantity::{Bytes, Cycles};
use super::{Description, LINE_BYTES, OwnUnit};

/// The number of compute nodes that a directory can tell apart.
const MOST_COMPUTE_NODES: u32 = MAX_NODES as u32;
const MOST_MEMORY_NODES: u32 = 64;
/// Sets of cores are bit masks of one word.
const MOST_CORES: u32 = 64;
/// The largest latency of a part, so that runs end before simulated time does.
const SLOWEST: Time = Time::from_micros(1_000);
/// The largest cache latency, so that sums of latencies are valid times.
const LONGEST: Cycles = Cycles(1_000_000);
/// The largest cache. A larger size is probably a mistake, and every way of every node takes real
/// memory of the host.
const LARGEST_CACHE: Bytes = Bytes::gibi(1);

impl Description {
    /// Checks that such a machine can exist. Reading a description checks it too.
    ///
    /// # Errors
    ///
    /// The first impossible value found, with the fields that it is about.
    pub fn check(&self) -> Result<(), Impossible> {
        self.check_system()?;
        check_cache(&self.l1, &["l1.size", "l1.ways"])?;
        check_cache(&self.l2, &["l2.size", "l2.ways"])?;
        check_cache(&self.l3, &["l3.size", "l3.ways"])?;
        self.check_latencies()?;
        self.check_memory()?;
        self.check_fabric()?;
        self.check_logging()
    }

    fn check_system(&self) -> Result<(), Impossible> {
        let (system, core) = (&self.system, &self.ours.core);
        let counts = [
            (
                "system.compute_nodes",
                system.compute_nodes,
                MOST_COMPUTE_NODES,
            ),
            (
                "system.memory_nodes",
                system.memory_nodes,
                MOST_MEMORY_NODES,
            ),
            ("system.cores_per_node", system.cores_per_node, MOST_CORES),
            ("system.load_queue", system.load_queue, 1 << 16),
            ("system.store_queue", system.store_queue, 1 << 16),
            ("ours.core.reorder_buffer", core.reorder_buffer, 1 << 16),
            ("ours.core.width", core.width, 64),
            ("ours.core.eager_part", core.eager_part, 1 << 16),
            ("ours.core.store_buffer", core.store_buffer, 1 << 16),
            ("ours.core.l1_misses", core.l1_misses, 1 << 16),
            ("ours.core.l2_misses", core.l2_misses, 1 << 16),
            (
                "ours.coherence.write_back_buffer",
                self.ours.coherence.write_back_buffer,
                1 << 16,
            ),
            (
                "ours.memory.dram_banks",
                self.ours.memory.dram_banks,
                1 << 16,
            ),
            (
                "ours.memory.pmem_banks",
                self.ours.memory.pmem_banks,
                1 << 16,
            ),
            (
                "ours.memory.local_banks",
                self.ours.memory.local_banks,
                1 << 16,
            ),
            (
                "ours.replication.entries_per_cycle",
                self.ours.replication.entries_per_cycle,
                1 << 16,
            ),
            (
                "ours.replication.dump_entries_per_cycle",
                self.ours.replication.dump_entries_per_cycle,
                1 << 16,
            ),
        ];
        for (field, count, most) in counts {
            require(
                (1..=most).contains(&count),
                &[field],
                format!("{count} is out of range"),
                || format!("give from 1 to {most}"),
            )?;
        }
        let ticks = system
            .cpu_frequency
            .hertz()
            .checked_mul(u64::from(core.width));
        require(
            ticks.and_then(Frequency::from_hertz).is_some(),
            &["system.cpu_frequency", "ours.core.width"],
            "a core cannot begin more than one instruction in a picosecond",
            || "make the clock times the width 1 THz at most".into(),
        )?;
        let one_way = self.cxl.round_trip / 2;
        require(
            core.quantum > Time::ZERO && core.quantum <= one_way,
            &["ours.core.quantum", "cxl.round_trip"],
            format!(
                "ours.core.quantum cannot be {}: it must be above zero and at most {one_way}, half \
                 of cxl.round_trip, which is the latency to another node",
                core.quantum
            ),
            || match one_way > Time::ZERO {
                true => {
                    format!("give ours.core.quantum {one_way} at most, or a longer cxl.round_trip")
                }
                false => "give a cxl.round_trip above zero".into(),
            },
        )
    }

    /// A level's latency includes those of the levels before it.
    fn check_latencies(&self) -> Result<(), Impossible> {
        let levels = [
            (
                ["l1.latency", "l2.latency"],
                self.l1.latency,
                self.l2.latency,
            ),
            (
                ["l2.latency", "l3.latency"],
                self.l2.latency,
                self.l3.latency,
            ),
        ];
        for (field, latency) in [
            ("l1.latency", self.l1.latency),
            ("l2.latency", self.l2.latency),
            ("l3.latency", self.l3.latency),
        ] {
            require(
                (Cycles(1)..=LONGEST).contains(&latency),
                &[field],
                format!("a cache cannot have a latency of {latency}"),
                || format!("give from 1 cycle to {LONGEST}"),
            )?;
        }
        for (fields, first, second) in levels {
            require(
                first <= second,
                &fields,
                format!(
                    "{} cannot be {second}, since it includes {}, which is {first}",
                    fields[1], fields[0]
                ),
                || format!("give {} {first} at least", fields[1]),
            )?;
        }
        Ok(())
    }

    fn check_memory(&self) -> Result<(), Impossible> {
        for (field, latency) in [
            ("cxl.dram_latency", self.cxl.dram_latency),
            ("cxl.pmem_latency", self.cxl.pmem_latency),
            ("logging_unit.sram_latency", self.logging_unit.sram_latency),
            ("ours.memory.local_latency", self.ours.memory.local_latency),
            (
                "ours.memory.directory_latency",
                self.ours.memory.directory_latency,
            ),
        ] {
            require(
                latency <= SLOWEST,
                &[field],
                format!("a memory cannot have a latency of {latency}"),
                || format!("give {SLOWEST} at most"),
            )?;
        }
        let line = self.local_memory.line_size;
        require(
            line.0 == LINE_BYTES,
            &["local_memory.line_size"],
            format!("a line size of {line} is not supported"),
            || format!("give {LINE_BYTES} B"),
        )?;
        for (field, size) in [
            ("local_memory.size", self.local_memory.size),
            ("ours.memory.interleave", self.ours.memory.interleave),
            (
                "ours.replication.dump_range",
                self.ours.replication.dump_range,
            ),
        ] {
            let whole = size.0 != 0 && size.0.is_multiple_of(LINE_BYTES);
            require(
                whole,
                &[field],
                format!("{size} is not a whole number of lines"),
                || format!("give a multiple of {LINE_BYTES} B"),
            )?;
        }
        Ok(())
    }

    fn check_fabric(&self) -> Result<(), Impossible> {
        let (round_trip, switch) = (self.cxl.round_trip, self.ours.fabric.switch_latency);
        require(
            round_trip <= SLOWEST,
            &["cxl.round_trip"],
            format!("a round trip of {round_trip} is too long"),
            || format!("give {SLOWEST} at most"),
        )?;
        let fields = ["cxl.round_trip", "ours.fabric.switch_latency"];
        let twice = switch
            .checked_add(switch)
            .filter(|twice| *twice <= round_trip);
        let Some(twice) = twice else {
            return Err(Impossible {
                fields: fields.to_vec(),
                what: format!(
                    "a cxl.round_trip of {round_trip} passes the switch twice, and ours.fabric.switch_latency is {switch}"
                ),
                hint: format!(
                    "give ours.fabric.switch_latency {} at most, or a longer cxl.round_trip",
                    round_trip / 2
                ),
            });
        };
        require(
            (round_trip - twice).picos().is_multiple_of(4),
            &fields,
            "the round trip without the switch cannot be divided among four links",
            || {
                "make cxl.round_trip minus twice ours.fabric.switch_latency a multiple of 4 ps"
                    .into()
            },
        )?;
        let bound = self.ours.fabric.reorder_bound;
        require(
            bound <= SLOWEST,
            &["ours.fabric.reorder_bound"],
            format!("a reorder bound of {bound} is too long"),
            || format!("give {SLOWEST} at most"),
        )?;
        let (longest, detection) = (Time::from_micros(1_000_000), self.ours.failure.detection);
        require(
            (Time::from_picos(1)..=longest).contains(&detection),
            &["ours.failure.detection"],
            format!("the death of a node cannot take {detection} to detect"),
            || format!("give more than zero and at most {longest}"),
        )?;
        let wire = &self.ours.wire;
        let sizes = [
            ("ours.wire.slot", wire.slot, 1, 4096),
            ("ours.wire.header", wire.header, 1, 4096),
            ("ours.wire.mask", wire.mask, 0, 64),
            ("ours.wire.timestamp", wire.timestamp, 0, 64),
            ("ours.wire.commit", wire.commit, 0, 64),
            ("ours.wire.epoch", wire.epoch, 0, 64),
        ];
        for (field, size, least, most) in sizes {
            require(
                (least..=most).contains(&size.0),
                &[field],
                format!("{size} is out of range"),
                || format!("give from {least} B to {most} B"),
            )?;
        }
        Ok(())
    }

    fn check_logging(&self) -> Result<(), Impossible> {
        let (unit, entry) = (&self.logging_unit, self.ours.replication.log_entry);
        let (copies, nodes) = (unit.replication_factor, self.system.compute_nodes);
        let protocol = self.ours.coherence.protocol;
        let own_unit = self.ours.replication.own_unit;
        let (others, most) = match own_unit {
            OwnUnit::Counts => ("", nodes),
            OwnUnit::Skipped => ("other ", nodes - 1),
        };
        require(
            copies <= most || !protocol.replicates(),
            &[
                "logging_unit.replication_factor",
                "system.compute_nodes",
                "ours.replication.own_unit",
            ],
            format!(
                "{copies} {others}nodes cannot log a store where there are {nodes} in all (ours.replication.own_unit is \"{}\")",
                own_unit.name()
            ),
            || match most {
                0 => {
                    "give system.compute_nodes 2 at least, or the protocol \"wb\" or \"wt\"".into()
                }
                _ => format!("give a factor of {most} at most, or more nodes"),
            },
        )?;
        require(
            copies > 0 || !protocol.replicates(),
            &["logging_unit.replication_factor", "ours.coherence.protocol"],
            format!("{} has no node that logs a store", protocol.name()),
            || "give a factor of 1 at least, or the protocol \"wb\" or \"wt\"".into(),
        )?;
        require(
            unit.dump_period > Time::ZERO,
            &["logging_unit.dump_period"],
            "a log cannot be dumped continuously",
            || "give a time above zero, such as \"2.5 ms\"".into(),
        )?;
        let least = 8 + 8;
        require(
            (least..=4096).contains(&entry.0),
            &["ours.replication.log_entry"],
            format!("a log entry cannot have {entry}"),
            || format!("give from {least} B (address and value) to 4096 B"),
        )?;
        for (field, size) in [
            ("logging_unit.sram_size", unit.sram_size),
            ("logging_unit.log_size", unit.log_size),
        ] {
            let fields = [field, "ours.replication.log_entry"];
            require(
                size >= entry,
                &fields,
                format!("{size} is too small for a log entry of {entry}"),
                || format!("give {entry} at least"),
            )?;
        }
        Ok(())
    }
}

fn check_cache(cache: &Cache, fields: &[&'static str; 2]) -> Result<(), Impossible> {
    let [_, ways_field] = fields;
    let (size, ways) = (cache.size, u64::from(cache.ways));
    require(
        (1..=64).contains(&ways),
        &[ways_field],
        format!("a cache cannot have {ways} ways"),
        || "give from 1 to 64".into(),
    )?;
    let set = ways * LINE_BYTES;
    let whole = size.0 != 0 && size.0.is_multiple_of(set);
    require(
        whole,
        fields,
        format!("{size} cannot be divided into sets of {ways} ways of {LINE_BYTES} B"),
        || format!("give a multiple of {}", Bytes(set)),
    )?;
    require(
        size <= LARGEST_CACHE,
        fields,
        format!("a cache of {size} is too large to be simulated"),
        || format!("give {LARGEST_CACHE} at most"),
    )?;
    let sets = cache.sets();
    require(
        sets.is_power_of_two(),
        fields,
        format!("{size} in {ways} ways are {sets} sets, which is not a power of two"),
        || {
            let below = 1 << sets.ilog2();
            format!("give {} or {}", Bytes(below * set), Bytes(below * 2 * set))
        },
    )
}

fn require(
    holds: bool,
    fields: &[&'static str],
    what: impl Into<String>,
    hint: impl FnOnce() -> String,
) -> Result<(), Impossible> {
    if holds {
        Ok(())
    } else {
        Err(Impossible {
            fields: fields.to_vec(),
            what: what.into(),
            hint: hint(),
        })
    }
}
