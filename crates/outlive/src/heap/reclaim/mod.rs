//! Safe reclamation: a retired block is freed when no instance can be reading it any more.
//!
//! Interval-based reclamation (2GEIBR of Wen et al., PPoPP'18), in shared memory and with deaths. A
//! heap has an *era*, a number that grows as its members allocate and retire. A block carries the
//! era in which it was born, and from its retirement on the era until which it could be reached. A
//! reader publishes a *reservation*: the era in which it pinned, and the newest in which it has
//! read a link. A retired block can be freed when the eras of its life meet no reservation.
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
//! * A link is published by a release store or compare-and-swap, and followed only as
//!   [`Pinned::load`] returned it. (The witness of a failed compare-and-swap must not be followed.)
//! * A link is followed only if the block that contains it was still part of the structure when the
//!   link was loaded. So a structure marks the links of a block before it unlinks the block, and
//!   does not continue from a marked link (as Harris and Michael do). All schemes in which a
//!   stalled reader cannot hold back blocks without bound require this: a reader that continues
//!   along removed blocks would reach blocks that were born, removed and freed after it stopped
//!   publishing.
//! * Exactly one instance retires a block, after all stores that took it out of the structure (in
//!   the order that acquire and release make).
//!
//! # Why no freed block is read
//!
//! Let a reader follow the link `L` to the block `B`. It has stored its reservation, made a full
//! fence *R*, loaded `L`, and then found the era equal to the upper end that it had published. The
//! birth of `B` is not newer: the instance that made `B` read the era before it published `L`, and
//! the reader loads the era after `L`. So the reservation published before *R* covers the birth. A
//! reclaimer has learnt that `B` was unlinked, makes a full fence *S*, reads the era, and then the
//! reservations. If *R* comes before *S*, it sees the reservation. The lower end of that is not
//! above the era read after *S*, which `B` is given as its `until`, so the two meet, and `B` stays.
//! If *S* comes before *R*, the reader's load of `L` sees that `B` is unlinked. For the same reason
//! `B` cannot be reached by a reader that pins later, nor by an id that did not look like a reader
//! when its status was read after *S*.
//!
//! The reclaimer sets the `until`, not the retirement, because the era must be read after a full
//! fence that follows the unlinking, and one fence then serves for many blocks.
//!
//! A reservation is cleared by a release store that the reclaimer acquires: a reader's last reads
//! come before any later store to the block.
//!
//! # What a stalled reader costs
//!
//! A pinned reader that is live but makes no step keeps its reservation. It holds back blocks born
//! no later than the upper end: those that existed then, and at most 128 more for each other member
//! (which may not have advanced the era yet). Blocks born later are freed while the reader sleeps,
//! however long.
//!
//! # Deaths
//!
//! The retired blocks of an instance are a list in the scratch area of its log; the holder of the
//! claim on the log is its only writer. Every step is one store or one step of the heap:
//!
//! * *Retire*: the block's words are written, then the list's head, by one release store, which is
//!   the retirement. A handler learns from [`LocalHeap::is_last_retired`] whether it took place: no
//!   block is taken off the list inside a retirement or under a pin.
//! * *Free*: [`LocalHeap::free_from`] the word that leads to the block, which gets the block's
//!   `next` instead. The heap's recovery completes or undoes this before any thread walks the list
//!   again.
//! * *Death of a reader*: its reservation counts until its recovery releases it, after the handler
//!   of its operation; the handler reads under it ([`LocalHeap::pin`] in the name of the dead
//!   member widens it).
//! * *Death or departure of a retiring instance*: its list stays where it is, with its id. The id's
//!   next incarnation has it. Before that, a reclaiming thread claims the log of the departed id,
//!   as a recovering thread does, frees the blocks that can be freed, and settles the log again. A
//!   counter in the heap's state says when a search is worthwhile.

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

/// The number of bytes that reclamation uses at the start of every block that is to be
/// [retired](LocalHeap::retire): the era of its birth ([`LocalHeap::era`]); a word that the
/// structure may use until the retirement, and that is not 0 afterwards; and a word that only the
/// reclaimer uses after the retirement.
pub const RETIRED_HEADER: u64 = 24;

/// The positions of the words of a block's header.
const BIRTH: u64 = 0;
const UNTIL: u64 = 8;
const NEXT: u64 = 16;

/// The number of births and retirements after which a thread advances the era once.
const PER_ERA: u32 = 128;

/// A thread checks its retired blocks when their weight exceeds twice the number that it last had
/// to keep by this.
const PATIENCE: u64 = 64;

/// The number of bytes of a large block that weigh as much as one block: a thread that replaces
/// large values keeps at most about `PATIENCE` times this without need.
const BYTES_PER_WEIGHT: u64 = 16 << 10;

impl<M: Memory> Heap<M> {
    /// Returns the number of past eras. Every pinned load reads it; its lines hold little else.
    fn era_at(self) -> Offset {
        self.state() + 128
    }

    /// Returns the number of times that an instance that ended has left retired blocks with its id.
    fn left_at(self) -> Offset {
        self.state() + 136
    }

    /// Returns the current era, from 1: 0 is not an era.
    ///
    /// Relaxed: the argument at the top needs no more than that one word's values are seen in
    /// order.
    #[inline(always)]
    fn present_era(self) -> u64 {
        let past: u64 = self.memory().load(self.era_at(), Ordering::Relaxed);
        // Wraps only in a damaged heap.
        past.wrapping_add(1)
    }
}

/// A thread's own state of reclamation. Its recovery does not need it.
#[derive(Debug)]
pub(super) struct Reclaimer {
    /// The number of pins.
    pins: Cell<u64>,
    /// The upper end of the reservation, while there are pins.
    upper: Cell<u64>,
    /// The number of births and retirements since this thread last advanced the era.
    steps: Cell<u32>,
    /// The number of blocks in the list, as far as known.
    count: Cell<u64>,
    /// The number of blocks that were in the list at the last check, and the weight of those that
    /// were retired since.
    weight: Cell<u64>,
    /// The weight at which to check which of them can be freed.
    due: Cell<u64>,
    /// The value of the counter of [left](Heap::left_at) lists when no list was left to check.
    seen: Cell<u64>,
    /// The reservations as last read; kept for its capacity.
    reservations: RefCell<Vec<pin::Reservation>>,
}

impl Reclaimer {
    /// Returns the initial state. A handle that acts for a dead member never becomes due by itself.
    pub(super) fn new(for_the_dead: bool) -> Self {
        Self {
            pins: Cell::new(0),
            upper: Cell::new(0),
            steps: Cell::new(0),
            count: Cell::new(0),
            weight: Cell::new(0),
            due: Cell::new(if for_the_dead { u64::MAX } else { PATIENCE }),
            seen: Cell::new(0),
            reservations: RefCell::default(),
        }
    }

    /// Lets the next outermost pin check which blocks can be freed.
    pub(super) fn check_soon(&self) {
        self.due.set(0);
    }

    #[inline(always)]
    fn is_due(&self) -> bool {
        self.weight.get() >= self.due.get()
    }
}

impl<M: Memory> LocalHeap<'_, M> {
    /// Returns the era in which a new block is born: the first word of every block that will be
    /// retired, written before the block is linked to anything. Wait-free. Called once for each
    /// block, because the calls advance the era.
    #[inline]
    pub fn era(&self) -> u64 {
        self.step();
        self.heap().present_era()
    }

    /// Counts a birth or a retirement.
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
