//! Memory from a segment: a buddy allocator for large blocks, slabs for small ones, reclamation.
//!
//! [`buddy`] hands out blocks of a few KiB up to the whole region, under one recoverable lock. What
//! stands above it cuts them up.

pub mod buddy;

use crate::recovery::Recoverers;
use outlive_memory::Memory;

/// Adds the handlers for the operations of this room.
///
/// ```
/// # use outlive::{heap, memory::{Native, Offset, PersistenceDomain}, recovery::Logs, sync};
/// # let memory = Native::leaked(1 << 16, PersistenceDomain::Flushed);
/// let logs = Logs::new(memory, Offset::new(4096), 4);
/// let recoverers = heap::recoverers(sync::recoverers(logs));
/// ```
pub fn recoverers<M: Memory>(recoverers: Recoverers<M>) -> Recoverers<M> {
    buddy::recoverers(recoverers)
}
