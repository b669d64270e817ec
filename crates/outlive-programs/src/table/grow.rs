//! The growth of a table: its block of entries is replaced by one twice as large, and long keys are
//! kept in an arena.
//!
//! The argument is at the top of [the table](super).

use super::{
    ARENA, ARENA_BLOCK, ARENA_HEAD, ARENA_USED, BLOCK, ENTRY, GrowPoint, LOG2, NEXT, Table,
    TableError, USED,
};
use outlive::heap::buddy::AllocateError;
use outlive::memory::{Memory, Offset, Ordering};

impl<M: Memory> Table<'_, M> {
    pub(super) fn free_index(&self, entries: Offset, mask: u64, home: u64) -> u64 {
        let mut index = home;
        let meta_at = |index: u64| entries + (index & mask) * ENTRY;
        while self
            .place
            .memory
            .load::<u64>(meta_at(index), Ordering::Relaxed)
            != 0
        {
            index += 1;
        }
        index
    }

    /// Copies a long key into the arena.
    pub(super) fn keep(&mut self, key: &[u8]) -> Result<Offset, TableError> {
        let (place, memory) = (self.place, self.place.memory);
        let bytes = (key.len() as u64).next_multiple_of(8);
        let arena = Offset::from_raw(place.word(ARENA));
        let room = match arena.is_null() {
            true => 0,
            false => memory.load::<u64>(arena + 8, Ordering::Relaxed) - place.word(ARENA_USED),
        };
        if room < bytes {
            // Smaller blocks are for small regions.
            let block = ARENA_BLOCK.min(self.blocks.buddy.bytes() / 64);
            self.grow_arena(block.max(bytes + ARENA_HEAD))?;
        }
        let used = place.word(ARENA_USED);
        let at = Offset::from_raw(place.word(ARENA)) + used;
        memory.copy_in(at, key);
        place.set(ARENA_USED, used + bytes);
        Ok(at)
    }

    fn grow_arena(&mut self, bytes: u64) -> Result<(), TableError> {
        let (place, blocks) = (self.place, self.blocks);
        let locked = blocks
            .buddy
            .lock(blocks.member, blocks.recoverers)
            .map_err(AllocateError::from)?;
        let mut change = locked.redo().map_err(AllocateError::from)?;
        let block = locked.allocate(&mut change, bytes)?;
        let stores = [
            (block, place.word(ARENA)),
            (block + 8, bytes),
            (place.header + ARENA, block.raw()),
            (place.header + ARENA_USED, ARENA_HEAD),
        ];
        for (at, word) in stores {
            change.store(at, word).map_err(AllocateError::from)?;
        }
        change.commit();
        place.memory.crash_point(GrowPoint::ArenaGrown);
        Ok(())
    }

    /// Moves the table to a block with `1 << log2` entries.
    #[cold]
    pub(super) fn move_to(&mut self, log2: u32) -> Result<(), TableError> {
        let (place, memory, blocks) = (self.place, self.place.memory, self.blocks);
        let capacity = 1u64 << log2;
        let cell = place.header + NEXT;
        let new = blocks.allocate_into(capacity * ENTRY, cell)?;
        memory.crash_point(GrowPoint::Allocated);
        clear(memory, new, capacity * ENTRY);
        let old = Offset::from_raw(place.word(BLOCK));
        // Counted again: a worker that died right after inserting a key had not counted it.
        let mut used = 0;
        if !old.is_null() {
            for index in 0..1u64 << place.word(LOG2) {
                let from = old + index * ENTRY;
                let meta: u64 = memory.load(from, Ordering::Relaxed);
                if meta != 0 {
                    used += 1;
                    let home = meta >> (64 - log2);
                    let index = self.free_index(new, capacity - 1, home) & (capacity - 1);
                    for word in (0..ENTRY).step_by(8) {
                        let value: u64 = memory.load(from + word, Ordering::Relaxed);
                        memory.store(new + (index * ENTRY + word), value, Ordering::Relaxed);
                    }
                }
            }
        }
        memory.crash_point(GrowPoint::Filled);
        let locked = blocks
            .buddy
            .lock(blocks.member, blocks.recoverers)
            .map_err(AllocateError::from)?;
        let mut change = locked.redo().map_err(AllocateError::from)?;
        if !old.is_null() {
            locked.free(&mut change, old)?;
        }
        let stores = [
            (BLOCK, new.raw()),
            (LOG2, u64::from(log2)),
            (NEXT, 0),
            (USED, used),
        ];
        for (at, word) in stores {
            change
                .store(place.header + at, word)
                .map_err(AllocateError::from)?;
        }
        change.commit();
        self.used = used;
        memory.crash_point(GrowPoint::Swapped);
        Ok(())
    }
}

/// Writes zeros over `bytes` bytes at `at`.
fn clear<M: Memory>(memory: M, at: Offset, bytes: u64) {
    const ZEROS: [u8; 4096] = [0; 4096];
    for from in (0..bytes).step_by(ZEROS.len()) {
        let len = (bytes - from).min(ZEROS.len() as u64) as usize;
        memory.copy_in(at + from, &ZEROS[..len]);
    }
}
