//! Descriptions as texts: the paper's machine, reading back, and that no text makes the reader
//! panic.

use outlive_machine::description::{
    Bytes, Cache, Cycles, Description, Protocol, Rate, ReplicaHash,
};
use outlive_machine::engine::{Frequency, Random, Time};
use proptest::prelude::*;

#[test]
fn the_default_is_table_two() {
    let text = Description::default().to_string();
    let (paper, ours) = text
        .split_once("\n# Parameters that the paper does not give")
        .expect("parameters that the paper does not give have their own part");
    let expected = [
        ("system", "compute_nodes = 16"),
        ("system", "memory_nodes = 16"),
        ("system", "cpu_frequency = \"2.4 GHz\""),
        ("logging_unit", "frequency = \"500 MHz\""),
        ("system", "cores_per_node = 4"),
        ("system", "load_queue = 128"),
        ("system", "store_queue = 72"),
        ("l1", "size = \"48 KiB\""),
        ("l1", "ways = 12"),
        ("l1", "latency = \"5 cycles\""),
        ("l2", "size = \"512 KiB\""),
        ("l2", "ways = 8"),
        ("l2", "latency = \"13 cycles\""),
        ("l3", "size = \"8 MiB\""),
        ("l3", "ways = 16"),
        ("l3", "latency = \"36 cycles\""),
        ("local_memory", "line_size = \"64 B\""),
        ("local_memory", "size = \"512 GiB\""),
        ("cxl", "dram_latency = \"45 ns\""),
        ("cxl", "pmem_latency = \"500 ns\""),
        ("cxl", "link_bandwidth = \"160 GB/s\""),
        ("cxl", "round_trip = \"200 ns\""),
        ("logging_unit", "sram_size = \"4 KiB\""),
        ("logging_unit", "sram_latency = \"4 ns\""),
        ("logging_unit", "log_size = \"18 MiB\""),
        ("logging_unit", "dump_period = \"2.5 ms\""),
        ("logging_unit", "replication_factor = 3"),
    ];
    let mut lines: Vec<(&str, &str)> = parameters(paper).collect();
    lines.sort_unstable();
    let mut expected = expected.to_vec();
    expected.sort_unstable();
    assert_eq!(lines, expected);
    assert!(parameters(ours).all(|(section, _)| section.starts_with("ours.")));
    assert!(parameters(ours).count() > 10);
}

/// Returns the lines that set a parameter, with their sections.
fn parameters(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut section = "";
    text.lines().filter_map(move |line| {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']');
        }
        (!line.starts_with('#') && line.contains(" = ")).then_some((section, line))
    })
}

#[test]
fn every_parameter_is_documented_and_read_alone() {
    let default = Description::default();
    let text = default.to_string();
    for (section, line) in parameters(&text) {
        let at = text.find(&format!("\n{line}")).unwrap();
        let above = text[..at].lines().last().unwrap();
        assert!(
            above.starts_with("# ") && above.len() > 5,
            "{line} has no documentation"
        );
        let alone = format!("[{section}]\n{line}");
        assert_eq!(
            alone.parse::<Description>().as_ref(),
            Ok(&default),
            "{alone}"
        );
    }
    let caches: (u64, u64, u64) = (default.l1.sets(), default.l2.sets(), default.l3.sets());
    assert_eq!(caches, (64, 1024, 8192));
}

#[test]
fn empty_and_inline_texts_are_read() {
    assert_eq!("".parse(), Ok(Description::default()));
    let inline: Description = "system.compute_nodes = 0x8\nl1 = { ways = 6, size = \"24KiB\" }"
        .parse()
        .unwrap();
    assert_eq!(
        (inline.system.compute_nodes, inline.l1.ways, inline.l1.size),
        (8, 6, Bytes::kibi(24))
    );
    let fractions: Description =
        "[cxl]\nround_trip = \"0.2004 us\"\nlink_bandwidth = \"22.5 GB/s\""
            .parse()
            .unwrap();
    assert_eq!(fractions.cxl.round_trip, Time::from_picos(200_400));
    assert_eq!(
        fractions.cxl.link_bandwidth.bytes_per_second(),
        22_500_000_000
    );
}

#[test]
fn what_a_program_made_impossible_is_told_too() {
    let mut description = Description::default();
    assert_eq!(description.check(), Ok(()));
    description.logging_unit.replication_factor = 40;
    // Where nothing is replicated, no replicas are needed.
    assert_eq!(description.check(), Ok(()));
    description.ours.coherence.protocol = Protocol::Baseline;
    let impossible = description.check().unwrap_err();
    assert_eq!(
        impossible.fields,
        [
            "logging_unit.replication_factor",
            "system.compute_nodes",
            "ours.replication.own_unit"
        ]
    );
    assert!(
        impossible
            .to_string()
            .contains(": 40 nodes cannot log a store where there are 16")
    );
}

/// The longest latency, in ps.
const SLOWEST: u64 = 1_000_000_000;

/// Draws a possible machine; nearly every parameter is drawn.
fn drawn(seed: u64) -> Description {
    let mut random = Random::new(seed);
    let mut between = |least: u64, most: u64| least + random.below(most - least + 1);
    let mut description = Description::default();
    let system = &mut description.system;
    system.compute_nodes = between(1, 32) as u32;
    system.memory_nodes = between(1, 64) as u32;
    system.cores_per_node = between(1, 64) as u32;
    let width = between(1, 64);
    system.cpu_frequency = Frequency::from_hertz(between(1, 1_000_000_000_000 / width)).unwrap();
    system.load_queue = between(1, 1 << 16) as u32;
    let mut latency = 0;
    for cache in [
        &mut description.l1,
        &mut description.l2,
        &mut description.l3,
    ] {
        latency += between(1, 300_000);
        let ways = between(1, 64);
        let sets = 1 << between(0, 12);
        *cache = Cache {
            size: Bytes(64 * sets * ways),
            ways: ways as u32,
            latency: Cycles(latency),
        };
    }
    description.local_memory.size = Bytes(64 * between(1, 1 << 50));
    description.cxl.dram_latency = Time::from_picos(between(0, SLOWEST));
    description.cxl.link_bandwidth = Rate::from_bytes_per_second(between(1, u64::MAX - 1)).unwrap();
    let switch = between(0, SLOWEST / 4);
    description.ours.fabric.switch_latency = Time::from_picos(switch);
    description.cxl.round_trip = Time::from_picos(2 * switch + 4 * between(1, SLOWEST / 8));
    description.ours.fabric.reorder_bound = Time::from_picos(between(0, SLOWEST));
    description.logging_unit.frequency =
        Frequency::from_hertz(1_000_000 * between(1, 4_000)).unwrap();
    description.logging_unit.replication_factor =
        between(0, u64::from(description.system.compute_nodes) - 1) as u32;
    description.logging_unit.log_size = Bytes(between(4096, u64::MAX - 1));
    description.logging_unit.dump_period = Time::from_picos(between(1, 1 << 60));
    description.ours.core.width = width as u32;
    let one_way = description.cxl.round_trip.picos() / 2;
    description.ours.core.quantum = Time::from_picos(between(1, one_way));
    let protocol = Protocol::ALL[between(0, Protocol::ALL.len() as u64 - 1) as usize];
    if description.logging_unit.replication_factor > 0 || !protocol.replicates() {
        description.ours.coherence.protocol = protocol;
    }
    description.ours.coherence.write_back_buffer = between(1, 1 << 16) as u32;
    description.ours.memory.interleave = Bytes(64 * between(1, 1 << 40));
    description.ours.wire.header = Bytes(between(1, 4096));
    description.ours.wire.mask = Bytes(between(0, 64));
    description.ours.wire.commit = Bytes(between(0, 64));
    description.ours.replication.entries_per_cycle = between(1, 1 << 16) as u32;
    description.ours.replication.dump_entries_per_cycle = between(1, 1 << 16) as u32;
    description.ours.replication.log_entry = Bytes(between(16, 4096));
    description.ours.replication.replica_hash =
        [ReplicaHash::Multiply, ReplicaHash::Modulo][between(0, 1) as usize];
    description
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn printed_and_read_it_is_the_same(seed: u64) {
        let description = drawn(seed);
        prop_assert_eq!(description.check(), Ok(()));
        prop_assert_eq!(description.to_string().parse::<Description>(), Ok(description));
    }

    #[test]
    fn no_text_panics_the_reader(text in any::<String>()) {
        judge(&text)?;
    }

    #[test]
    fn no_spoilt_description_panics_the_reader(
        seed: u64,
        places in prop::collection::vec((any::<prop::sample::Index>(), 0..30usize, "[\\[\\]\"=.\n 0-9a-zµ#{},-]{0,6}"), 1..5),
    ) {
        let mut text: Vec<char> = drawn(seed).to_string().chars().collect();
        for (place, cut, insert) in &places {
            let from = place.index(text.len() + 1);
            let to = (from + cut).min(text.len());
            text.splice(from..to, insert.chars());
        }
        judge(&text.iter().collect::<String>())?;
    }

    #[test]
    fn no_quantity_panics_the_reader(number in "[0-9]{0,45}\\.?[0-9]{0,45}", unit in "[a-zA-Zµ/ ]{0,4}", field in 0..5usize) {
        let field = ["cxl.round_trip", "cxl.link_bandwidth", "system.cpu_frequency", "l1.latency", "l3.size"][field];
        for unit in ["ns", "s", "GB/s", "TB/s", "GHz", "cycles", "TiB", &unit] {
            judge(&format!("{field} = \"{number} {unit}\""))?;
        }
    }
}

/// Every error refers to a position in the text; every accepted description is possible and can be
/// printed.
fn judge(text: &str) -> Result<(), TestCaseError> {
    match text.parse::<Description>() {
        Ok(description) => {
            prop_assert_eq!(description.check(), Ok(()));
            prop_assert_eq!(
                description.to_string().parse::<Description>(),
                Ok(description)
            );
        }
        Err(error) => {
            let line = text.split('\n').nth(error.line - 1);
            prop_assert!(
                line.is_some_and(|line| error.column <= line.chars().count() + 1),
                "{}",
                error
            );
            prop_assert!(!error.what.is_empty() && !error.hint.is_empty());
        }
    }
    Ok(())
}
