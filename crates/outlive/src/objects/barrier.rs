//! Barriers as named objects.

use super::{Class, Contents, Object, ObjectError};
use crate::heap::LocalHeap;
use crate::sync::GroupBarrier;
use outlive_memory::{Memory, Offset, Ordering};

/// The bytes before the barrier: the number of seats, and padding that aligns the barrier to 64
/// bytes.
const HEADER_BYTES: u64 = 128;

/// Returns where the barrier is in the contents at `at`.
fn place(at: Offset) -> Offset {
    Offset::from_raw((at.raw() + 8).next_multiple_of(64))
}

impl<M: Memory> Object<M> for GroupBarrier<M> {
    /// The number of seats.
    type Init = u32;
    const CLASS: Class = Class::Plain;

    fn describe() -> String {
        "barrier".into()
    }

    fn bytes(seats: &u32) -> u64 {
        HEADER_BYTES + Self::bytes(*seats)
    }

    fn create(heap: &LocalHeap<'_, M>, at: Offset, seats: u32) -> Result<(), ObjectError> {
        // Zeroed contents are an empty barrier; `open` only checks the number of seats.
        Self::open(heap.memory(), place(at), seats)?;
        // Relaxed: published with the state of the object.
        heap.memory().store(at, u64::from(seats), Ordering::Relaxed);
        heap.memory().persist(at, 8);
        Ok(())
    }

    fn open(contents: Contents<M>) -> Result<Self, ObjectError> {
        let (memory, at) = (contents.memory, contents.of_size(contents.bytes.max(8))?);
        let seats: u64 = memory.load(at, Ordering::Relaxed);
        let seats = seats.min(u64::from(u32::MAX)) as u32;
        contents.of_size(HEADER_BYTES + Self::bytes(seats))?;
        Ok(Self::open(memory, place(at), seats)?)
    }
}
