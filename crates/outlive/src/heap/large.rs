//! Blocks that are too large for a slab and come from the buddy allocator.

use super::LocalHeap;
use super::allocation_cache::Debts;
use super::buddy::{AllocateError, FreeError, Locked};
use super::slab::{Kind, Step, UNIT};
use outlive_memory::{Link, Memory, Offset, Ordering};

/// The number of units that one operation checks for owed blocks.
const LOOKS: u64 = 256;

outlive_memory::crash_points! {
    /// The crash points of an allocation or a free of a large block.
    pub enum HeapLargePoint for "heap.large" {
        /// The buddy allocator's lock is held.
        Locked,
        /// The allocation's transaction is complete but not committed.
        Taken,
        /// The free's transaction is complete but not committed.
        Given,
        /// The transaction is committed; the lock is held.
        Done,
    }
}

outlive_memory::crash_points! {
    /// The crash points of a free that leaves a large block owed, and of its completion.
    pub enum HeapOwePoint for "heap.owe" {
        /// The step is recorded; the cell holds the block.
        Noted,
        /// The cell no longer holds the block.
        Replaced,
        /// The block is owed; the step is still recorded.
        Owed,
        /// The step is over.
        Done,
        /// The block has been returned to the buddy allocator.
        Paid,
    }
}

impl<M: Memory> LocalHeap<'_, M> {
    #[cold]
    pub(super) fn allocate_large(&self, bytes: u64, cell: Offset) -> Result<Offset, AllocateError> {
        let (memory, buddy) = (self.memory(), &self.heap.buddy);
        let locked = buddy.lock(self.member(), self.living())?;
        memory.crash_point(HeapLargePoint::Locked);
        self.pay(&locked);
        match self.take_large(&locked, bytes, cell) {
            Err(AllocateError::Full { .. }) => {
                let paid = self.pay_all(&locked);
                if !self.give_back_all(&locked) && !paid {
                    return Err(self.full(bytes));
                }
                match self.take_large(&locked, bytes, cell) {
                    Err(AllocateError::Full { .. }) => Err(self.full(bytes)),
                    taken => taken,
                }
            }
            taken => taken,
        }
    }

    fn take_large(
        &self,
        locked: &Locked<'_, M>,
        bytes: u64,
        cell: Offset,
    ) -> Result<Offset, AllocateError> {
        let memory = self.memory();
        let mut redo = locked.redo()?;
        let block = locked.allocate(&mut redo, bytes)?;
        redo.store(cell, block.raw())?;
        memory.crash_point(HeapLargePoint::Taken);
        redo.commit();
        memory.crash_point(HeapLargePoint::Done);
        Ok(block)
    }

    #[cold]
    pub(super) fn free_large(
        &self,
        block: Offset,
        cell: Offset,
        instead: u64,
    ) -> Result<Offset, FreeError> {
        let (memory, buddy) = (self.memory(), &self.heap.buddy);
        let Some(recoverers) = self.recoverers else {
            return self.owe(block, cell, instead);
        };
        let locked = buddy.lock(self.member(), recoverers)?;
        memory.crash_point(HeapLargePoint::Locked);
        self.pay(&locked);
        if self.is_owed(block) {
            return Err(FreeError::NotAllocated { block });
        }
        let mut redo = locked.redo()?;
        locked.free(&mut redo, block)?;
        redo.store(cell, instead)?;
        memory.crash_point(HeapLargePoint::Given);
        redo.commit();
        memory.crash_point(HeapLargePoint::Done);
        Ok(block)
    }

    /// Returns whether the block is owed: its free is pending.
    fn is_owed(&self, block: Offset) -> bool {
        let table = &self.heap.table;
        table.within(block).is_some_and(|from| {
            // Relaxed: the caller has the lock or the block.
            self.memory()
                .load::<u64>(table.owed(from), Ordering::Relaxed)
                != 0
        })
    }

    /// Frees the block that the word at `cell` holds, even where the allocator's lock is not
    /// available; the lock's next holder then completes the free.
    pub(crate) fn free_or_owe(&self, cell: Offset, instead: u64) -> Result<Offset, FreeError> {
        match self.free_from(cell, instead) {
            Err(FreeError::Lock(_) | FreeError::Log(_)) => {
                // Relaxed: the cell is the caller's.
                let held: u64 = self.memory().load(cell, Ordering::Relaxed);
                self.owe(Link::from_word(held).offset(), cell, instead)
            }
            freed => freed,
        }
    }

    /// Marks a large block as owed, in a dead instance's name or where the lock is not available.
    fn owe(&self, block: Offset, cell: Offset, instead: u64) -> Result<Offset, FreeError> {
        let memory = self.memory();
        let Some(from) = self.heap.table.within(block) else {
            return Err(self.outside(block));
        };
        if !from.is_multiple_of(UNIT)
            || self.heap.buddy.allocated_at(block).is_none()
            || self.is_owed(block)
        {
            return Err(FreeError::NotAllocated { block });
        }
        let note = Step {
            kind: Kind::Owe,
            block,
            cell,
            instead,
        };
        self.step.begin(memory, note);
        memory.crash_point(HeapOwePoint::Noted);
        // Release: after the record.
        memory.store(cell, instead, Ordering::Release);
        memory.persist(cell, 8);
        memory.crash_point(HeapOwePoint::Replaced);
        self.heap.note_owed(from);
        memory.crash_point(HeapOwePoint::Owed);
        self.step.end(memory);
        memory.crash_point(HeapOwePoint::Done);
        Ok(block)
    }

    /// Frees owed blocks, except those that steps name, under the lock. Each call checks part of
    /// the units and the next call continues there, so that the lock is not held for a scan of a
    /// large heap.
    pub(super) fn pay(&self, locked: &Locked<'_, M>) {
        self.pay_in(locked, LOOKS);
    }

    /// Frees all owed blocks that can be freed now. Returns whether there were any.
    pub(super) fn pay_all(&self, locked: &Locked<'_, M>) -> bool {
        // A round in progress has not seen the owed blocks behind its position.
        self.aids.debts.set(Debts::default());
        self.pay_in(locked, u64::MAX)
    }

    /// Checks the next `looks` units. Returns whether anything was freed.
    fn pay_in(&self, locked: &Locked<'_, M>, looks: u64) -> bool {
        let memory = self.memory();
        // Acquire: the blocks that were owed before it was raised.
        let owed: u64 = memory.load(self.heap.owed(), Ordering::Acquire);
        // Relaxed: written under the lock.
        let paid: u64 = memory.load(self.heap.paid(), Ordering::Relaxed);
        if owed == paid {
            return false;
        }
        // More blocks paid than owed is damage; then no block is known to be paid.
        let paid = if paid > owed { 0 } else { paid };
        let mut round = self.aids.debts.get();
        if round.owed <= paid {
            // No round is in progress, or another member's has overtaken it.
            let (next, left) = (0, false);
            round = Debts { owed, next, left };
        }
        let (mut freed, region) = (false, self.heap.buddy.region());
        let units = self.heap.buddy.bytes() / UNIT;
        let until = units.min(round.next.saturating_add(looks));
        for unit in round.next..until {
            let at = self.heap.table.owed(unit * UNIT);
            // Acquire: the record of the thread that wrote it.
            if memory.load::<u64>(at, Ordering::Acquire) == 0 {
                continue;
            }
            let block = region + unit * UNIT;
            if !self.steps().name(block) && self.pay_one(locked, block, at) {
                freed = true;
            } else {
                round.left = true;
            }
        }
        round.next = until;
        if until == units {
            if !round.left {
                // Relaxed: under the lock. Blocks owed since the round began make the other word
                // larger: it only ever grows.
                memory.store(self.heap.paid(), round.owed, Ordering::Relaxed);
            }
            round = Debts::default();
        }
        self.aids.debts.set(round);
        freed
    }

    fn pay_one(&self, locked: &Locked<'_, M>, block: Offset, at: Offset) -> bool {
        let Ok(mut redo) = locked.redo() else {
            return false;
        };
        // An owed block that is not allocated is due to damage, and is forgotten.
        let freed = locked.free(&mut redo, block);
        let logged = matches!(freed, Ok(_) | Err(FreeError::NotAllocated { .. }))
            && redo.store(at, 0u64).is_ok();
        if logged {
            redo.commit();
            self.memory().crash_point(HeapOwePoint::Paid);
        }
        logged
    }
}

impl<M: Memory> super::Heap<M> {
    /// Marks the buddy allocator's block at distance `from` from the start of the region as owed.
    pub(super) fn note_owed(&self, from: u64) {
        let (memory, at) = (self.memory, self.table.owed(from));
        // Release: after the record in the scratch area.
        memory.store(at, 1u64, Ordering::Release);
        memory.persist(at, 8);
        // Release: a thread that sees the raised count finds the word.
        memory.fetch_add(self.owed(), 1u64, Ordering::Release);
        memory.persist(self.owed(), 8);
    }
}
