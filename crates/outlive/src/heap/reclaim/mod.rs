//! Safe reclamation: a block that others may still be reading is freed when nobody is.
//!
//! Interval-based reclamation (2GEIBR of Wen et al., PPoPP'18), in shared memory and with deaths. A
//! heap has an *era*, a number that grows with what its members allocate and retire. A block carries the era
//! in which it was born, and from its retirement on the era until which somebody could have reached it. A
//! reader publishes a *reservation*: the era in which it pinned, and the newest that it has read a link in. A
//! retired block is free to go when the eras of its life meet no reservation.
//!
//! # The contract of a block
//!
//! The first [`RETIRED_HEADER`] bytes of a block that will be retired are three words:
//!
//! ```text
//!  0  birth    LocalHeap::era(), written before the block is linked to anything
//!  8  until    the structure's own until the retirement, which makes it nonzero and keeps it so
//! 16  next     the reclaimer's from the retirement on
//! ```
//!
//! * A link is published by a release store or compare-and-swap, and followed only as [`Pinned::load`]
//!   returned it. (The witness of a compare-and-swap that failed is not one to follow.)
//! * A link is followed only if the block that it stands in was still part of the structure when it was
//!   loaded. So a structure marks the links of what it removes, before it unlinks it, and does not go on
//!   from a marked link (Harris and Michael's way). This is what all schemes ask that a stalled reader
//!   cannot hold up without bound: a reader who wanders along removed blocks would come to such as were
//!   born, removed and freed after it stopped publishing.
//! * Exactly one instance retires a block, after everything that took it out of the structure (in the order
//!   that acquire and release make).
//!
//! # Why nobody reads what is free
//!
//! Let a reader follow, at the link `L`, to the block `B`. It has stored its reservation, has made a full
//! fence *R*, has loaded `L`, and found the era then equal to the upper end that it had published. `B`'s
//! birth is not newer: its maker read the era before it published `L`, and the reader's load of the era
//! comes after its load of `L`. So the reservation that was published before *R* covers the birth. A
//! reclaimer has learnt that `B` was unlinked, makes a full fence *S*, reads the era, and then the
//! reservations. Either *R* comes before *S*: then it sees the reservation, whose lower end is not above
//! the era that it reads after *S*; `B` is given that era for its `until`, so the two meet, and `B`
//! stays. Or *S* comes before *R*: then the reader's load of `L` sees that `B` is gone. For the same
//! reason a reader that pins later cannot reach `B`, nor an id that did not look like a reader when its
//! status was read after *S*.
//!
//! The `until` is given by the reclaimer, and not at the retirement, because it must be read after a full
//! fence that follows the unlinking, and one fence then serves for many blocks.
//!
//! A reservation is cleared by a release store that the reclaimer acquires: the last reads of a reader come
//! before whatever is written into the block next.
//!
//! # What a stalled reader costs
//!
//! A pinned reader that lives and makes no step keeps the reservation that it has. It holds back blocks
//! that were born no later than its upper end: those that existed then, and at most 128 more for each
//! other member (it may not have moved the era on yet). What is born later is freed while it sleeps,
//! however long.
//!
//! # Deaths
//!
//! The retired blocks of an instance are a list in the room of its log; who holds the claim on the log is
//! its only writer. Every step is one store or one step of the heap's:
//!
//! * *Retire*: the block's words are written, then the list's head, by one release store, which is the
//!   retirement. A handler learns from [`LocalHeap::is_last_retired`] whether it took place: nothing is
//!   taken off the list inside a retirement or under a pin.
//! * *Free*: [`LocalHeap::free_from`] the word that leads to the block, which gets the block's `next`
//!   instead. It is completed or undone by the heap's recovery before anybody goes along the list again.
//! * *Death of a reader*: its reservation counts until its recovery releases it, after the handler of its
//!   operation; the handler reads under it ([`LocalHeap::pin`] in the name of the dead widens it).
//! * *Death of a retirer, or its leaving*: its list stays where it is, with its id. The next incarnation
//!   of the id has it; before that, whoever reclaims claims the log of the id that is gone, as a
//!   recoverer does, frees what can be freed, and settles the log again. A counter in the heap's state
//!   says when it is worth looking.

mod check;
mod gone;
mod pin;
mod retire_from;
mod retired;

pub use check::BadRetired;
pub use gone::SecondWay;
pub(super) use gone::{refuse_another, release};
pub use pin::Pinned;
pub use retire_from::RetireFromPoint;
pub(super) use retire_from::recoverers;
pub use retired::{ReclaimPoint, RetirePoint};

use super::{Heap, LocalHeap};
use core::cell::{Cell, RefCell};
use outlive_memory::{Memory, Offset, Ordering};

/// How many bytes at the start of a block belong to reclamation: of every block that is to be
/// [retired](LocalHeap::retire). The block's birth ([`LocalHeap::era`]), a word of the structure's own
/// until the retirement and nonzero from then on, and a word that is the reclaimer's from then on.
pub const RETIRED_HEADER: u64 = 24;

/// Where the words of a block's header are.
const BIRTH: u64 = 0;
const UNTIL: u64 = 8;
const NEXT: u64 = 16;

/// A thread moves the era on once in so many births and retirements.
const PER_ERA: u32 = 128;

/// A thread looks at its retired blocks when there are so many more than it had to keep, twice over.
const PATIENCE: u64 = 64;

impl<M: Memory> Heap<M> {
    /// How many eras have passed. A line pair of its own: every pinned load reads it.
    fn era_at(self) -> Offset {
        self.state() + 128
    }

    /// How often an instance that ended has left retired blocks with its id.
    fn left_at(self) -> Offset {
        self.state() + 136
    }

    /// The present era, from 1: 0 is no era.
    ///
    /// Relaxed: see the argument at the top, which needs no more than that one word's values are seen in order.
    #[inline(always)]
    fn present_era(self) -> u64 {
        self.memory().load::<u64>(self.era_at(), Ordering::Relaxed) + 1
    }
}

/// What a thread remembers for its reclamation. None of it matters to its recovery.
#[derive(Debug)]
pub(super) struct Reclaimer {
    /// How many pins there are.
    pins: Cell<u32>,
    /// The upper end of the reservation, while there are any.
    upper: Cell<u64>,
    /// How many births and retirements there were since this thread moved the era on.
    steps: Cell<u32>,
    /// How many blocks are in the list, as far as is known.
    count: Cell<u64>,
    /// At which count to look which of them can be freed.
    due: Cell<u64>,
    /// The value of the counter of [left](Heap::left_at) lists, when none was left to look at.
    seen: Cell<u64>,
    /// The reservations when they were looked at last: kept for its room.
    reservations: RefCell<Vec<pin::Reservation>>,
}

impl Reclaimer {
    /// Nothing is known yet. One that acts for the dead is never due of itself.
    pub(super) fn new(for_the_dead: bool) -> Self {
        Self {
            pins: Cell::new(0),
            upper: Cell::new(0),
            steps: Cell::new(0),
            count: Cell::new(0),
            due: Cell::new(if for_the_dead { u64::MAX } else { PATIENCE }),
            seen: Cell::new(0),
            reservations: RefCell::default(),
        }
    }

    #[inline(always)]
    fn is_due(&self) -> bool {
        self.count.get() >= self.due.get()
    }
}

impl<M: Memory> LocalHeap<'_, M> {
    /// The era that a new block is born in: the first word of every block that will be retired, written
    /// before the block is linked to anything. Wait-free; asked once a block, for that is how the era moves.
    #[inline]
    pub fn era(&self) -> u64 {
        self.step();
        self.heap().present_era()
    }

    /// A birth or a retirement.
    #[inline]
    fn step(&self) {
        let steps = &self.reclaimer.steps;
        steps.set(steps.get() + 1);
        if steps.get() == PER_ERA {
            steps.set(0);
            let heap = self.heap();
            // Relaxed: as in `present_era`.
            heap.memory()
                .fetch_add(heap.era_at(), 1u64, Ordering::Relaxed);
        }
    }
}
