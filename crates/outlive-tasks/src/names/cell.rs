//! Cells: bound once, and how those learn of it who wait.
//!
//! ```text
//! cell   0  value    0, or the block that it is bound to, with a tag while that is being removed; GONE
//!        8  waiters  a list of nodes, which stand in ports; CLOSED once it is bound
//! node   0  cell | next in the cell's list, TRIED | ports
//! ```
//!
//! # Why nobody waits for what is there
//!
//! Who binds a cell then *closes* its list, in the word that nodes are put in by, and looks at every task in it.
//! Who makes a task wait puts all its nodes in and then looks at the task himself. A node is in the list
//! before it is closed, or its maker finds the list closed and so the cell bound. Of the binders of a task's last
//! inputs each makes a full fence between its binding and its look, so one at least sees all of them bound; whoever
//! does moves the task from WAITING to READY by compare-and-swap, one of them.
//!
//! All of it can be done again by whoever goes on with the commit. Only putting in a node must not be done
//! twice: `next` is marked before the node is put in, and who finds the mark walks the list to see
//! whether it is there. One at a time puts in nodes of a task: whoever commits its parent.

use super::{BindPoint, Data, Ports};
use outlive::heap::Pinned;
use outlive::memory::{Memory, Native, Offset, Ordering};

outlive::memory::crash_points! {
    /// Where a task's waiting for its inputs may be cut short.
    pub enum AwaitPoint for "tasks.await" {
        /// A node is marked, and in no list.
        Marked,
        /// It is in its cell's list.
        Listed,
    }
}

/// In a cell's list: the cell is bound, and nothing is put in any more.
const CLOSED: u64 = 1;
/// In a node's link: it may have been put in.
const TRIED: u64 = 2;

/// In a cell's value: whose removal has come how far, in four bits; all of them, and no block, when it is through.
const TAG: u64 = 0xF;
const GONE: u64 = TAG;

/// How far the removal of a cell's data has come, and at which desk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tag {
    /// Somebody looks whether the data can go. Whoever wants to keep it takes the tag away.
    Offered(u64),
    /// It is removed; its block hangs on the cell still.
    Taken(u64),
}

impl Tag {
    /// Below which number the desks are at which data is removed.
    pub const DESKS: u64 = 7;

    pub const fn bits(self) -> u64 {
        match self {
            Self::Offered(desk) => 1 + desk * 2,
            Self::Taken(desk) => 2 + desk * 2,
        }
    }
}

/// Whether the data of a cell with that value was removed for good.
pub(super) fn is_gone(value: u64) -> bool {
    value == GONE
}

/// The block in a cell's value.
pub(super) fn block_of(value: u64) -> Offset {
    // What is removed is nobody's data any more, though its block may hang there still.
    let tag = value & TAG;
    let taken = tag != 0 && tag.is_multiple_of(2);
    Offset::from_raw(if taken { 0 } else { value & !TAG })
}

/// The block that hangs on a cell with that value, whose ever it is.
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
    /// The cell at `at`.
    pub fn at(memory: M, at: Offset) -> Self {
        Self { memory, at }
    }

    /// Where it is.
    pub fn offset(self) -> Offset {
        self.at
    }

    /// What it is bound to. Wait-free.
    #[inline]
    pub fn value(self) -> Option<Data<M>> {
        // Acquire: the data was written before it was bound.
        self.data(self.memory.load(self.at, Ordering::Acquire))
    }

    /// The same, for as long as `pin` is there: also if it is removed meanwhile.
    pub(crate) fn read(self, pin: &Pinned<'_, M>) -> Option<Data<M>> {
        self.data(pin.load(self.at))
    }

    #[inline]
    fn data(self, value: u64) -> Option<Data<M>> {
        let (memory, at) = (self.memory, block_of(value));
        (!at.is_null()).then_some(Data { memory, at })
    }

    /// Whether it is bound. Wait-free.
    #[inline]
    pub fn is_bound(self) -> bool {
        !block_of(self.memory.load(self.at, Ordering::Acquire)).is_null()
    }

    /// Whether what it was bound to has been removed: then it is nobody's cell any more.
    pub(crate) fn is_gone(self) -> bool {
        is_gone(self.memory.load(self.at, Ordering::Acquire))
    }

    /// For whoever has noted the cell where those look who remove data, under a pin that is older than his way to it: whether
    /// it stays. `false` if the data was removed before he had noted it.
    pub(crate) fn keep(self) -> bool {
        // SeqCst: the note comes before the look at the tag; against the fence of who offers the data and then looks for
        // notes. One of the two sees the other.
        self.memory.fence(Ordering::SeqCst);
        loop {
            let value: u64 = self.memory.load(self.at, Ordering::Acquire);
            if value & TAG == 0 {
                return true;
            }
            if block_of(value).is_null() {
                return false;
            }
            // Then he who has offered it cannot take it.
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

    /// Offers the data in `block` for removal; `false` if another does so, or has.
    pub(crate) fn offer(self, block: Offset, desk: u64) -> bool {
        let offered = self.change(block.raw(), block.raw() | Tag::Offered(desk).bits());
        // SeqCst: see `keep`.
        self.memory.fence(Ordering::SeqCst);
        offered
    }

    /// Replaces one tag of the caller's by another, or by none; whether it was there. A tag of his is on one cell at a time,
    /// so this does no harm to what is a cell no longer.
    pub(crate) fn retag(self, block: Offset, from: Tag, to: Option<Tag>) -> bool {
        let tagged = |tag: Tag| block.raw() | tag.bits();
        self.change(tagged(from), to.map_or(block.raw(), tagged))
    }

    /// Whether the caller's tag stands there, by `block`.
    pub(crate) fn is_tagged(self, block: Offset, tag: Tag) -> bool {
        self.memory.load::<u64>(self.at, Ordering::Acquire) == block.raw() | tag.bits()
    }

    /// Lets go of `block`, which hangs on it by that tag, or by none; nobody comes by the cell any more.
    pub(crate) fn let_go(self, block: Offset, tag: Option<Tag>) {
        self.change(block.raw() | tag.map_or(0, Tag::bits), GONE);
    }

    /// Binds it to `block`, unless it is bound. Returns whether it is bound to `block` now. Wait-free.
    pub(crate) fn bind(self, block: Offset) -> bool {
        // Release: the data. Acquire: on failure, who bound it may have been the one whose commit is gone on with here.
        let order = (Ordering::AcqRel, Ordering::Acquire);
        let bound = self
            .memory
            .compare_exchange(self.at, 0, block.raw(), order.0, order.1);
        self.memory.crash_point(BindPoint::Bound);
        // Somebody may look just now whether it can be removed.
        bound.map_or_else(|there| block_of(there) == block, |_| true)
    }

    /// Closes the list of those who wait, and calls `tell` with the ports of every task in it. For who has found the cell bound,
    /// any number of times.
    pub(crate) fn tell<E>(self, mut tell: impl FnMut(Ports<M>) -> Result<(), E>) -> Result<(), E> {
        let memory = self.memory;
        // Acquire: the nodes. Release: whoever finds it closed finds the cell bound.
        let head: u64 = memory.fetch_or(self.at + 8, CLOSED, Ordering::AcqRel);
        memory.crash_point(BindPoint::Closed);
        // SeqCst: the binding comes before the look at the other inputs of those who wait; see the top.
        memory.fence(Ordering::SeqCst);
        let mut node = link(head);
        while !node.is_null() {
            // Relaxed: written before the node was put in. Its ports stay while a commit is under way.
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

    /// Puts in the node at `node`; `false` if the list is closed.
    pub(super) fn put(self, node: Offset) -> bool {
        let memory = self.memory;
        let mut head: u64 = memory.load(self.at + 8, Ordering::Acquire);
        // Relaxed: one at a time puts it in, and learns of a predecessor through its raised generation.
        if memory.load::<u64>(node + 8, Ordering::Relaxed) != 0 && self.has(head, node) {
            return true;
        }
        loop {
            if head & CLOSED != 0 {
                return false;
            }
            memory.store(node + 8, head | TRIED, Ordering::Relaxed);
            memory.crash_point(AwaitPoint::Marked);
            // Release: the node. Acquire: the nodes before it, and on failure that the cell is bound.
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
