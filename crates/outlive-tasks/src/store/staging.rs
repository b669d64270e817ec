//! Staging slots ([`StagingSlot`]), by which members without a worker bind names, and by which data
//! and jobs are removed.
//!
//! ```text
//! slot   owner | block to be bound or freed | cell, data or job of the operation | additional word
//! ```
//!
//! | death after | leaves | the slot's next owner |
//! | --- | --- | --- |
//! | the block is allocated | a block without a place | frees it |
//! | the place is written | a block for an unbound cell, or one bound to another's | frees it |
//! | the cell is bound | a block that is the cell's | clears it from the slot |
//!
//! The place is the cell that a block is for, or the data or job that is being removed: see
//! [`names`](crate::store::names) and the module `jobs::remove`.
//!
//! A staging slot is free, or is taken over from a dead member whose log is settled. Only its owner
//! writes to it.

use crate::PoolError;
use crate::store::jobs::{self, Record};
use crate::store::layout::{DESKS_IN_ALL, Hand, Layout};
use crate::store::names::{self, Cell, Data, Tag};
use outlive::heap::LocalHeap;
use outlive::memory::{Memory, Native, Offset, Ordering};

outlive::memory::crash_points! {
    /// The crash points of storing data in a pool from outside a task.
    pub enum PutPoint for "tasks.put" {
        /// A staging slot is taken.
        Seated,
        /// The block is in the staging slot.
        Allocated,
        /// The data is in the block; the staging slot names the intended cell.
        Tried,
        /// The cell is checked, and stays valid.
        Addressed,
        /// The name is bound; the staging slot still has the block.
        Bound,
        /// The staging slot is empty.
        Cleared,
    }
}

const OWNER: u64 = 0;
const BLOCK: u64 = 8;
const PLACE: u64 = 16;
const NOTED: u64 = 24;

/// The operation of a staging slot's owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// No operation, or a block that no cell is chosen for yet.
    Nothing,
    /// Binds this cell to a block.
    Bring(Offset),
    /// Binds this cell to a block, and has not yet checked that the cell stays valid.
    Try(Offset),
    /// Removes the data of this cell.
    Data(Offset),
    /// Removes the job with this record.
    Job(Offset),
    /// Submits a job that depends on other jobs.
    Submission,
}

impl At {
    const KIND: u64 = 7;

    fn to_word(self) -> u64 {
        match self {
            Self::Nothing => 0,
            Self::Bring(cell) => cell.raw(),
            Self::Try(cell) => cell.raw() | 1,
            Self::Data(cell) => cell.raw() | 2,
            Self::Job(record) => record.raw() | 3,
            Self::Submission => 4,
        }
    }

    fn from_word(word: u64) -> Self {
        let at = Offset::from_raw(word & !Self::KIND);
        match (word & Self::KIND, at.is_null()) {
            (0, false) => Self::Bring(at),
            (1, false) => Self::Try(at),
            (2, false) => Self::Data(at),
            (3, false) => Self::Job(at),
            (4, true) => Self::Submission,
            // Also for damaged words: a block there has no place.
            _ => Self::Nothing,
        }
    }
}

/// A staging slot: it holds the block of a member without a worker, until a name is bound to it.
///
/// It is free, or is taken over from a dead and settled member. Then its content is settled: the
/// block belongs to the cell that it is bound to, or is freed.
#[derive(Clone, Copy, Debug)]
pub struct StagingSlot<M: Memory = Native> {
    layout: Layout<M>,
    at: Offset,
    number: u64,
}

impl<M: Memory> StagingSlot<M> {
    pub fn at(layout: Layout<M>, number: u64) -> Self {
        let at = layout.desk(number);
        Self { layout, at, number }
    }

    /// Returns the slot's number.
    pub fn number(self) -> u64 {
        self.number
    }

    fn store(self, place: u64, word: u64) {
        // Release: the stores take effect in order.
        self.layout
            .memory
            .store(self.at + place, word, Ordering::Release);
    }

    /// Returns the owner's operation.
    fn place(self) -> At {
        At::from_word(self.load(PLACE))
    }

    /// Records the operation that the owner is about to begin, with its block or job number (0 if
    /// it has none).
    pub fn note(self, at: At, word: u64) {
        self.store(NOTED, word);
        self.store(PLACE, at.to_word());
    }

    /// Records that no operation is running. The block or job number stays in the slot, without
    /// meaning.
    pub fn forget(self) {
        self.store(PLACE, 0);
    }

    /// Returns the block of the operation.
    pub fn noted(self) -> Offset {
        Offset::from_raw(self.noted_word())
    }

    /// Returns the additional word as a number.
    pub fn noted_word(self) -> u64 {
        self.load(NOTED)
    }

    /// Stores a block that is to be freed or retired.
    pub fn lay(self, block: Offset) {
        self.store(BLOCK, block.raw());
    }

    /// Returns the offset of the word that holds the block.
    pub fn block_at(self) -> Offset {
        self.at + BLOCK
    }

    /// Returns whether the owner is binding `cell` to a block.
    pub fn brings_to(self, cell: Cell<M>) -> bool {
        matches!(self.place(), At::Bring(at) | At::Try(at) if at == cell.offset())
    }

    /// Returns whether the owner submits a job that depends on other jobs.
    pub fn submits(self) -> bool {
        self.place() == At::Submission
    }

    fn load(self, place: u64) -> u64 {
        self.layout.memory.load(self.at + place, Ordering::Acquire)
    }

    /// Returns the current or last owner; 0 if there was none.
    pub fn owner(self) -> u64 {
        self.load(OWNER)
    }

    pub fn take(layout: Layout<M>, hand: Hand<'_, M>) -> Result<Self, PoolError> {
        Self::take_below(layout, hand, DESKS_IN_ALL)
    }

    /// Takes a staging slot for a removal: cells have tags for [`Tag::DESKS`] of them.
    pub fn take_for_removal(layout: Layout<M>, hand: Hand<'_, M>) -> Result<Self, PoolError> {
        Self::take_below(layout, hand, Tag::DESKS)
    }

    fn take_below(layout: Layout<M>, hand: Hand<'_, M>, most: u64) -> Result<Self, PoolError> {
        for number in 0..most {
            let desk = Self::at(layout, number);
            let owner = desk.load(OWNER);
            if desk.sit_down(hand, owner)? {
                return Ok(desk);
            }
        }
        Err(PoolError::NoDesk)
    }

    /// Takes the staging slot from `owner`, if that is 0 or dead and settled, and empties the slot.
    fn sit_down(self, hand: Hand<'_, M>, owner: u64) -> Result<bool, PoolError> {
        let (memory, me) = (self.layout.memory, hand.me().to_word());
        // The caller's own slot is in use: `fill` may put other data.
        if owner == me || owner != 0 && !hand.is_settled(owner)? {
            return Ok(false);
        }
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        let taken = memory.compare_exchange(self.at + OWNER, owner, me, order.0, order.1);
        if taken.is_err() {
            return Ok(false);
        }
        memory.crash_point(PutPoint::Seated);
        self.clear(hand.heap)?;
        Ok(true)
    }

    /// Settles and releases the staging slots of dead members.
    pub fn settle_those_of_the_gone(layout: Layout<M>, hand: Hand<'_, M>) -> Result<(), PoolError> {
        for number in 0..DESKS_IN_ALL {
            let desk = Self::at(layout, number);
            let owner = desk.load(OWNER);
            if owner != 0 && desk.sit_down(hand, owner)? {
                desk.leave(hand)?;
            }
        }
        Ok(())
    }

    /// Returns the block in the staging slot, if it belongs to no cell.
    pub fn block(self, heap: &LocalHeap<'_, M>) -> Option<Offset> {
        let block = Some(self.load(BLOCK)).filter(|block| *block != 0);
        let block = Offset::from_raw(block?);
        let is_at = |cell: Offset| {
            let data = Cell::at(self.layout.memory, cell).value();
            data.is_some_and(|data| data.block() == block)
        };
        let has_place = match self.place() {
            At::Bring(cell) => is_at(cell),
            At::Data(cell) => {
                let taken = Tag::Taken(self.number);
                Cell::at(self.layout.memory, cell).is_tagged(block, taken)
            }
            At::Job(record) => jobs::has_result(self.layout, heap, record, block),
            At::Nothing | At::Try(_) | At::Submission => false,
        };
        (!has_place).then_some(block)
    }

    /// Settles the content of the slot.
    pub fn clear(self, heap: &LocalHeap<'_, M>) -> Result<(), PoolError> {
        let memory = self.layout.memory;
        match self.place() {
            At::Data(cell) => names::settle(self.layout, heap, self, Cell::at(memory, cell)),
            At::Job(record) => jobs::settle(self.layout, heap, self, Record::at(memory, record)),
            place @ (At::Nothing | At::Bring(_) | At::Try(_) | At::Submission) => {
                if self.block(heap).is_some() {
                    heap.free_from(self.at + BLOCK, 0)?;
                } else if matches!(place, At::Bring(_)) {
                    // The cell is bound, and tasks may wait for it.
                    self.layout.call();
                }
            }
        }
        // In this order, so that a place never belongs to another block.
        self.store(BLOCK, 0);
        self.store(PLACE, 0);
        memory.crash_point(PutPoint::Cleared);
        Ok(())
    }

    /// Binds the cell of `key` to a block of `bytes` that `fill` writes. Returns whether it was the
    /// first to do so.
    pub fn put(
        self,
        hand: Hand<'_, M>,
        key: &[u8],
        bytes: u64,
        fill: impl FnOnce(M, Data<M>) -> Result<(), PoolError>,
    ) -> Result<bool, PoolError> {
        let (memory, heap) = (self.layout.memory, hand.heap);
        let at = heap.allocate_into(Data::<M>::block_bytes(bytes), self.at + BLOCK)?;
        memory.crash_point(PutPoint::Allocated);
        fill(memory, Data::begin(heap, at, bytes))?;
        loop {
            // The pin keeps the cell valid until the staging slot names it.
            let _pin = heap.pin();
            let cell = self.layout.names.cell(heap, key)?;
            self.store(PLACE, At::Try(cell.offset()).to_word());
            memory.crash_point(PutPoint::Tried);
            if !cell.keep() {
                // The cell's data is being removed. A dead remover's removal is finished here.
                Self::settle_those_of_the_gone(self.layout, hand)?;
                memory.spin_hint();
                continue;
            }
            self.store(PLACE, At::Bring(cell.offset()).to_word());
            memory.crash_point(PutPoint::Addressed);
            let bound = cell.bind(at);
            memory.crash_point(PutPoint::Bound);
            return Ok(bound);
        }
    }

    /// Returns a guard that releases the staging slot, also if the caller's `fill` panics.
    pub fn seated<'h>(self, hand: Hand<'h, M>) -> Seated<'h, M> {
        Seated {
            desk: Some(self),
            hand,
        }
    }

    /// Frees the block that the slot may hold, and releases the slot.
    pub fn leave(self, hand: Hand<'_, M>) -> Result<(), PoolError> {
        self.clear(hand.heap)?;
        // Release: all that was done under its ownership.
        self.layout
            .memory
            .store(self.at + OWNER, 0u64, Ordering::Release);
        Ok(())
    }
}

/// A guard that releases a staging slot.
#[derive(Debug)]
pub struct Seated<'h, M: Memory> {
    desk: Option<StagingSlot<M>>,
    hand: Hand<'h, M>,
}

impl<M: Memory> Seated<'_, M> {
    /// Releases the slot, and reports an error.
    pub fn leave(mut self) -> Result<(), PoolError> {
        self.desk
            .take()
            .map_or(Ok(()), |desk| desk.leave(self.hand))
    }
}

impl<M: Memory> Drop for Seated<'_, M> {
    fn drop(&mut self) {
        if let Some(desk) = self.desk.take() {
            // A panic cannot report this error. The slot then stays taken until its owner is dead.
            let _ = desk.leave(self.hand);
        }
    }
}
