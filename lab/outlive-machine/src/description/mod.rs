//! The description of a machine: every parameter, read from TOML and printed as TOML.
//!
//! [`Description::default`] is the machine of the paper. A text names only the parameters that
//! differ from it. Parameters that the paper gives (its Table II) are in sections of their own;
//! those that it leaves open, and whose values we had to choose, are below `ours`, each with the
//! reason for its value. Quantities carry their units (`"48 KiB"`, `"200 ns"`, `"160 GB/s"`, `"2.4
//! GHz"`, `"5 cycles"`) and are read exactly.
//!
//! ```
//! use outlive_machine::description::{Bytes, Description};
//! use outlive_machine::engine::Time;
//!
//! let small: Description = r#"
//!     [system]
//!     compute_nodes = 4
//!     memory_nodes = 2
//!     [l3]
//!     size = "1 MiB"
//!     [ours.fabric]
//!     reorder_bound = "50 ns"
//! "#.parse()?;
//! assert_eq!(small.l3.size, Bytes::mebi(1));
//! assert_eq!(small.l3.ways, 16); // as in the paper
//! assert_eq!(small.ours.fabric.reorder_bound, Time::from_nanos(50));
//! // Printed, it is documented, and reads back to the same.
//! assert_eq!(small.to_string().parse::<Description>()?, small);
//!
//! let error = "[l3]\nways = 0".parse::<Description>().unwrap_err();
//! assert_eq!(error.to_string(), "line 2, column 8: a cache cannot have 0 ways; give from 1 to 64");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod check;
mod error;
mod ours;
mod paper;
mod parameter;
mod quantity;
mod read;
mod section;
mod sweep;

use std::fmt;

pub use error::{DescriptionError, Impossible};
pub use ours::{
    Coalescing, Coherence, Core, Fabric, Failure, Memories, OwnUnit, Protocol, ReplicaHash,
    Replication, Synchronising, Wire,
};
pub use paper::{Cache, Cxl, LocalMemory, LoggingUnit, System};
pub use quantity::{Bytes, Cycles, Rate};
pub use sweep::{SWEPT, Swept};

use section::Section;

/// Bytes in a cache line.
const LINE_BYTES: u64 = size_of::<crate::line::Line>() as u64;

/// A whole machine. The default is the paper's.
///
/// Reading a description checks it; a description that a program changed must be
/// [checked](Self::check).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// Nodes, cores, clocks.
    pub system: System,
    /// The first level of caches, one for each core.
    pub l1: Cache,
    /// The second level, one for each core.
    pub l2: Cache,
    /// The third level, one for each node, inclusive.
    pub l3: Cache,
    /// A compute node's own memory, and the size of lines.
    pub local_memory: LocalMemory,
    /// Memory nodes and links.
    pub cxl: Cxl,
    /// The logging units.
    pub logging_unit: LoggingUnit,
    /// Parameters that the paper does not give.
    pub ours: Ours,
}

/// Parameters that the paper does not give.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ours {
    /// Parameters of a core.
    pub core: Core,
    /// Parameters of coherence.
    pub coherence: Coherence,
    /// Parameters of the memories and directories.
    pub memory: Memories,
    /// Parameters of the fabric between nodes.
    pub fabric: Fabric,
    /// Sizes of messages.
    pub wire: Wire,
    /// Parameters of replication.
    pub replication: Replication,
    /// Parameters of failures.
    pub failure: Failure,
}

impl Default for Description {
    fn default() -> Self {
        Self {
            system: System::default(),
            l1: Cache::default(),
            l2: Cache::l2(),
            l3: Cache::l3(),
            local_memory: LocalMemory::default(),
            cxl: Cxl::default(),
            logging_unit: LoggingUnit::default(),
            ours: Ours::default(),
        }
    }
}

impl Description {
    /// Returns all sections: name, heading in a printed description, content.
    fn sections_mut(&mut self) -> [(&'static str, &'static str, &mut dyn Section); SECTIONS] {
        [
            ("system", "System configuration.", &mut self.system),
            ("l1", "First-level cache, one for each core.", &mut self.l1),
            ("l2", "Second-level cache, one for each core.", &mut self.l2),
            (
                "l3",
                "Third-level cache, shared by the cores of a node.",
                &mut self.l3,
            ),
            (
                "local_memory",
                "Local memory of each compute node.",
                &mut self.local_memory,
            ),
            (
                "cxl",
                "CXL memory (of each memory node) and interconnect.",
                &mut self.cxl,
            ),
            (
                "logging_unit",
                "Logging unit of each compute node.",
                &mut self.logging_unit,
            ),
            (
                OURS_BEGIN,
                "Cores. The paper's queues and private caches are those of Intel's Sunny Cove: \"that core\" below.",
                &mut self.ours.core,
            ),
            (
                "ours.coherence",
                "Coherence of shared memory, and its protection against the death of nodes.",
                &mut self.ours.coherence,
            ),
            (
                "ours.memory",
                "Memories, and how shared memory is placed on them.",
                &mut self.ours.memory,
            ),
            (
                "ours.fabric",
                "The network between the nodes.",
                &mut self.ours.fabric,
            ),
            (
                "ours.wire",
                "Message sizes on the wire.",
                &mut self.ours.wire,
            ),
            (
                "ours.replication",
                "Replica groups and log entries.",
                &mut self.ours.replication,
            ),
            ("ours.failure", "Failures of nodes.", &mut self.ours.failure),
        ]
    }
}

const SECTIONS: usize = 14;
/// The name of the first section below `ours`.
const OURS_BEGIN: &str = "ours.core";

/// Printed as TOML with all parameters, each with its documentation as a comment.
impl fmt::Display for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut copy = self.clone();
        let mut text = String::from("# Parameters of the paper (its Table II).\n");
        for (name, about, section) in copy.sections_mut() {
            if name == OURS_BEGIN {
                text.push_str(
                    "\n# Parameters that the paper does not give. Each comment gives the reason \
                               for the default.\n",
                );
            }
            text.push_str(&format!("\n# {about}\n[{name}]\n"));
            section.print(&mut text);
        }
        f.write_str(&text)
    }
}
