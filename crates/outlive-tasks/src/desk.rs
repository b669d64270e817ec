//! Desks: how those who are no workers give names data, and how data and jobs are removed.
//!
//! ```text
//! desk   owner, who sits there | block, on its way | place, what it is about | noted, a word more of that
//! ```
//!
//! | death after | leaves | the next one at the desk |
//! | --- | --- | --- |
//! | the block is allocated | a block without a place | frees it |
//! | the place is written | a block for an unbound cell, or one bound to another's | frees it |
//! | the cell is bound | a block that is the cell's | takes it off the desk |
//!
//! The place is the cell that a block is for; or what is being removed: see [`names`](crate::names) and `jobs/remove.rs`.
//!
//! A desk is taken from nobody, or from one who is gone and whose log is settled. Whoever sits there is the only one who
//! writes to it.

use crate::PoolError;
use crate::jobs::{self, Record};
use crate::layout::{DESKS_IN_ALL, Hand, Layout};
use crate::names::{self, Cell, Data, Tag};
use outlive::heap::LocalHeap;
use outlive::memory::{Memory, Native, Offset, Ordering};

outlive::memory::crash_points! {
    /// Where the putting of data into a pool may be cut short.
    pub enum PutPoint for "tasks.put" {
        /// A desk is taken.
        Seated,
        /// The block is on the desk.
        Allocated,
        /// The data is in it; the desk says where it would belong.
        Tried,
        /// It belongs there.
        Addressed,
        /// The name is bound; the desk still has the block.
        Bound,
        /// The desk is empty.
        Cleared,
    }
}

const OWNER: u64 = 0;
const BLOCK: u64 = 8;
const PLACE: u64 = 16;
const NOTED: u64 = 24;

/// What somebody at a desk is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// Nothing, or a block that belongs nowhere yet.
    Nothing,
    /// He brings this cell a block.
    Bring(Offset),
    /// The same, and does not know yet whether it stays a cell.
    Try(Offset),
    /// He removes the data of this cell.
    Data(Offset),
    /// He removes the job with this record.
    Job(Offset),
    /// He submits a job that depends on others.
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
            // Also what damage made up: a block there belongs nowhere.
            _ => Self::Nothing,
        }
    }
}

/// A desk: where one who is no worker has a block in hand, on its way under a name.
///
/// It is taken from nobody, or from one who is gone and settled; then what is on it is settled: the block belongs to the cell
/// that it is bound to, or is freed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Desk<M: Memory = Native> {
    layout: Layout<M>,
    at: Offset,
    number: u64,
}

impl<M: Memory> Desk<M> {
    pub fn at(layout: Layout<M>, number: u64) -> Self {
        let at = layout.desk(number);
        Self { layout, at, number }
    }

    /// Its number.
    pub fn number(self) -> u64 {
        self.number
    }

    fn store(self, place: u64, word: u64) {
        // Release: one after the other.
        self.layout
            .memory
            .store(self.at + place, word, Ordering::Release);
    }

    /// What is being done there.
    fn place(self) -> At {
        At::from_word(self.load(PLACE))
    }

    /// Says what is about to be done there, with a word more of it. By who sits there.
    pub fn note(self, at: At, word: u64) {
        self.store(NOTED, word);
        self.store(PLACE, at.to_word());
    }

    /// Says that nothing is done there. What is noted besides stays: it is of no use to anybody.
    pub fn forget(self) {
        self.store(PLACE, 0);
    }

    /// The word more.
    pub fn noted(self) -> Offset {
        Offset::from_raw(self.noted_word())
    }

    /// The same as a number.
    pub fn noted_word(self) -> u64 {
        self.load(NOTED)
    }

    /// Lays a block there, on its way to the heap.
    pub fn lay(self, block: Offset) {
        self.store(BLOCK, block.raw());
    }

    /// Where its block stands.
    pub fn block_at(self) -> Offset {
        self.at + BLOCK
    }

    /// Whether somebody there brings `cell` a block.
    pub fn brings_to(self, cell: Cell<M>) -> bool {
        matches!(self.place(), At::Bring(at) | At::Try(at) if at == cell.offset())
    }

    /// Whether somebody there submits a job that depends on others.
    pub fn submits(self) -> bool {
        self.place() == At::Submission
    }

    fn load(self, place: u64) -> u64 {
        self.layout.memory.load(self.at + place, Ordering::Acquire)
    }

    /// Who sits there, or did; 0 for nobody.
    pub fn owner(self) -> u64 {
        self.load(OWNER)
    }

    pub fn take(layout: Layout<M>, hand: Hand<'_, M>) -> Result<Self, PoolError> {
        Self::take_below(layout, hand, DESKS_IN_ALL)
    }

    /// A desk for who removes something: cells have tags for so many.
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

    /// Takes it from `owner`, if that is nobody, or gone and settled; then it is empty.
    fn sit_down(self, hand: Hand<'_, M>, owner: u64) -> Result<bool, PoolError> {
        let (memory, me) = (self.layout.memory, hand.me().to_word());
        // One's own is in use: who fills a block may put another meanwhile.
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

    /// Settles what those that are gone have left at their desks.
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

    /// The block on the desk, if it belongs to no cell.
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

    /// Settles what is on it.
    pub fn clear(self, heap: &LocalHeap<'_, M>) -> Result<(), PoolError> {
        let memory = self.layout.memory;
        match self.place() {
            At::Data(cell) => names::settle(self.layout, heap, self, Cell::at(memory, cell)),
            At::Job(record) => jobs::settle(self.layout, heap, self, Record::at(memory, record)),
            place @ (At::Nothing | At::Bring(_) | At::Try(_) | At::Submission) => {
                if self.block(heap).is_some() {
                    heap.free_from(self.at + BLOCK, 0)?;
                } else if matches!(place, At::Bring(_)) {
                    // It is bound, and tasks may wait for it.
                    self.layout.call();
                }
            }
        }
        // One after the other, so that a place never belongs to another block.
        self.store(BLOCK, 0);
        self.store(PLACE, 0);
        memory.crash_point(PutPoint::Cleared);
        Ok(())
    }

    /// Binds the cell of `key` to a block of `bytes` that `fill` writes; whether it was the first to do so.
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
            // Until the desk has it, the cell stays a cell.
            let _pin = heap.pin();
            let cell = self.layout.names.cell(heap, key)?;
            self.store(PLACE, At::Try(cell.offset()).to_word());
            memory.crash_point(PutPoint::Tried);
            if !cell.keep() {
                // What it had is being removed; by a dead one: then that is done here.
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

    /// Leaves it when that is dropped, also if who fills the block panics.
    pub fn seated<'h>(self, hand: Hand<'h, M>) -> Seated<'h, M> {
        Seated {
            desk: Some(self),
            hand,
        }
    }

    /// Leaves it, empty.
    pub fn leave(self, hand: Hand<'_, M>) -> Result<(), PoolError> {
        self.clear(hand.heap)?;
        // Release: what was done here.
        self.layout
            .memory
            .store(self.at + OWNER, 0u64, Ordering::Release);
        Ok(())
    }
}

/// Somebody at a desk, who leaves it.
#[derive(Debug)]
pub(crate) struct Seated<'h, M: Memory> {
    desk: Option<Desk<M>>,
    hand: Hand<'h, M>,
}

impl<M: Memory> Seated<'_, M> {
    /// Leaves it, and says whether that went well.
    pub fn leave(mut self) -> Result<(), PoolError> {
        self.desk
            .take()
            .map_or(Ok(()), |desk| desk.leave(self.hand))
    }
}

impl<M: Memory> Drop for Seated<'_, M> {
    fn drop(&mut self) {
        if let Some(desk) = self.desk.take() {
            // Under a panic there is nobody to tell: the desk stays taken until its owner is gone.
            let _ = desk.leave(self.hand);
        }
    }
}
