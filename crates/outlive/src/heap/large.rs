//! Blocks that are too large for a slab: the buddy allocator's.

use super::LocalHeap;
use super::aids::Debts;
use super::buddy::{AllocateError, FreeError, Locked};
use super::slab::{Kind, Step, UNIT};
use outlive_memory::{Link, Memory, Offset, Ordering};

/// How many units one operation looks at for what is owed.
const LOOKS: u64 = 256;

outlive_memory::crash_points! {
    /// Where an allocation or a free of a large block may be cut short.
    pub enum HeapLargePoint for "heap.large" {
        /// The buddy allocator's lock is held.
        Locked,
        /// The allocation's transaction is complete and not committed.
        Taken,
        /// The free's transaction is complete and not committed.
        Given,
        /// It is committed; the lock is held.
        Done,
    }
}

outlive_memory::crash_points! {
    /// Where a recoverer's free of a large block may be cut short.
    pub enum HeapOwePoint for "heap.owe" {
        /// The step is noted; the cell holds the block.
        Noted,
        /// The cell does not.
        Replaced,
        /// The block is owed; the step is noted still.
        Owed,
        /// It is over.
        Done,
        /// The block is the buddy allocator's.
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

    /// Whether the block waits for being freed.
    fn is_owed(&self, block: Offset) -> bool {
        let table = &self.heap.table;
        table.within(block).is_some_and(|from| {
            // Relaxed: the caller has the lock or the block.
            self.memory()
                .load::<u64>(table.owed(from), Ordering::Relaxed)
                != 0
        })
    }

    /// Frees what the word at `cell` holds, also where the allocator's lock cannot be had: then whoever has it next
    /// does the rest.
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

    /// Frees a large block in a dead instance's name, or where the lock cannot be had.
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
        // Release: after the note.
        memory.store(cell, instead, Ordering::Release);
        memory.persist(cell, 8);
        memory.crash_point(HeapOwePoint::Replaced);
        self.heap.note_owed(from);
        memory.crash_point(HeapOwePoint::Owed);
        self.step.end(memory);
        memory.crash_point(HeapOwePoint::Done);
        Ok(block)
    }

    /// Frees what is owed, but for what steps name; under the lock. It goes through a part of the units, and the next
    /// time through the next, so that nobody holds the lock for a look at all of a large heap.
    pub(super) fn pay(&self, locked: &Locked<'_, M>) {
        self.pay_in(locked, LOOKS);
    }

    /// Frees all that is owed and can be freed now. Returns whether that was anything.
    pub(super) fn pay_all(&self, locked: &Locked<'_, M>) -> bool {
        // A round that has begun has not seen what was left behind it.
        self.aids.debts.set(Debts::default());
        self.pay_in(locked, u64::MAX)
    }

    /// Looks at the next `looks` units. Returns whether anything was freed.
    fn pay_in(&self, locked: &Locked<'_, M>, looks: u64) -> bool {
        let memory = self.memory();
        // Acquire: what was owed before it was raised.
        let owed: u64 = memory.load(self.heap.owed(), Ordering::Acquire);
        // Relaxed: written under the lock.
        let paid: u64 = memory.load(self.heap.paid(), Ordering::Relaxed);
        if owed == paid {
            return false;
        }
        // More paid than was owed is damage; then nothing is known to be paid.
        let paid = if paid > owed { 0 } else { paid };
        let mut round = self.aids.debts.get();
        if round.owed <= paid {
            // None, or one that another's has overtaken.
            let (next, left) = (0, false);
            round = Debts { owed, next, left };
        }
        let (mut freed, region) = (false, self.heap.buddy.region());
        let units = self.heap.buddy.bytes() / UNIT;
        let until = units.min(round.next.saturating_add(looks));
        for unit in round.next..until {
            let at = self.heap.table.owed(unit * UNIT);
            // Acquire: the note of whoever wrote it.
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
                // Relaxed: under the lock. What was owed since the round began makes the other word larger: it only
                // ever grows.
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
        // What is not allocated is owed by damage, and is forgotten.
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
    /// The buddy allocator's block so far into the region is to be freed.
    pub(super) fn note_owed(&self, from: u64) {
        let (memory, at) = (self.memory, self.table.owed(from));
        // Release: after the note in the room.
        memory.store(at, 1u64, Ordering::Release);
        memory.persist(at, 8);
        // Release: whoever sees it raised finds the word.
        memory.fetch_add(self.owed(), 1u64, Ordering::Release);
        memory.persist(self.owed(), 8);
    }
}
