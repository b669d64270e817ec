//! Counters in the coherent region.

use crate::coherent::Coherent;
use outlive::memory::{Memory, Offset, Ordering};

/// A counter in the coherent region, in a cache line of its own. It outlives every server.
///
/// The data of a pool has no atomic read-modify-write operations: memory that servers lend need not
/// be coherent.
#[derive(Clone, Copy, Debug)]
pub struct Counter {
    coherent: Coherent,
    at: Offset,
}

impl Counter {
    pub(crate) fn new(coherent: Coherent, index: u16) -> Option<Self> {
        let at = coherent.counter_at(index)?;
        Some(Self { coherent, at })
    }

    /// Adds to the counter, wrapping, and returns its previous value. Sequentially consistent.
    ///
    /// # Crash
    /// The addition took effect or not; a survivor cannot find out which.
    pub fn fetch_add(&self, value: u64) -> u64 {
        { self.coherent.memory() }.fetch_add(self.at, value, Ordering::SeqCst)
    }

    /// Returns the value.
    pub fn get(&self) -> u64 {
        self.coherent.memory().load(self.at, Ordering::SeqCst)
    }
}
