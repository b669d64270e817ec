//! The fast paths of a free: into the thread's own slab, and into another instance's.

use super::LocalHeap;
use super::allocation_cache::GUESSES;
use super::buddy::{CorruptTree, FreeError};
use super::local::bad_cell;
use super::slab::{CLASSES, Class, Kind, SLAB, Slab, Step, Table};
use crate::membership::Instance;
use outlive_memory::{Link, Memory, Offset, Ordering};

outlive_memory::crash_points! {
    /// The crash points of a free of a slab's block.
    pub enum HeapFreePoint for "heap.free" {
        /// The step is recorded; the cell holds the block.
        Noted,
        /// The cell no longer holds the block; the block is allocated.
        Replaced,
        /// The block of the caller's own slab is free; the step is still recorded.
        FreedOwn,
        /// The block of another instance's slab is free; the step is still recorded.
        FreedRemote,
        /// The step is over.
        Done,
    }
}

impl<M: Memory> LocalHeap<'_, M> {
    /// Frees the block that the word at `cell` holds, and writes `instead` there, in one step.
    /// Returns the offset of the block. Tags in the word are ignored. The cell is the caller's, as
    /// in [`allocate_into`](Self::allocate_into).
    ///
    /// The block must not be used any more. (A block of another member's slab becomes available
    /// when that member next runs out of such blocks, or has departed; an idle member keeps it.) A
    /// block that was already freed or never allocated is refused, unless another thread frees the
    /// same block at the same time.
    ///
    /// # Errors
    /// See [`FreeError`]; nothing has changed in that case.
    ///
    /// # Crash
    /// After recovery the cell holds the block, which is allocated, or it holds `instead` and the
    /// block is free.
    #[inline]
    pub fn free_from(&self, cell: Offset, instead: u64) -> Result<Offset, FreeError> {
        let table = self.heap.table;
        let memory = table.memory;
        if self.is_quick(memory, cell) {
            // Relaxed: the cell is the caller's.
            let block = Link::from_word(memory.load(cell, Ordering::Relaxed)).offset();
            if let Some(from) = table.within(block) {
                let slab = table.slab_of(from);
                // The load of the block's bit would wait for the slab's class, that for the slab,
                // and all later loads for the address at which the bit is written. Therefore the
                // bit's position is guessed, and the class is loaded at the same time.
                let guess = &self.aids.inverses[slab.index() as usize % GUESSES];
                let (inverse, guessed) = (guess.get(), guess.get().start_of(from % SLAB));
                if table.owner_word(slab) == self.own {
                    let number = table.class_word(slab);
                    if let Some(class) = Class::checked(number)
                        && let Some(index) = if class.inverse == inverse {
                            guessed
                        } else {
                            guess.set(class.inverse);
                            class.start_of(from % SLAB)
                        }
                        && let Some(may_be_empty) =
                            self.free_own(table, slab, index, block, cell, instead)
                    {
                        if may_be_empty {
                            return self.freed_the_last(slab, block);
                        }
                        return Ok(block);
                    }
                }
            }
        }
        self.free_slowly(cell, instead)
    }

    /// Frees block `index` of one of the caller's own slabs. Returns `None` if it is not allocated,
    /// otherwise whether the slab may be empty now.
    #[inline(always)]
    fn free_own(
        &self,
        table: Table<M>,
        slab: Slab,
        index: u64,
        block: Offset,
        cell: Offset,
        instead: u64,
    ) -> Option<bool> {
        let (memory, place) = (table.memory, self.step);
        let word = table.local_word(slab, index);
        let allocated = table.allocated(word);
        let bit = index % 64;
        if allocated >> bit & 1 == 0 || table.freed_by_others(word) >> bit & 1 != 0 {
            return None;
        }
        let note = Step {
            kind: Kind::FreeOwn,
            block,
            cell,
            instead,
        };
        place.begin(memory, note);
        memory.crash_point(HeapFreePoint::Noted);
        // Release: after the record, and for readers of the value that the caller publishes.
        memory.store(cell, instead, Ordering::Release);
        memory.persist(cell, 8);
        memory.crash_point(HeapFreePoint::Replaced);
        let allocated = allocated & !(1 << bit);
        table.set_allocated(word, allocated);
        memory.crash_point(HeapFreePoint::FreedOwn);
        place.end(memory);
        memory.crash_point(HeapFreePoint::Done);
        Some(allocated == 0)
    }

    /// Finishes a free that left no allocated block in its word.
    #[cold]
    #[inline(never)]
    fn freed_the_last(&self, slab: Slab, block: Offset) -> Result<Offset, FreeError> {
        let number = self.heap.table.class_word(slab) as usize % CLASSES;
        if self.aids.current[number].slab.get() != u64::from(slab.index()) {
            self.check_empty(number, slab);
        }
        Ok(block)
    }

    /// Handles all cases outside the fast path.
    #[cold]
    #[inline(never)]
    fn free_slowly(&self, cell: Offset, instead: u64) -> Result<Offset, FreeError> {
        let (memory, table) = (self.heap.memory, &self.heap.table);
        if !memory.has_word::<u64>(cell) {
            return Err(FreeError::BadCell(bad_cell(memory, cell)));
        }
        // Relaxed: the cell is the caller's.
        let held = Link::from_word(memory.load(cell, Ordering::Relaxed));
        if held.is_null() {
            return Err(FreeError::CellEmpty { cell });
        }
        let block = held.offset();
        let Some(from) = table.within(block) else {
            return Err(self.outside(block));
        };
        let slab = table.slab_of(from);
        // Relaxed, as are the loads below: a thread that may free the block learnt of it after all
        // these stores, and no other instance's change can make a foreign slab the caller's.
        let owner: u64 = memory.load(table.owner(slab), Ordering::Relaxed);
        if owner == Instance::NONE {
            return self.free_large(block, cell, instead);
        }
        let number: u64 = memory.load(table.class(slab), Ordering::Relaxed);
        let Some(class) = Class::checked(number) else {
            return Err(self.no_class(slab));
        };
        let start = class.start_of(from % SLAB);
        let Some(index) = start.filter(|index| *index < u64::from(class.count)) else {
            return Err(self.not_a_start(slab, class, block, class.block_of(from % SLAB)));
        };
        if owner == self.own {
            return match self.free_own(*table, slab, index, block, cell, instead) {
                None => Err(FreeError::NotAllocated { block }),
                Some(false) => Ok(block),
                Some(true) => self.freed_the_last(slab, block),
            };
        }
        let (word, bit) = (index / 64, 1u64 << (index % 64));
        let at = table.remote(slab, word);
        let local: u64 = memory.load(table.local(slab, word), Ordering::Relaxed);
        let remote: u64 = memory.load(at, Ordering::Relaxed);
        if local & !remote & bit == 0 {
            return Err(FreeError::NotAllocated { block });
        }
        let note = Step {
            kind: Kind::FreeRemote,
            block,
            cell,
            instead,
        };
        self.step.begin(memory, note);
        memory.crash_point(HeapFreePoint::Noted);
        // Release: after the record, and for readers of the value that the caller publishes.
        memory.store(cell, instead, Ordering::Release);
        memory.persist(cell, 8);
        memory.crash_point(HeapFreePoint::Replaced);
        // Release: after the record, which the collector must see, and after the last use of the
        // block.
        memory.fetch_or(at, bit, Ordering::Release);
        memory.persist(at, 8);
        memory.crash_point(HeapFreePoint::FreedRemote);
        self.step.end(memory);
        memory.crash_point(HeapFreePoint::Done);
        Ok(block)
    }

    #[cold]
    pub(super) fn outside(&self, block: Offset) -> FreeError {
        let buddy = self.heap.buddy();
        FreeError::Outside {
            block,
            first: buddy.region(),
            end: buddy.region() + buddy.bytes(),
            unit: 16,
        }
    }

    #[cold]
    fn no_class(&self, slab: Slab) -> FreeError {
        FreeError::Corrupt(CorruptTree {
            at: self.heap.table.class(slab),
            what: "a slab has a class that does not exist",
        })
    }

    #[cold]
    fn not_a_start(&self, slab: Slab, class: Class, block: Offset, index: u64) -> FreeError {
        let start = self.heap.table.start(slab) + index * u64::from(class.size);
        if index < u64::from(class.count) {
            let bytes = class.size.into();
            FreeError::Inside {
                block,
                start,
                bytes,
            }
        } else {
            FreeError::NotAllocated { block }
        }
    }
}
