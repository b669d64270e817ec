//! The short ways of a free: into the thread's own slab, and into another's.

use super::LocalHeap;
use super::aids::GUESSES;
use super::buddy::{CorruptTree, FreeError};
use super::local::bad_cell;
use super::slab::{CLASSES, Class, Kind, SLAB, Slab, Step, Table};
use crate::membership::Instance;
use outlive_memory::{Link, Memory, Offset, Ordering};

outlive_memory::crash_points! {
    /// Where a free of a slab's block may be cut short.
    pub enum HeapFreePoint for "heap.free" {
        /// The step is noted; the cell holds the block.
        Noted,
        /// The cell does not; the block is allocated.
        Replaced,
        /// The block of the caller's own slab is free; the step is noted still.
        FreedOwn,
        /// The same of another's slab.
        FreedRemote,
        /// It is over.
        Done,
    }
}

impl<M: Memory> LocalHeap<'_, M> {
    /// Frees the block that the word at `cell` holds, and writes `instead` there, in one step; returns where
    /// the block was. Tags in the word are not looked at. The cell is the caller's, as in
    /// [`allocate_into`](Self::allocate_into).
    ///
    /// Nobody may use the block any more. (One of another member's slab is of use again when that member next runs
    /// out of such blocks, or is gone: one that is idle keeps it.) What is freed twice, or was never allocated, is refused, as long as
    /// nobody else frees the same block at the same time.
    ///
    /// # Errors
    /// See [`FreeError`]; nothing is changed then.
    ///
    /// # Crash
    /// After recovery the cell holds the block, which is allocated, or `instead`, and the block is free.
    #[inline]
    pub fn free_from(&self, cell: Offset, instead: u64) -> Result<Offset, FreeError> {
        let table = self.heap.table;
        let memory = table.memory;
        if self.is_quick(memory, cell) {
            // Relaxed: the cell is the caller's.
            let block = Link::from_word(memory.load(cell, Ordering::Relaxed)).offset();
            if let Some(from) = table.within(block) {
                let slab = table.slab_of(from);
                // Where the block's bit is would wait for the slab's class and that for the slab, and all later
                // loads for where the bit is written. So it is guessed, and the class is asked meanwhile.
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

    /// Frees block `index` of a slab of one's own, if it is allocated; whether the slab may be empty now, and of no
    /// use.
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
        // Release: after the note, and for whoever reads what the caller publishes.
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

    /// What a free ends with when there is no other block in its word.
    #[cold]
    #[inline(never)]
    fn freed_the_last(&self, slab: Slab, block: Offset) -> Result<Offset, FreeError> {
        let number = self.heap.table.class_word(slab) as usize % CLASSES;
        if self.aids.current[number].slab.get() != u64::from(slab.index()) {
            self.look_whether_empty(number, slab);
        }
        Ok(block)
    }

    /// All that is not the usual.
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
        // Relaxed, as are the loads below: whoever may free the block has learnt of it after all this was
        // written, and nobody else's change can make a stranger's slab the caller's own.
        let owner: u64 = memory.load(table.owner(slab), Ordering::Relaxed);
        if owner == Instance::NOBODY {
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
        // Release: after the note, and for whoever reads what the caller publishes.
        memory.store(cell, instead, Ordering::Release);
        memory.persist(cell, 8);
        memory.crash_point(HeapFreePoint::Replaced);
        // Release: after the note, which the collector must see, and after the last use of the block.
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
            what: "a slab has a class that there is not",
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
