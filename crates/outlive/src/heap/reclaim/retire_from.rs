//! Retiring out of a cell: for what hangs on a word of the caller's own, and others may be reading.

use super::LocalHeap;
use crate::heap::Heap;
use crate::recovery::{
    Operation, OperationKind, OwnLog, RecoverError, RecoverOperation, Recoverers, Recovering,
};
use outlive_memory::{Link, Memory, Offset, Ordering};

/// Retires out of a cell. Arguments: the cell, the block.
const RETIRE_FROM: OperationKind = OperationKind::new(0x180);

outlive_memory::crash_points! {
    /// Where a retirement out of a cell may be cut short.
    pub enum RetireFromPoint for "heap.retire_from" {
        /// The block is retired; the cell leads to it still.
        Retired,
        /// The cell is 0.
        Cleared,
    }
}

impl<M: Memory> LocalHeap<'_, M> {
    /// [Retires](Self::retire) the block that the word at `cell` holds, and clears the word; returns where the block is, or
    /// `None` if the word is 0. What [`free_from`](Self::free_from) is for blocks that nobody can be reading: the cell is
    /// the caller's, tags in its word are not looked at, and the block begins with a [`RETIRED_HEADER`].
    ///
    /// It is an operation of its own in the caller's log, where none may be running. Wait-free, but for what a
    /// [pin](Self::pin) may free before.
    ///
    /// [`RETIRED_HEADER`]: super::RETIRED_HEADER
    ///
    /// # Crash
    /// After recovery the cell holds the block, which is not retired, or 0, and the block is retired, once.
    pub fn retire_from(&self, cell: Offset) -> Option<Offset> {
        let memory = self.memory();
        // Relaxed: the cell is the caller's.
        let held = Link::from_word(memory.load(cell, Ordering::Relaxed));
        if held.is_null() {
            return None;
        }
        let block = held.offset();
        // Nothing is taken off the list under it: so the handler sees whether this block was put there last.
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
    // Release: it is retired before.
    memory.store(cell, 0u64, Ordering::Release);
    memory.persist(cell, 8);
}

/// Adds the handler for what was retired out of cells.
pub(in crate::heap) fn recoverers<M: Memory>(
    recoverers: Recoverers<M>,
    heap: Heap<M>,
) -> Recoverers<M> {
    recoverers.operation(RETIRE_FROM, Retirement { heap })
}

/// It takes effect in any event: retired or not, the block hangs on the cell until that is cleared.
struct Retirement<M: Memory> {
    heap: Heap<M>,
}

impl<M: Memory> RecoverOperation<M> for Retirement<M> {
    fn recover(&self, dead: &Recovering<'_, M>, operation: &Operation) -> Result<(), RecoverError> {
        let (heap, memory) = (LocalHeap::of_the_dead(self.heap, dead), self.heap.memory());
        let [cell, block, ..] = operation.arguments;
        let (cell, block) = (Offset::from_raw(cell), Offset::from_raw(block));
        if !memory.has_word::<u64>(cell) {
            let why = format!("{cell}, out of which {} retired, is no word", dead.owner());
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
