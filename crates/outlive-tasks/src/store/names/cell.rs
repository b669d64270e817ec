//! Cells: each is bound once, and then the waiting tasks are notified.
//!
//! ```text
//! cell   0  value    0, or the block that it is bound to, tagged during its removal; or GONE
//!        8  waiters  the head of a list of nodes, which are in ports; CLOSED once it is bound
//! node   0  cell | next in the cell's list, TRIED | ports
//! ```
//!
//! # Why no task waits for bound data
//!
//! A thread that binds a cell then *closes* its list, in the word by which nodes are added, and
//! checks every task in it. A thread that makes a task wait adds all its nodes and then checks the
//! task itself. A node is in the list before it is closed, or its maker finds the list closed, and
//! so the cell bound. Each binder of a task's last inputs makes a full fence between its binding
//! and its check, so at least one sees all of them bound. The threads that do move the task from
//! WAITING to READY by compare-and-swap, and one succeeds.
//!
//! A thread that continues the commit can repeat all of this. Only adding a node must not be done
//! twice: `next` is marked before the node is added, and a thread that finds the mark searches the
//! list for it. One thread at a time adds nodes of a task: the one that commits its parent.

use super::{BindPoint, Data, Ports};
use outlive::heap::Pinned;
use outlive::memory::{Memory, Native, Offset, Ordering};

outlive::memory::crash_points! {
    /// The crash points of a task's waiting for its inputs.
    pub enum AwaitPoint for "tasks.await" {
        /// A node is marked, and in no list.
        Marked,
        /// The node is in its cell's list.
        Listed,
    }
}

/// In a cell's list: the cell is bound, and no node is added any more.
const CLOSED: u64 = 1;
/// In a node's link: it may have been added.
const TRIED: u64 = 2;

/// In a cell's value, four bits: the staging slot and the progress of a removal. All are set, and
/// there is no block, when it is complete.
const TAG: u64 = 0xF;
const GONE: u64 = TAG;

/// The progress of the removal of a cell's data, with the number of its staging slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tag {
    /// The remover scans for users of the data. A user that keeps the data clears the tag.
    Offered(u64),
    /// The data is removed; the cell still holds its block.
    Taken(u64),
}

impl Tag {
    /// The number of staging slots that can be used for removals: those with the lowest numbers.
    pub const DESKS: u64 = 7;

    pub const fn bits(self) -> u64 {
        match self {
            Self::Offered(desk) => 1 + desk * 2,
            Self::Taken(desk) => 2 + desk * 2,
        }
    }
}

/// Returns whether the data of a cell with that value has been removed.
pub(super) fn is_gone(value: u64) -> bool {
    value == GONE
}

/// Returns the block in a cell's value.
pub(super) fn block_of(value: u64) -> Offset {
    // Removed data is not readable any more, though the cell may still hold its block.
    let tag = value & TAG;
    let taken = tag != 0 && tag.is_multiple_of(2);
    Offset::from_raw(if taken { 0 } else { value & !TAG })
}

/// Returns the block in a cell's value, even if its data is removed.
pub(super) fn hanging(value: u64) -> Offset {
    Offset::from_raw(value & !TAG)
}

fn link(word: u64) -> Offset {
    Offset::from_raw(word & !(CLOSED | TRIED))
}

/// The cell of a name.
#[derive(Clone, Copy, Debug)]
pub struct Cell<M: Memory = Native> {
    memory: M,
    at: Offset,
}

impl<M: Memory> Cell<M> {
    /// Returns the cell at `at`.
    pub fn at(memory: M, at: Offset) -> Self {
        Self { memory, at }
    }

    /// Returns the cell's offset.
    pub fn offset(self) -> Offset {
        self.at
    }

    /// Returns the data that the cell is bound to. Wait-free.
    #[inline]
    pub fn value(self) -> Option<Data<M>> {
        // Acquire: the data was written before it was bound.
        self.data(self.memory.load(self.at, Ordering::Acquire))
    }

    /// Returns the data that the cell is bound to. It is valid for the life of `pin`, even if it is
    /// removed.
    pub fn read(self, pin: &Pinned<'_, M>) -> Option<Data<M>> {
        self.data(pin.load(self.at))
    }

    #[inline]
    fn data(self, value: u64) -> Option<Data<M>> {
        let (memory, at) = (self.memory, block_of(value));
        (!at.is_null()).then_some(Data { memory, at })
    }

    /// Returns whether the cell is bound. Wait-free.
    #[inline]
    pub fn is_bound(self) -> bool {
        !block_of(self.memory.load(self.at, Ordering::Acquire)).is_null()
    }

    /// Returns whether the cell's data has been removed. Then the cell is not used any more.
    pub fn is_gone(self) -> bool {
        is_gone(self.memory.load(self.at, Ordering::Acquire))
    }

    /// Prevents the removal of the cell's data, for a caller that has recorded the cell where
    /// removers scan for users, under a pin from before its look-up. Returns `false` if the data
    /// was removed before that record.
    pub fn keep(self) -> bool {
        // SeqCst: the note precedes the read of the tag. It pairs with the fence of a remover,
        // which offers the data and then looks for notes: one of the two sees the other.
        self.memory.fence(Ordering::SeqCst);
        loop {
            let value: u64 = self.memory.load(self.at, Ordering::Acquire);
            if value & TAG == 0 {
                return true;
            }
            if block_of(value).is_null() {
                return false;
            }
            // Without its tag the remover cannot take the data.
            self.change(value, value & !TAG);
            self.memory.spin_hint();
        }
    }

    fn change(self, from: u64, to: u64) -> bool {
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        self.memory
            .compare_exchange(self.at, from, to, order.0, order.1)
            .is_ok()
    }

    /// Offers the data in `block` for removal. Returns `false` if another thread has offered it.
    pub fn offer(self, block: Offset, desk: u64) -> bool {
        let offered = self.change(block.raw(), block.raw() | Tag::Offered(desk).bits());
        // SeqCst: see `keep`.
        self.memory.fence(Ordering::SeqCst);
        offered
    }

    /// Replaces the caller's tag `from` by `to`, or removes it if `to` is `None`. Returns whether
    /// the tag was there. This tag is on one cell at a time, so memory that is no longer a cell is
    /// not changed.
    pub fn retag(self, block: Offset, from: Tag, to: Option<Tag>) -> bool {
        let tagged = |tag: Tag| block.raw() | tag.bits();
        self.change(tagged(from), to.map_or(block.raw(), tagged))
    }

    /// Returns whether the cell's value has the block `block` and the tag `tag`.
    pub fn is_tagged(self, block: Offset, tag: Tag) -> bool {
        self.memory.load::<u64>(self.at, Ordering::Acquire) == block.raw() | tag.bits()
    }

    /// Detaches `block`, which has that tag or none. The cell is not used any more.
    pub fn let_go(self, block: Offset, tag: Option<Tag>) {
        self.change(block.raw() | tag.map_or(0, Tag::bits), GONE);
    }

    /// Binds the cell to `block`, unless it is bound. Returns whether it is bound to `block` now.
    /// Wait-free.
    pub fn bind(self, block: Offset) -> bool {
        // Release: the data. Acquire: on failure, the cell may have been bound by the dead worker
        // whose commit is continued here.
        let order = (Ordering::AcqRel, Ordering::Acquire);
        let bound = self
            .memory
            .compare_exchange(self.at, 0, block.raw(), order.0, order.1);
        self.memory.crash_point(BindPoint::Bound);
        // The value may have the tag of a remover that is looking for users.
        bound.map_or_else(|there| block_of(there) == block, |_| true)
    }

    /// Closes the list of waiting tasks of a bound cell, and calls `tell` with the ports of each.
    /// Can be repeated.
    pub fn tell<E>(self, mut tell: impl FnMut(Ports<M>) -> Result<(), E>) -> Result<(), E> {
        let memory = self.memory;
        // Acquire: the nodes. Release: a thread that finds the list closed finds the cell bound.
        let head: u64 = memory.fetch_or(self.at + 8, CLOSED, Ordering::AcqRel);
        memory.crash_point(BindPoint::Closed);
        // SeqCst: the binding precedes the check of the waiting tasks' other inputs; see the head
        // of this file.
        memory.fence(Ordering::SeqCst);
        let mut node = link(head);
        while !node.is_null() {
            // Relaxed: written before the node was added. Its ports stay while a commit is in
            // progress.
            let words = [0, 8, 16].map(|at| memory.load::<u64>(node + at, Ordering::Relaxed));
            tell(Ports::at(memory, Offset::from_raw(words[2])))?;
            node = link(words[1]);
        }
        Ok(())
    }

    fn has(self, head: u64, wanted: Offset) -> bool {
        let mut node = link(head);
        while !node.is_null() && node != wanted {
            node = link(self.memory.load(node + 8, Ordering::Relaxed));
        }
        !node.is_null()
    }

    /// Adds the node at `node`. Returns `false` if the list is closed.
    pub(super) fn put(self, node: Offset) -> bool {
        let memory = self.memory;
        let mut head: u64 = memory.load(self.at + 8, Ordering::Acquire);
        // Relaxed: one thread at a time adds it, and learns of a dead predecessor by the raised
        // generation.
        if memory.load::<u64>(node + 8, Ordering::Relaxed) != 0 && self.has(head, node) {
            return true;
        }
        loop {
            if head & CLOSED != 0 {
                return false;
            }
            memory.store(node + 8, head | TRIED, Ordering::Relaxed);
            memory.crash_point(AwaitPoint::Marked);
            // Release: the node. Acquire: the nodes before it, and on failure that the cell is
            // bound.
            let order = (Ordering::AcqRel, Ordering::Acquire);
            match memory.compare_exchange(self.at + 8, head, node.raw(), order.0, order.1) {
                Ok(_) => {
                    memory.crash_point(AwaitPoint::Listed);
                    return true;
                }
                Err(now) => head = now,
            }
            memory.spin_hint();
        }
    }
}
