//! A counter.

use super::{Class, Contents, Object, ObjectError};
use crate::heap::LocalHeap;
use core::fmt;
use outlive_memory::{Memory, Native, Offset, Ordering};

/// A number that any number of members add to. Wait-free: each addition takes effect in one step,
/// or not at all if its caller dies before.
///
/// It does not record whether the last addition of a dead member took effect; a [map] does.
///
/// [map]: crate::structures::Map
pub struct Counter<M: Memory = Native> {
    memory: M,
    at: Offset,
}

impl<M: Memory> Counter<M> {
    /// Adds `by`, and returns the number before the addition. The number wraps around at 2⁶⁴.
    ///
    /// # Crash
    /// The addition took effect or not. No log records which.
    pub fn add(&self, by: u64) -> u64 {
        // AcqRel: a thread that reads the sum sees what the adders did before.
        let before = self.memory.fetch_add(self.at, by, Ordering::AcqRel);
        self.memory.persist(self.at, 8);
        before
    }

    /// Returns the number.
    pub fn get(&self) -> u64 {
        self.memory.load(self.at, Ordering::Acquire)
    }
}

impl<M: Memory> Object<M> for Counter<M> {
    type Init = u64;
    const CLASS: Class = Class::Plain;

    fn describe() -> String {
        "counter".into()
    }

    fn bytes(_: &u64) -> u64 {
        8
    }

    fn create(heap: &LocalHeap<'_, M>, at: Offset, init: u64) -> Result<(), ObjectError> {
        // Relaxed: published with the state of the object.
        heap.memory().store(at, init, Ordering::Relaxed);
        heap.memory().persist(at, 8);
        Ok(())
    }

    fn open(contents: Contents<M>) -> Result<Self, ObjectError> {
        let (memory, at) = (contents.memory, contents.of_size(8)?);
        Ok(Self { memory, at })
    }
}

impl<M: Memory> fmt::Debug for Counter<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Counter({})", self.get())
    }
}
