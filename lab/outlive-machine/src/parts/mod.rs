//! The parts that machines are put together from.
//!
//! A part is plain state. It has no events of its own: it is asked when something will be done, notes that it is busy until
//! then, and the machine schedules what follows. It serves requests in the order in which it is asked, so requests of one
//! instant are served in the order of their events. All parts are `Clone`, allocate nothing after creation, and depend on
//! nothing but their inputs.
//!
//! * [`CacheArray`]: a set-associative array of lines with their real values and what a protocol notes of each.
//! * [`Link`]: a bandwidth, a queue in front of it, and a time of flight.
//! * [`Fabric`]: the links of all nodes and the switch between them, which may reorder messages.
//! * [`Memory`]: banks of DRAM or persistent memory.
//! * [`WireSizes`]: how many bytes a message has.

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
