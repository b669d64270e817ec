//! Arrays.

use super::{Class, Contents, Object, ObjectError};
use crate::heap::LocalHeap;
use crate::segment::Shared;
use core::fmt;
use core::marker::PhantomData;
use outlive_memory::{Memory, Native, Offset, Ordering};

/// An array of fixed length with elements of plain data, all zero at creation.
///
/// Elements of 1, 2, 4 or 8 bytes are loaded and stored atomically. Elements of any other size are
/// copied in words of 8 bytes. If a reader runs concurrently with a writer, or a writer died in the
/// store, the value may mix words of the old and the new element. To prevent that, use a map from
/// the index, or a mutex.
pub struct Array<T: Shared, M: Memory = Native> {
    memory: M,
    at: Offset,
    len: u64,
    types: PhantomData<fn(T) -> T>,
}

impl<T: Shared, M: Memory> Array<T, M> {
    const SIZE: u64 = size_of::<T>() as u64;
    const STRIDE: u64 = stride(Self::SIZE);

    /// Returns the number of elements.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns whether the array has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    fn place(&self, index: u64) -> Offset {
        assert!(
            index < self.len,
            "the index is {index}, but the array has {} elements",
            self.len
        );
        self.at + index * Self::STRIDE
    }

    /// Returns the element at `index`. Wait-free.
    ///
    /// # Panics
    /// If `index` is not less than [`len`](Self::len).
    #[inline]
    pub fn get(&self, index: u64) -> T {
        let (memory, at) = (self.memory, self.place(index));
        let mut value = T::zeroed();
        let bytes = bytemuck::bytes_of_mut(&mut value);
        // Acquire: the reader sees what the writer of the element did before its store.
        match Self::SIZE {
            1 => bytes.copy_from_slice(&[memory.load::<u8>(at, Ordering::Acquire)]),
            2 => bytes.copy_from_slice(&memory.load::<u16>(at, Ordering::Acquire).to_ne_bytes()),
            4 => bytes.copy_from_slice(&memory.load::<u32>(at, Ordering::Acquire).to_ne_bytes()),
            8 => bytes.copy_from_slice(&memory.load::<u64>(at, Ordering::Acquire).to_ne_bytes()),
            _ => {
                memory.copy_out(at, bytes);
                memory.fence(Ordering::Acquire);
            }
        }
        value
    }

    /// Stores the element at `index`. Wait-free.
    ///
    /// # Panics
    /// If `index` is not less than [`len`](Self::len).
    ///
    /// # Crash
    /// The element has the old value or the new one; one of several words may have words of both.
    #[inline]
    pub fn set(&self, index: u64, value: T) {
        let (memory, at) = (self.memory, self.place(index));
        let bytes = bytemuck::bytes_of(&value);
        // Release: pairs with the acquire in `get`.
        match Self::SIZE {
            1 => memory.store(at, bytes[0], Ordering::Release),
            2 => memory.store(at, u16::from_ne_bytes(word(bytes)), Ordering::Release),
            4 => memory.store(at, u32::from_ne_bytes(word(bytes)), Ordering::Release),
            8 => memory.store(at, u64::from_ne_bytes(word(bytes)), Ordering::Release),
            _ => {
                memory.fence(Ordering::Release);
                memory.copy_in(at, bytes);
            }
        }
        memory.persist(at, Self::STRIDE);
    }

    /// Returns an iterator over the elements. Each element is read when the iterator reaches it.
    pub fn iter(&self) -> impl Iterator<Item = T> + use<'_, T, M> {
        (0..self.len).map(|index| self.get(index))
    }
}

/// Returns the distance between two elements of `size` bytes.
pub(super) const fn stride(size: u64) -> u64 {
    match size {
        1 | 2 | 4 => size,
        0 => 8,
        other => other.next_multiple_of(8),
    }
}

/// Returns the bytes of a word.
fn word<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().expect("the element has N bytes")
}

impl<M: Memory> Array<u64, M> {
    /// Adds to the element at `index`, and returns its value before the addition. The element wraps
    /// around at 2⁶⁴. Wait-free.
    ///
    /// # Panics
    /// If `index` is not less than [`len`](Self::len).
    ///
    /// # Crash
    /// The addition took effect or not; no log records which.
    #[inline]
    pub fn add(&self, index: u64, by: u64) -> u64 {
        let at = self.place(index);
        // AcqRel: as `get` and `set`.
        let before = self.memory.fetch_add(at, by, Ordering::AcqRel);
        self.memory.persist(at, 8);
        before
    }
}

impl<T: Shared, M: Memory> Object<M> for Array<T, M> {
    /// The number of elements.
    type Init = u64;
    const CLASS: Class = Class::Plain;

    fn describe() -> String {
        format!("array of {}", T::LAYOUT.in_words())
    }

    fn fingerprint() -> u64 {
        <T as Shared>::FINGERPRINT
    }

    fn bytes(len: &u64) -> u64 {
        // On overflow the size saturates, and the heap refuses it.
        len.saturating_mul(Self::STRIDE)
    }

    fn create(_: &LocalHeap<'_, M>, _: Offset, _: u64) -> Result<(), ObjectError> {
        Ok(()) // zeroes are values of every type
    }

    fn open(contents: Contents<M>) -> Result<Self, ObjectError> {
        Ok(Self {
            memory: contents.memory,
            at: contents.at,
            len: contents.bytes / Self::STRIDE,
            types: PhantomData,
        })
    }
}

impl<T: Shared, M: Memory> fmt::Debug for Array<T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Array({} of {})", self.len, T::LAYOUT.name)
    }
}
