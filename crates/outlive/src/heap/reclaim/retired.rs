//! The list of blocks that an instance has retired and not freed.
//!
//! ```text
//!  retired   head     the block retired last; it leads to the one before it, and so on to 0
//!            owner    the instance whose LocalHeap serves the list, or 0
//! ```

use super::{BIRTH, BYTES_PER_WEIGHT, LocalHeap, NEXT, PATIENCE, UNTIL};
use crate::heap::scratch;
use crate::recovery::Log;
use outlive_memory::{Memory, Offset, Ordering};

pub(super) const HEAD: u64 = 0;
pub(super) const KEEPER: u64 = 8;

/// The `until` of a block that no reclaimer has checked yet.
const UNKNOWN: u64 = u64::MAX;

outlive_memory::crash_points! {
    /// The crash points of a retirement.
    pub enum RetirePoint for "heap.retire" {
        /// The block's words are written; it is not retired.
        Written,
        /// The block is retired.
        Retired,
    }
}

outlive_memory::crash_points! {
    /// The crash points of the freeing of retired blocks.
    pub enum ReclaimPoint for "heap.reclaim" {
        /// A block has got its `until`.
        Dated,
        /// A block is freed and off the list.
        Freed,
        /// An instance that ends holds no reservation any more.
        Unreserved,
        /// Its list has no keeper any more.
        Unkept,
        /// The rest of its list is counted as left.
        Left,
    }
}

impl<M: Memory> LocalHeap<'_, M> {
    /// Hands over a block that cannot be reached any more, except by instances that are pinned; it
    /// is freed when they are not. Exactly one instance retires a block. Wait-free, except for the
    /// earlier blocks that it frees outside a pin: see [`reclaim`](Self::reclaim).
    ///
    /// # Crash
    /// The block is retired or not. [`is_last_retired`](Self::is_last_retired) says which to the
    /// handler of an operation that died while retiring under a pin.
    pub fn retire(&self, block: Offset) {
        if self.reclaimer.pins.get() == 0 && self.reclaimer.is_due() {
            // Never under a pin, for the operation there may have retired a block and not recorded
            // it yet.
            self.reclaim();
        }
        let (memory, head) = (self.memory(), scratch::retired(self.log()) + HEAD);
        // Relaxed: only this thread writes the list.
        let before: u64 = memory.load(head, Ordering::Relaxed);
        memory.store(block + UNTIL, UNKNOWN, Ordering::Relaxed);
        memory.store(block + NEXT, before, Ordering::Relaxed);
        memory.persist(block, super::RETIRED_HEADER);
        memory.crash_point(RetirePoint::Written);
        // Release: a thread that takes the list over finds the block's words.
        memory.store(head, block.raw(), Ordering::Release);
        memory.persist(head, 8);
        memory.crash_point(RetirePoint::Retired);
        self.reclaimer.count.set(self.reclaimer.count.get() + 1);
        // The block is this thread's to free, so its size does not change.
        let bytes = self.heap.buddy.allocated_at(block).unwrap_or(0);
        let weight = 1 + bytes / BYTES_PER_WEIGHT;
        let before = self.reclaimer.weight.get();
        self.reclaimer.weight.set(before.saturating_add(weight));
        self.step();
    }

    /// Returns whether `block` is the last that this instance, or the dead instance, retired: for
    /// the handler of an operation that was interrupted under the pin of that retirement.
    pub fn is_last_retired(&self, block: Offset) -> bool {
        let head = scratch::retired(self.log()) + HEAD;
        self.memory().load::<u64>(head, Ordering::Acquire) == block.raw()
    }

    /// Frees the blocks that this instance retired and those that departed instances left, as far
    /// as no instance can be reading them. Returns how many of its own blocks had to stay. It runs
    /// by itself before an outermost pin, after some retirements (the larger the blocks, the fewer)
    /// and after an allocation that found no space; a program may also call it. The time
    /// grows with the number of ids and of retired blocks. It waits for a live holder of the buddy
    /// allocator's lock (or for the thread that recovers a dead one) when it frees one of its own
    /// blocks of more than [`Heap::LARGEST_SMALL`] bytes, and otherwise does not wait. The same
    /// holds for a [pin](Self::pin), a [retirement](Self::retire) and the end of this heap handle,
    /// when they free blocks that were retired before.
    ///
    /// Under a pin it does nothing, and returns the minimal number of blocks in the list.
    ///
    /// [`Heap::LARGEST_SMALL`]: super::Heap::LARGEST_SMALL
    ///
    /// # Crash
    /// Every block is free, or in the list.
    pub fn reclaim(&self) -> u64 {
        if self.reclaimer.pins.get() != 0 {
            // The operation there may have retired a block and not recorded it yet.
            return self.reclaimer.count.get();
        }
        self.free_for_departed();
        let kept = self.free_retired();
        self.reclaimer.count.set(kept);
        self.reclaimer.weight.set(kept);
        self.reclaimer.due.set(2 * kept + PATIENCE);
        kept
    }

    /// Returns the number of bytes of the blocks in this log's list.
    pub(in crate::heap) fn retired_bytes(&self) -> u64 {
        if self.reclaimer.count.get() == 0 {
            return 0;
        }
        let list = blocks_by_cell(self.memory(), self.log());
        // The blocks are this thread's to free, so their sizes do not change.
        let bytes = |block| self.heap.allocated_bytes(block).unwrap_or(0);
        list.map_while(|(_, found)| found.ok()).map(bytes).sum()
    }

    /// Frees the blocks in this log's list that can be freed, and returns the number of the others.
    pub(super) fn free_retired(&self) -> u64 {
        let memory = self.memory();
        let mut cell = scratch::retired(self.log()) + HEAD;
        if memory.load::<u64>(cell, Ordering::Relaxed) == 0 {
            return 0;
        }
        // A reader that does not see the unlinking before this fence is seen reading.
        memory.fence(Ordering::SeqCst);
        let now = self.heap().present_era();
        let mut reservations = self.reclaimer.reservations.borrow_mut();
        self.reservations(&mut reservations);
        let mut kept = 0;
        // A damaged list may be a ring.
        let most = memory.size() / super::RETIRED_HEADER;
        while kept <= most {
            // Relaxed, here and below: the list is this thread's, or was acquired with the claim.
            let word: u64 = memory.load(cell, Ordering::Relaxed);
            if word == 0 {
                break;
            }
            let block = Offset::checked(word, super::RETIRED_HEADER, 8, memory.size());
            let inside = |block: &Offset| self.heap.table.within(*block).is_some();
            let block = block.ok().filter(inside);
            let Some(block) = block else {
                // Damage: the rest of the list stays as it is, and `pod check` reports it.
                kept += 1;
                break;
            };
            let birth: u64 = memory.load(block + BIRTH, Ordering::Relaxed);
            let mut until: u64 = memory.load(block + UNTIL, Ordering::Relaxed);
            if until == UNKNOWN {
                until = now;
                memory.store(block + UNTIL, now, Ordering::Relaxed);
                memory.crash_point(ReclaimPoint::Dated);
            }
            let next: u64 = memory.load(block + NEXT, Ordering::Relaxed);
            let read = reservations.iter().any(|one| one.meets(birth, until));
            // A word that leads to no block stays for `pod check` to report.
            if read || self.free_from(cell, next).is_err() {
                kept += 1;
                cell = block + NEXT;
            } else {
                memory.crash_point(ReclaimPoint::Freed);
            }
        }
        kept
    }
}

/// Returns the list of `log`: each word that leads on, and the block that it leads to or, at last,
/// a value that cannot be a block.
pub(super) fn blocks_by_cell<M: Memory>(
    memory: M,
    log: Log<M>,
) -> impl Iterator<Item = (Offset, Result<Offset, u64>)> {
    let mut cell = Some(scratch::retired(log) + HEAD);
    // A damaged list may be a ring.
    let most = memory.size() / super::RETIRED_HEADER;
    (0..most).map_while(move |_| {
        let at = cell?;
        // Acquire: the words of a block that is seen in the list have been written.
        let word: u64 = memory.load(at, Ordering::Acquire);
        if word == 0 {
            return None;
        }
        let block = Offset::checked(word, super::RETIRED_HEADER, 8, memory.size());
        cell = block.as_ref().ok().map(|&block| block + NEXT);
        Some((at, block.map_err(|_| word)))
    })
}
