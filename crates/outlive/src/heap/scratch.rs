//! The layout of the heap's words in the scratch area of an instance's log.
//!
//! ```text
//!  0x000  step          the small allocation or free that the owner is executing
//!  0x020  tenant        the last instance that had slabs
//!  0x040  reservation   the eras in which the owner may still be reading
//!  0x080  retired       blocks that it retired and has not freed
//!  0x0c0  pending       cells for blocks that are allocated and not linked yet
//! ```

use crate::recovery::Log;
use outlive_memory::{Memory, Offset};

/// The offset in the scratch area of the first word that can lead to a block: the retired blocks
/// and the pending-allocation cells are here, and the words of other modules and of the program
/// follow.
pub(crate) const PENDING_AT: u64 = 0x80;

/// The number of pending-allocation cells of an instance.
pub(super) const PENDING_CELLS: u64 = 8;

pub(super) fn step<M: Memory>(log: Log<M>) -> Offset {
    log.room()
}

pub(super) fn tenant<M: Memory>(log: Log<M>) -> Offset {
    log.room() + 0x20
}

pub(super) fn reservation<M: Memory>(log: Log<M>) -> Offset {
    log.room() + 0x40
}

pub(super) fn retired<M: Memory>(log: Log<M>) -> Offset {
    log.room() + PENDING_AT
}

pub(super) fn pending_cell<M: Memory>(log: Log<M>, number: u64) -> Offset {
    assert!(
        number < PENDING_CELLS,
        "an instance has {PENDING_CELLS} pending-allocation cells"
    );
    log.room() + 0xC0 + number * 8
}
