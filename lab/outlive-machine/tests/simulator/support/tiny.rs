//! A machine whose caches have a few lines, which forces every race.

use outlive_machine::description::{Description, Protocol};

/// The parameters that tests vary.
#[derive(Clone, Copy)]
pub struct Tiny {
    pub protocol: Protocol,
    pub nodes: u32,
    /// The cores of each node.
    pub cores: u32,
    /// The replication factor.
    pub factor: u32,
    /// The time between two dumps.
    pub period: &'static str,
    pub log: &'static str,
    pub quantum: &'static str,
    pub reorder: &'static str,
}

impl Tiny {
    pub fn new(protocol: Protocol) -> Self {
        Self {
            protocol,
            nodes: 4,
            cores: 2,
            factor: 3,
            period: "2.5 ms",
            log: "18 MiB",
            quantum: "20 ns",
            reorder: "50 ns",
        }
    }

    pub fn description(self) -> Description {
        let Self {
            nodes,
            cores,
            factor,
            period,
            log,
            quantum,
            reorder,
            ..
        } = self;
        let protocol = self.protocol.name();
        format!(
            r#"
            [system]
            compute_nodes = {nodes}
            memory_nodes = 2
            cores_per_node = {cores}
            [l1]
            size = "128 B"
            ways = 1
            [l2]
            size = "256 B"
            ways = 2
            [l3]
            size = "512 B"
            ways = 2
            [logging_unit]
            sram_size = "192 B"
            dump_period = "{period}"
            log_size = "{log}"
            replication_factor = {factor}
            [ours.core]
            quantum = "{quantum}"
            l1_misses = 3
            store_buffer = 8
            [ours.coherence]
            protocol = "{protocol}"
            write_back_buffer = 1
            [ours.fabric]
            reorder_bound = "{reorder}"
            [ours.memory]
            interleave = "64 B"
            [ours.failure]
            detection = "300 ns"
            "#
        )
        .parse()
        .expect("a machine that can be")
    }
}
