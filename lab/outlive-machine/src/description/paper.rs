//! Parameters that the paper gives (in Table II, or in its text), with its values as defaults.

use crate::engine::{Frequency, Time};

use super::quantity::{Bytes, Cycles, Rate};
use super::section::section;

/// Returns a frequency that is known to be valid.
const fn hertz(hertz: u64) -> Frequency {
    Frequency::from_hertz(hertz).expect("within range")
}

section! {
    /// System configuration.
    pub struct System {
        /// Compute nodes (CN), at most 32.
        pub compute_nodes: u32 = 16,
        /// Memory nodes (MN), at most 64.
        pub memory_nodes: u32 = 16,
        /// Clock of the processors and their caches.
        pub cpu_frequency: Frequency = hertz(2_400_000_000),
        /// Out-of-order cores in each compute node, at most 64.
        pub cores_per_node: u32 = 4,
        /// Entries of a core's load queue.
        pub load_queue: u32 = 128,
        /// Entries of a core's store queue.
        pub store_queue: u32 = 72,
    }
}

section! {
    /// A level of caches.
    pub struct Cache {
        /// Capacity.
        pub size: Bytes = Bytes::kibi(48),
        /// Associativity.
        pub ways: u32 = 12,
        /// From a request to its answer on a hit, including all levels before.
        pub latency: Cycles = Cycles(5),
    }
}

impl Cache {
    /// Returns the number of sets, with lines of 64 bytes; 0 if the cache has no ways.
    pub fn sets(&self) -> u64 {
        (self.size.0 / 64)
            .checked_div(u64::from(self.ways))
            .unwrap_or(0)
    }

    pub(super) fn l2() -> Self {
        Self {
            size: Bytes::kibi(512),
            ways: 8,
            latency: Cycles(13),
        }
    }

    pub(super) fn l3() -> Self {
        Self {
            size: Bytes::mebi(8),
            ways: 16,
            latency: Cycles(36),
        }
    }
}

section! {
    /// Local memory of each compute node, and the size of cache lines.
    pub struct LocalMemory {
        /// A cache line. It has 8 words of 8 bytes; no other size is supported.
        pub line_size: Bytes = Bytes(64),
        /// Memory of a node. The paper's GB, MB and KB of memory are read as binary, since memories
        /// have sizes of powers of two. Given for completeness: no simulated result depends on it.
        pub size: Bytes = Bytes::gibi(512),
    }
}

section! {
    /// CXL memory (of each memory node) and interconnect.
    pub struct Cxl {
        /// Access to a memory node's DRAM.
        pub dram_latency: Time = Time::from_nanos(45),
        /// Access to a memory node's persistent memory.
        pub pmem_latency: Time = Time::from_nanos(500),
        /// Bandwidth of a link between a node and the switch, in each direction.
        pub link_bandwidth: Rate = Rate::from_bytes_per_second(160_000_000_000).expect("not zero"),
        /// From a node through the switch to another and back, for messages without length on an
        /// idle network.
        pub round_trip: Time = Time::from_nanos(200),
    }
}

section! {
    /// Logging unit of each compute node.
    pub struct LoggingUnit {
        /// Clock of the unit.
        pub frequency: Frequency = hertz(500_000_000),
        /// SRAM log buffer, for entries that are not validated yet.
        pub sram_size: Bytes = Bytes::kibi(4),
        /// Access to the SRAM.
        pub sram_latency: Time = Time::from_nanos(4),
        /// DRAM log, for validated entries. When it is full, a dump begins early. Entries that
        /// arrive until it is cleared are appended, so that no sender waits, and the log may grow
        /// beyond this.
        pub log_size: Bytes = Bytes::mebi(18),
        /// The period of dumps of the log to the memory nodes.
        pub dump_period: Time = Time::from_micros(2_500),
        /// Compute nodes that log each store (N_r): the same ones for all stores to a line. At most
        /// all nodes, or all but one if the storing node's own unit is skipped
        /// (ours.replication.own_unit). 0: none, and the configurations that replicate cannot run.
        pub replication_factor: u32 = 3,
    }
}
