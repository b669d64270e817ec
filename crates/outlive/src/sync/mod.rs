//! Locks that outlive their owners.

use crate::recovery::{Logs, Recoverers};
use outlive_memory::Memory;

/// The handlers for the locks of this room; the rooms above add theirs.
pub fn recoverers<M: Memory>(logs: Logs<M>) -> Recoverers<M> {
    Recoverers::bare(logs)
}
