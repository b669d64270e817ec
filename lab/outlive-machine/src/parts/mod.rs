//! The parts of machines.
//!
//! A part is plain state without events of its own. The machine asks it when something will be
//! done; it notes that it is busy until then, and the machine schedules the consequences. It serves
//! requests in the order of the calls, so requests of one instant are served in the order of their
//! events. All parts are `Clone`, allocate nothing after creation, and depend only on their inputs.
//!
//! * [`CacheArray`]: a set-associative array of lines, each with real values and a protocol's
//!   state.
//! * [`Link`]: a bandwidth, a queue in front of it, and a time of flight.
//! * [`Fabric`]: the links of all nodes and the switch between them, which may reorder messages.
//! * [`Memory`]: banks of DRAM or persistent memory.
//! * [`WireSizes`]: the sizes of messages.

mod cache;
mod fabric;
mod link;
mod memory;
mod wire;

pub use cache::{CacheArray, Slot, Victim};
pub use fabric::{Fabric, Port};
pub use link::{Link, LinkCounts, Passage};
pub use memory::{Memory, MemoryCounts};
pub use wire::{Content, HEADER_FIELDS, WireSizes};
