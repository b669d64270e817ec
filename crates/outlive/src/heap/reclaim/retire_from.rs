//! Retirement out of a cell: for a block on a word of the caller's own that others may be reading.

use super::LocalHeap;
use crate::heap::Heap;
use crate::recovery::kinds::CoreOperation;
use crate::recovery::{
    Operation, OperationKind, OwnLog, RecoverError, RecoverOperation, Recoverers, Recovering,
};
use outlive_memory::{Link, Memory, Offset, Ordering};

/// Retires out of a cell. Arguments: the cell, the block.
const RETIRE_FROM: OperationKind = CoreOperation::RetireFrom.kind();

outlive_memory::crash_points! {
    /// The crash points of a retirement out of a cell.
    pub enum RetireFromPoint for "heap.retire_from" {
        /// The block is retired; the cell still leads to it.
        Retired,
        /// The cell is 0.
        Cleared,
    }
}

impl<M: Memory> LocalHeap<'_, M> {
    /// [Retires](Self::retire) the block that the word at `cell` holds, and clears the word.
    /// Returns the offset of the block, or `None` if the word is 0. It is
    /// [`free_from`](Self::free_from) for blocks that other members may be reading: the cell is the
    /// caller's, tags in its word are ignored, and the block begins with a [`RETIRED_HEADER`].
    ///
    /// It is an operation of its own in the caller's log, where none may be running. Wait-free,
    /// except for the blocks that a [pin](Self::pin) may free before.
    ///
    /// [`RETIRED_HEADER`]: super::RETIRED_HEADER
    ///
    /// # Crash
    /// After recovery the cell holds the block, which is not retired, or it holds 0 and the block
    /// is retired, once.
    pub fn retire_from(&self, cell: Offset) -> Option<Offset> {
        let memory = self.memory();
        // Relaxed: the cell is the caller's.
        let held = Link::from_word(memory.load(cell, Ordering::Relaxed));
        if held.is_null() {
            return None;
        }
        let block = held.offset();
        // No block is taken off the list under the pin, so the handler sees whether this block was
        // the last to be put there.
        let _pin = self.pin();
        let arguments = [cell.raw(), block.raw()];
        let operation = OwnLog::of(self.member()).begin(RETIRE_FROM, &arguments);
        self.retire(block);
        memory.crash_point(RetireFromPoint::Retired);
        clear(memory, cell);
        memory.crash_point(RetireFromPoint::Cleared);
        operation.finish(&[]);
        Some(block)
    }
}

fn clear<M: Memory>(memory: M, cell: Offset) {
    // Release: after the retirement.
    memory.store(cell, 0u64, Ordering::Release);
    memory.persist(cell, 8);
}

/// Adds the recovery handler for retirements out of cells.
pub(in crate::heap) fn recoverers<M: Memory>(
    recoverers: Recoverers<M>,
    heap: Heap<M>,
) -> Recoverers<M> {
    recoverers.operation(RETIRE_FROM, Retirement { heap })
}

/// Takes effect in any case: retired or not, the block hangs on the cell until that is cleared.
struct Retirement<M: Memory> {
    heap: Heap<M>,
}

impl<M: Memory> RecoverOperation<M> for Retirement<M> {
    fn recover(&self, dead: &Recovering<'_, M>, operation: &Operation) -> Result<(), RecoverError> {
        let (heap, memory) = (LocalHeap::of_the_dead(self.heap, dead), self.heap.memory());
        let [cell, block, ..] = operation.arguments;
        let (cell, block) = (Offset::from_raw(cell), Offset::from_raw(block));
        if !memory.has_word::<u64>(cell) {
            let why = format!(
                "{cell}, the cell from which {} retired a block, is not a word of the memory",
                dead.owner()
            );
            return Err(RecoverError::Handler(why));
        }
        if Link::from_word(memory.load(cell, Ordering::Acquire)).offset() == block {
            if !heap.is_last_retired(block) {
                heap.retire(block);
            }
            clear(memory, cell);
        }
        dead.running(operation).finish(&[]);
        Ok(())
    }
}
