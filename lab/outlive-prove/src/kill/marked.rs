//! Native memory that records which crash points have been passed.

use super::control::Control;
use core::fmt;
use outlive_memory::{CrashPoint, Memory, Native, Offset, Ordering, PersistenceDomain, Word};

/// [`Native`] memory under a kill sweep: an access is the same instruction, and a crash point is a
/// store to a page outside the memory, so that the sweep knows between which points a kill fell.
///
/// A waiting loop is ended by a panic after some millions of rounds: no other thread runs in a
/// sweep, so it waits for a dead one.
#[derive(Clone, Copy)]
pub struct Marked {
    memory: Native,
    control: &'static Control,
}

impl Marked {
    pub(super) fn new(memory: Native, control: &'static Control) -> Self {
        Self { memory, control }
    }

    /// Returns the memory itself, for code not generic over memory. It passes no crash points.
    pub fn native(self) -> Native {
        self.memory
    }
}

impl fmt::Debug for Marked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Marked").field(&self.memory).finish()
    }
}

// SAFETY: size and domain are those of the memory beneath, which never change; accesses are
// forwarded to it.
unsafe impl Memory for Marked {
    #[inline(always)]
    fn size(self) -> u64 {
        self.memory.size()
    }

    #[inline(always)]
    fn domain(self) -> PersistenceDomain {
        self.memory.domain()
    }

    #[inline(always)]
    fn load<W: Word>(self, at: Offset, order: Ordering) -> W {
        self.memory.load(at, order)
    }

    #[inline(always)]
    fn store<W: Word>(self, at: Offset, value: W, order: Ordering) {
        self.memory.store(at, value, order);
    }

    #[inline(always)]
    fn exchange<W: Word>(self, at: Offset, value: W, order: Ordering) -> W {
        self.memory.exchange(at, value, order)
    }

    #[inline(always)]
    fn compare_exchange<W: Word>(
        self,
        at: Offset,
        current: W,
        new: W,
        success: Ordering,
        failure: Ordering,
    ) -> Result<W, W> {
        self.memory
            .compare_exchange(at, current, new, success, failure)
    }

    #[inline(always)]
    fn fetch_add<W: Word>(self, at: Offset, value: W, order: Ordering) -> W {
        self.memory.fetch_add(at, value, order)
    }

    #[inline(always)]
    fn fetch_and<W: Word>(self, at: Offset, value: W, order: Ordering) -> W {
        self.memory.fetch_and(at, value, order)
    }

    #[inline(always)]
    fn fetch_or<W: Word>(self, at: Offset, value: W, order: Ordering) -> W {
        self.memory.fetch_or(at, value, order)
    }

    fn copy_in(self, at: Offset, from: &[u8]) {
        self.memory.copy_in(at, from);
    }

    fn copy_out(self, at: Offset, into: &mut [u8]) {
        self.memory.copy_out(at, into);
    }

    #[inline(always)]
    fn write_back(self, at: Offset, len: u64) {
        self.memory.write_back(at, len);
    }

    #[inline(always)]
    fn drain(self) {
        self.memory.drain();
    }

    #[inline(always)]
    fn fence(self, order: Ordering) {
        self.memory.fence(order);
    }

    #[inline(always)]
    fn spin_hint(self) {
        self.memory.spin_hint();
        self.control.spin();
    }

    #[inline(always)]
    fn crash_point<P: CrashPoint>(self, point: P) {
        self.control.pass(point);
    }
}
