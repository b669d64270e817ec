//! The recovery of a dead member's leases.

use super::directory::Directory;
use super::lease::{finish_retiring, give_up};
use super::record::{PENDING_CELL, clear_pending};
use crate::heap::{Heap, LocalHeap};
use crate::recovery::{RecoverError, RecoverRoom, Recoverers, Recovering};
use core::panic::AssertUnwindSafe;
use outlive_memory::{Memory, Ordering};
use std::panic::catch_unwind;

/// Adds the handler for leases of objects in `heap`. Add it after those of the heap and of the
/// structures.
///
/// ```
/// # use outlive::{heap, memory::{Native, Offset, PersistenceDomain}, recovery::Logs, sync};
/// # let memory = Native::leaked(1 << 20, PersistenceDomain::Flushed);
/// # let logs = Logs::new(memory, Offset::new(4096), 4);
/// # let (state, region) = (Offset::new(1 << 16), Offset::new(1 << 17));
/// use outlive::{heap::Heap, objects, structures};
///
/// let heap = Heap::create(memory, state, region, 100 * 4096)?;
/// let recoverers = heap::recoverers_of(heap::recoverers(sync::recoverers(logs)), heap);
/// let recoverers = objects::recoverers(structures::recoverers(recoverers, heap), heap);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn recoverers<M: Memory>(recoverers: Recoverers<M>, heap: Heap<M>) -> Recoverers<M> {
    recoverers.room(Leases(heap))
}

struct Leases<M: Memory>(Heap<M>);

impl<M: Memory> RecoverRoom<M> for Leases<M> {
    fn settle(&self, dead: &Recovering<'_, M>) -> Result<(), RecoverError> {
        let heap = LocalHeap::of_the_dead(self.0, dead);
        let (memory, id) = (heap.memory(), dead.owner().id);
        let directory = Directory::open(self.0);
        // Relaxed, here and below: acquired with the claim on the log.
        let held: u64 = memory.load(heap.pending_cell(PENDING_CELL), Ordering::Relaxed);
        let is_root = memory.load::<u64>(self.0.root(), Ordering::Relaxed) == held;
        // The dead member died after it had linked the block, and before it had cleared the cell.
        // In a damaged directory the block may be linked, so it is not freed.
        let is_kept = match &directory {
            Ok(Some(directory)) => directory.keeps(id, held),
            Ok(None) => false,
            Err(_) => true,
        };
        if held != 0 && (is_root || is_kept) {
            clear_pending(&heap);
        }
        if let Ok(Some(directory)) = &directory {
            let slots = directory.slots(id);
            slots.for_each(|slot| finish_retiring(&heap, directory, slot));
        }
        Ok(())
    }

    fn release(&self, dead: &Recovering<'_, M>) -> Result<(), RecoverError> {
        let directory = match Directory::open(self.0) {
            Ok(Some(directory)) => directory,
            Ok(None) => return Ok(()),
            Err(error) => {
                // The other work of the dead member does not depend on its leases.
                tracing::warn!(%error, "the leases of a dead member were not recovered");
                return Ok(());
            }
        };
        let heap = LocalHeap::of_the_dead(self.0, dead);
        for slot in directory.slots(dead.owner().id) {
            if heap.memory().load::<u64>(slot, Ordering::Relaxed) == 0 {
                continue;
            }
            let end = AssertUnwindSafe(|| give_up(&heap, &directory, slot, true));
            if catch_unwind(end).is_err() {
                // Damage. The other leases are given up.
                tracing::warn!(%slot, "a lease of a dead member could not be given up");
            }
        }
        Ok(())
    }
}
