//! Reservations: the eras in which an instance may be reading.
//!
//! ```text
//!  reservation   lower   the era of the outermost pin; 0 while there is none
//!                upper   the newest era that a link was read in
//! ```
//!
//! While `lower` is 0, `upper` has no meaning.

use super::LocalHeap;
use crate::heap::scratch;
use crate::membership::Status;
use crate::recovery::Log;
use outlive_memory::{Memory, Native, Offset, Ordering};

const LOWER: u64 = 0;
const UPPER: u64 = 8;

/// A reservation that was read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reservation {
    lower: u64,
    upper: u64,
}

impl Reservation {
    /// Returns the reservation of the owner of `log`, if it has one.
    fn of<M: Memory>(memory: M, log: Log<M>) -> Option<Self> {
        let at = scratch::reservation(log);
        // Acquire: the last reads of a pin that is over by now come before our use of the block.
        // The upper end may be another pin's, an older or a newer: a pin that began before our
        // fence is seen in full, and one that began after it does not matter.
        let lower: u64 = memory.load(at + LOWER, Ordering::Acquire);
        let upper: u64 = memory.load(at + UPPER, Ordering::Relaxed);
        (lower != 0).then_some(Self { lower, upper })
    }

    /// Returns whether its holder may be reading a block of these eras.
    pub(super) fn meets(self, birth: u64, until: u64) -> bool {
        birth <= self.upper && self.lower <= until
    }
}

impl<M: Memory> LocalHeap<'_, M> {
    /// Begins to read blocks that other members may retire. Wait-free, except for the retired
    /// blocks that it now and then checks, as [`reclaim`](Self::reclaim) does. Pins nest: the
    /// outermost counts.
    ///
    /// In the name of a dead member, it continues with that member's reservation, and dropping it
    /// leaves the reservation to the end of the recovery.
    ///
    /// # Crash
    /// The blocks that the pin protects stay allocated until the recovery of its holder has settled
    /// the operation that was running.
    #[inline]
    pub fn pin(&self) -> Pinned<'_, M> {
        let pins = self.reclaimer.pins.get();
        if pins == 0 {
            if self.reclaimer.is_due() {
                self.reclaim();
            }
            self.reserve();
        }
        self.reclaimer.pins.set(pins + 1);
        Pinned {
            heap: self.shortened(),
        }
    }

    #[inline]
    fn reserve(&self) {
        let (memory, at) = (self.memory(), scratch::reservation(self.log()));
        if self.is_for_the_dead() {
            let lower: u64 = memory.load(at + LOWER, Ordering::Relaxed);
            if lower != 0 {
                let upper: u64 = memory.load(at + UPPER, Ordering::Relaxed);
                self.reclaimer.upper.set(upper);
                // As below: the dead member may have died between its stores and its own fence.
                memory.fence(Ordering::SeqCst);
                return;
            }
        }
        // If the era has advanced by the time of the fence, the first load notices it.
        let era = self.heap().present_era();
        self.reclaimer.upper.set(era);
        memory.store(at + UPPER, era, Ordering::Relaxed);
        // Release: a reclaimer that finds this pin instead of the previous one has acquired the
        // reads of the previous one.
        memory.store(at + LOWER, era, Ordering::Release);
        // Either a reclaimer sees the reservation, or this thread sees its unlinking.
        memory.fence(Ordering::SeqCst);
    }

    /// Clears the reservation: no thread reads in this name any more.
    pub(super) fn unreserve(&self) {
        let at = scratch::reservation(self.log()) + LOWER;
        // Release: after the reads.
        self.memory().store(at, 0u64, Ordering::Release);
    }

    /// Reads the reservations of possible readers. Follows a full fence after the unlinking.
    pub(super) fn reservations(&self, into: &mut Vec<Reservation>) {
        into.clear();
        let (memory, generations, logs) = (self.memory(), self.member().generations(), self.logs());
        for id in 0..logs.capacity().min(generations.capacity()) {
            // An instance that joins after our fence sees our unlinking. An id with an invalid
            // state may be a reader.
            let nobody = generations.state(id).is_ok_and(|state| {
                matches!(
                    state.status,
                    Status::Free | Status::Recovered | Status::Left | Status::Retired
                )
            });
            if !nobody {
                into.extend(Reservation::of(memory, logs.of(id)));
            }
        }
    }
}

/// A guard: while it exists, no block that its holder reaches is freed.
#[derive(Debug)]
pub struct Pinned<'h, M: Memory = Native> {
    heap: &'h LocalHeap<'h, M>,
}

impl<M: Memory> Pinned<'_, M> {
    /// Reads a link (acquire). The block that it leads to stays allocated while this pin exists, if
    /// the block that contains the link was part of the structure (or the link is not in a block).
    ///
    /// Costs a load of the era in addition to that of the link, and a fence when the era has
    /// advanced. Lock-free: retried only when others have allocated or retired a hundred blocks in
    /// between.
    #[inline]
    pub fn load(&self, at: Offset) -> u64 {
        let link: u64 = self.heap.memory().load(at, Ordering::Acquire);
        // After the link: the instance that made it had read the era before.
        let era = self.heap.heap().present_era();
        if era == self.heap.reclaimer.upper.get() {
            return link;
        }
        self.load_later(at, era)
    }

    /// Handles an advanced era: the block may be younger than the reservation says.
    #[cold]
    fn load_later(&self, at: Offset, mut era: u64) -> u64 {
        let heap = self.heap;
        let (memory, upper) = (heap.memory(), scratch::reservation(heap.log()) + UPPER);
        loop {
            heap.reclaimer.upper.set(era);
            memory.store(upper, era, Ordering::Relaxed);
            // As for a new pin.
            memory.fence(Ordering::SeqCst);
            let link: u64 = memory.load(at, Ordering::Acquire);
            let now = heap.heap().present_era();
            if now == era {
                return link;
            }
            era = now;
        }
    }
}

impl<M: Memory> Drop for Pinned<'_, M> {
    #[inline]
    fn drop(&mut self) {
        let pins = &self.heap.reclaimer.pins;
        pins.set(pins.get() - 1);
        if pins.get() == 0 && !self.heap.is_for_the_dead() {
            self.heap.unreserve();
        }
    }
}
