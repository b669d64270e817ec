//! The fast path of an allocation: a block of the thread's own slab, in one step.

use super::LocalHeap;
use super::buddy::AllocateError;
use super::local::bad_cell;
use super::slab::{Class, Kind, LARGEST, Step, class};
use outlive_memory::{Memory, Offset, Ordering};

outlive_memory::crash_points! {
    /// The crash points of an allocation from a slab.
    pub enum HeapAllocatePoint for "heap.allocate" {
        /// The step is recorded; the block is free.
        Noted,
        /// The block is allocated; the cell is empty.
        Marked,
        /// The cell holds the block; the step is still recorded.
        Published,
        /// The step is over.
        Done,
    }
}

impl<M: Memory> LocalHeap<'_, M> {
    /// Allocates a block of at least `bytes`, uninitialised, and writes its offset into the word at
    /// `cell`, which is 0 before, in one step. The block is aligned to 16 bytes.
    ///
    /// The cell is the caller's: no other thread writes to it during the call or, should the caller
    /// die in it, before the caller has been recovered. Any thread may read it; one that reads the
    /// offset (with acquire) finds the block allocated. The call needs no operation descriptor, so
    /// an operation may be running.
    ///
    /// # Errors
    /// See [`AllocateError`]; nothing has changed in that case.
    ///
    /// # Panics
    /// If this is the heap handle of a recovering thread.
    ///
    /// # Crash
    /// After recovery the cell holds a block that is allocated, or 0 and nothing was allocated.
    #[inline]
    pub fn allocate_into(&self, bytes: u64, cell: Offset) -> Result<Offset, AllocateError> {
        let memory = self.heap.table.memory;
        if bytes <= LARGEST
            && self.is_quick(memory, cell)
            // Relaxed: the cell is the caller's.
            && memory.load::<u64>(cell, Ordering::Relaxed) == 0
            && let Some(block) = self.take(class::of(bytes), cell)
        {
            return Ok(block);
        }
        self.allocate_slowly(bytes, cell)
    }

    /// Handles all cases outside the fast path.
    #[cold]
    #[inline(never)]
    fn allocate_slowly(&self, bytes: u64, cell: Offset) -> Result<Offset, AllocateError> {
        let memory = self.heap.memory;
        if !memory.has_word::<u64>(cell) {
            return Err(AllocateError::BadCell(bad_cell(memory, cell)));
        }
        // Relaxed: the cell is the caller's.
        let holds: u64 = memory.load(cell, Ordering::Relaxed);
        if holds != 0 {
            return Err(AllocateError::CellOccupied { cell, holds });
        }
        if bytes > LARGEST {
            return self.allocate_large(bytes, cell);
        }
        let number = class::of(bytes);
        loop {
            if let Some(block) = self.take(number, cell) {
                return Ok(block);
            }
            if !self.next_word(number) {
                self.refill(number, bytes)?;
            }
        }
    }

    /// Moves to a word of the current slab with a free block.
    fn next_word(&self, number: usize) -> bool {
        let (table, current) = (&self.heap.table, &self.aids.current[number]);
        let Some(slab) = table.slab(current.slab.get()) else {
            return false;
        };
        let class = Class::get(number);
        let word = table.next_with_room(slab, class, current.word.get());
        word.is_some_and(|word| {
            current.set(table, slab, number, word);
            true
        })
    }

    /// Takes a block from the current word of a class.
    #[inline(always)]
    fn take(&self, number: usize, cell: Offset) -> Option<Offset> {
        // Copies, in registers: as far as the compiler knows, the stores below may alias the
        // originals.
        let (table, place) = (self.heap.table, self.step);
        let memory = table.memory;
        let current = &self.aids.current[number];
        let word = current.word.get();
        let allocated = table.allocated(word);
        let mut free = current.free.get();
        if free == 0 {
            free = !allocated & current.mask.get();
            if free == 0 {
                return None;
            }
        }
        current.free.set(free & (free - 1));
        let index = u64::from(free.trailing_zeros());
        if allocated >> index & 1 != 0 {
            // Only this handle sets bits of the word: only damage leads here.
            return None;
        }
        let block = current.first.get() + index * current.size.get();
        let note = Step {
            kind: Kind::Allocate,
            block,
            cell,
            instead: 0,
        };
        place.begin(memory, note);
        memory.crash_point(HeapAllocatePoint::Noted);
        table.set_allocated(word, allocated | 1 << index);
        memory.crash_point(HeapAllocatePoint::Marked);
        // Release: after the bit; a thread that finds the block finds it allocated.
        memory.store(cell, block.raw(), Ordering::Release);
        memory.persist(cell, 8);
        memory.crash_point(HeapAllocatePoint::Published);
        place.end(memory);
        memory.crash_point(HeapAllocatePoint::Done);
        Some(block)
    }
}
