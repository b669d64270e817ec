//! Desks: how those who are no workers give names data.
//!
//! ```text
//! desk   owner, who sits there | block, on its way | place, the cell that it is for
//! ```
//!
//! | death after | leaves | the next one at the desk |
//! | --- | --- | --- |
//! | the block is allocated | a block without a place | frees it |
//! | the place is written | a block for an unbound cell, or one bound to another's | frees it |
//! | the cell is bound | a block that is the cell's | takes it off the desk |
//!
//! A desk is taken from nobody, or from one who is gone and whose log is settled. Whoever sits there is the only one who
//! writes to it.

use crate::PoolError;
use crate::layout::{DESKS_IN_ALL, Hand, Layout};
use crate::names::{Cell, Data};
use outlive::heap::LocalHeap;
use outlive::memory::{Memory, Native, Offset, Ordering};

outlive::memory::crash_points! {
    /// Where the putting of data into a pool may be cut short.
    pub enum PutPoint for "tasks.put" {
        /// A desk is taken.
        Seated,
        /// The block is on the desk.
        Allocated,
        /// The data is in it, and the desk says where it belongs.
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

/// A desk: where one who is no worker has a block in hand, on its way under a name.
///
/// It is taken from nobody, or from one who is gone and settled; then what is on it is settled: the block belongs to the cell
/// that it is bound to, or is freed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Desk<M: Memory = Native> {
    layout: Layout<M>,
    at: Offset,
}

impl<M: Memory> Desk<M> {
    pub fn at(layout: Layout<M>, number: u64) -> Self {
        let at = layout.desk(number);
        Self { layout, at }
    }

    fn load(self, place: u64) -> u64 {
        self.layout.memory.load(self.at + place, Ordering::Acquire)
    }

    /// Who sits there, or did; 0 for nobody.
    pub fn owner(self) -> u64 {
        self.load(OWNER)
    }

    pub fn take(layout: Layout<M>, hand: Hand<'_, M>) -> Result<Self, PoolError> {
        let me = hand.me().to_word();
        for number in 0..DESKS_IN_ALL {
            let desk = Self::at(layout, number);
            let owner = desk.load(OWNER);
            // One's own is in use: who fills a block may put another meanwhile.
            if owner == me || owner != 0 && !hand.is_settled(owner)? {
                continue;
            }
            let order = (Ordering::AcqRel, Ordering::Relaxed);
            let taken =
                layout
                    .memory
                    .compare_exchange(desk.at + OWNER, owner, me, order.0, order.1);
            if taken.is_ok() {
                layout.memory.crash_point(PutPoint::Seated);
                desk.clear(hand.heap)?;
                return Ok(desk);
            }
        }
        Err(PoolError::NoDesk)
    }

    /// The block on the desk, if it belongs to no cell.
    pub fn block(self) -> Option<Offset> {
        let (block, place) = (self.load(BLOCK), self.load(PLACE));
        if block == 0 {
            return None;
        }
        let bound = place != 0 && {
            let cell = Cell::at(self.layout.memory, Offset::from_raw(place));
            cell.value().is_some_and(|data| data.block().raw() == block)
        };
        (!bound).then(|| Offset::from_raw(block))
    }

    /// Settles what is on it.
    pub fn clear(self, heap: &LocalHeap<'_, M>) -> Result<(), PoolError> {
        let memory = self.layout.memory;
        if self.block().is_some() {
            heap.free_from(self.at + BLOCK, 0)?;
        }
        // Release: one after the other, so that a place never belongs to another block.
        memory.store(self.at + BLOCK, 0u64, Ordering::Release);
        memory.store(self.at + PLACE, 0u64, Ordering::Release);
        memory.crash_point(PutPoint::Cleared);
        Ok(())
    }

    /// Binds `cell` to a block of `bytes` that `fill` writes; whether it was the first to do so.
    pub fn put(
        self,
        hand: Hand<'_, M>,
        cell: Cell<M>,
        bytes: u64,
        fill: impl FnOnce(M, Data<M>) -> Result<(), PoolError>,
    ) -> Result<bool, PoolError> {
        let memory = self.layout.memory;
        let at = { hand.heap }.allocate_into(Data::<M>::block_bytes(bytes), self.at + BLOCK)?;
        memory.crash_point(PutPoint::Allocated);
        fill(memory, Data::begin(memory, at, bytes))?;
        memory.store(self.at + PLACE, cell.offset().raw(), Ordering::Release);
        memory.crash_point(PutPoint::Addressed);
        let bound = cell.bind(at);
        memory.crash_point(PutPoint::Bound);
        Ok(bound)
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
