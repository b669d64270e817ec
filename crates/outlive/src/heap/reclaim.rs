//! Safe reclamation: a block that others may still be reading is freed when nobody is.

use super::{Heap, LocalHeap};
use crate::recovery::Recovering;
use outlive_memory::{Memory, Offset, Ordering};

/// While it exists, no block that its holder reaches is freed.
#[derive(Debug)]
pub struct Pinned<'h, M: Memory> {
    heap: &'h LocalHeap<'h, M>,
}

impl<M: Memory> LocalHeap<'_, M> {
    /// Begins to read what others may retire.
    pub fn pin(&self) -> Pinned<'_, M> {
        Pinned {
            heap: self.shortened(),
        }
    }

    /// The era that a new block is born in: the first word of every block that will be retired, written
    /// before the block is linked to anything.
    pub fn era(&self) -> u64 {
        1
    }

    /// Hands over a block that nobody can reach any more, except those that are pinned.
    pub fn retire(&self, block: Offset) {
        let _ = block;
    }
}

impl<M: Memory> Pinned<'_, M> {
    /// Reads a link (acquire); what it leads to stays allocated while this pin exists.
    pub fn load(&self, at: Offset) -> u64 {
        self.heap.memory().load(at, Ordering::Acquire)
    }
}

/// Gives up what the dead had reserved and retired.
pub(super) fn release<M: Memory>(_: &Recovering<'_, M>, _: Heap<M>) {}
