//! Empties the pending-allocation cells of a member that has no more use for them.

use super::buddy::FreeError;
use super::{LocalHeap, scratch};
use crate::recovery::OwnLog;
use outlive_memory::{Memory, Ordering};

impl<M: Memory> LocalHeap<'_, M> {
    /// Returns whether the member is idle: it has no operation running, whose handler would decide
    /// about its pending-allocation cells, and no step. A panic may have interrupted either.
    pub(crate) fn is_idle(&self) -> bool {
        let member = self.member();
        let at_rest = match OwnLog::of(member).log().operation() {
            Ok(last) => last.is_none_or(|last| last.instance != self.instance() || last.is_done()),
            Err(_) => false,
        };
        // Relaxed: the member's own word.
        at_rest && self.memory().load::<u64>(self.step_at(), Ordering::Relaxed) == 0
    }

    /// Frees the blocks in the member's pending-allocation cells if it is idle. Otherwise it cannot
    /// leave, and its recovery settles them.
    pub(super) fn free_pending_blocks(&self) {
        if (0..scratch::PENDING_CELLS).any(|number| self.holds(number)) && self.is_idle() {
            let full = (0..scratch::PENDING_CELLS).filter(|&number| self.holds(number));
            full.for_each(|number| self.free_pending_block(number));
        }
    }

    fn holds(&self, number: u64) -> bool {
        // Relaxed: the member's own word.
        self.memory()
            .load::<u64>(self.pending_cell(number), Ordering::Relaxed)
            != 0
    }

    fn free_pending_block(&self, number: u64) {
        let (memory, pending) = (self.memory(), self.pending_cell(number));
        match self.free_from(pending, 0) {
            Ok(_) => {}
            // The value in the cell is not a block.
            Err(
                FreeError::Outside { .. }
                | FreeError::NotAllocated { .. }
                | FreeError::Inside { .. }
                | FreeError::CellEmpty { .. },
            ) => {
                memory.store(pending, 0u64, Ordering::Relaxed);
                memory.persist(pending, 8);
            }
            // The block is still the caller's. The next owner of the log finds it in the cell.
            Err(_) => {}
        }
    }
}
