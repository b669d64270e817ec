//! Cells: one value each.

use super::{Class, Contents, Object, ObjectError};
use crate::heap::LocalHeap;
use crate::heap::buddy::AllocateError;
use crate::structures::{Datum, Exchange, InPlace, InsertError, List, ValueRef};
use core::fmt;
use outlive_memory::{Memory, Native, Offset};

/// One value, of plain data, text or bytes of any length, that is replaced as a whole: a reader
/// sees an old value or a new one, never a part of each.
///
/// It is stored as a [`List`] with one entry, so its operations are lock-free and detectable, as
/// the list's are.
pub struct Cell<V: Datum + ?Sized, M: Memory = Native>(List<u64, V, M>);

/// Bytes of any length, replaced as a whole.
pub type Blob<M = Native> = Cell<[u8], M>;

/// The key of the entry.
const KEY: u64 = 0;

impl<V: Datum + ?Sized, M: Memory> Cell<V, M> {
    /// Returns the value. Lock-free.
    ///
    /// # Panics
    /// If the cell is damaged.
    #[inline]
    pub fn get(&self, heap: &LocalHeap<'_, M>) -> V::Owned {
        self.0.get(heap, &KEY).unwrap_or_else(|| self.damaged())
    }

    /// Replaces the value by `value`. Lock-free.
    ///
    /// # Panics
    /// If the cell is damaged.
    ///
    /// # Errors
    /// If there is no memory; nothing is changed then.
    ///
    /// # Crash
    /// The cell has the old value or the new one; the log says which.
    #[inline]
    pub fn set(&self, heap: &LocalHeap<'_, M>, value: &V) -> Result<(), AllocateError> {
        match self.0.set(heap, &KEY, value)? {
            true => Ok(()),
            false => self.damaged(),
        }
    }

    /// Replaces the value by the one that `make` computes from it, and returns the old value.
    /// `make` is called again if another member replaces the value first. Lock-free.
    ///
    /// # Panics
    /// If the cell is damaged.
    ///
    /// # Errors
    /// If there is no memory; nothing is changed then.
    ///
    /// # Crash
    /// The outcome is that of a crash in [`set`](Self::set).
    pub fn update(
        &self,
        heap: &LocalHeap<'_, M>,
        make: impl FnMut(V::Owned) -> V::Owned,
    ) -> Result<V::Owned, AllocateError> {
        let before = self.0.update(heap, &KEY, make)?;
        Ok(before.unwrap_or_else(|| self.damaged()))
    }

    /// Replaces the value by `new` if it is `expected`. Lock-free. Returns [`Exchange::Absent`] if
    /// the cell is damaged.
    ///
    /// # Errors
    /// If there is no memory; nothing is changed then.
    ///
    /// # Crash
    /// The outcome is that of a crash in [`set`](Self::set).
    pub fn compare_exchange(
        &self,
        heap: &LocalHeap<'_, M>,
        expected: &V,
        new: &V,
    ) -> Result<Exchange<V::Owned>, AllocateError> {
        self.0.compare_exchange(heap, &KEY, expected, new)
    }

    /// Returns the offset of its header.
    pub(super) fn offset(&self) -> Offset {
        self.0.offset()
    }

    #[cold]
    fn damaged(&self) -> ! {
        panic!(
            "the cell at {} is damaged: it has no value; copy what you need into a new pod",
            self.0.offset()
        )
    }
}

impl<V: InPlace + ?Sized> Cell<V> {
    /// Returns the value in place. Lock-free.
    ///
    /// # Panics
    /// If the cell is damaged.
    #[inline]
    pub(super) fn read<'h>(&self, heap: &'h LocalHeap<'h>) -> ValueRef<'h, V> {
        self.0.read(heap, &KEY).unwrap_or_else(|| self.damaged())
    }
}

impl<V: Datum + ?Sized, M: Memory> Object<M> for Cell<V, M>
where
    V::Owned: Clone,
{
    /// The first value.
    type Init = V::Owned;
    const CLASS: Class = Class::Structure;

    fn describe() -> String {
        format!("cell of {}", V::describe())
    }

    fn fingerprint() -> u64 {
        V::FINGERPRINT
    }

    fn bytes(_: &V::Owned) -> u64 {
        8
    }

    fn create(heap: &LocalHeap<'_, M>, at: Offset, init: V::Owned) -> Result<(), ObjectError> {
        let list = List::<u64, V, M>::create(heap, at)?;
        match list.insert(heap, &KEY, V::borrow(&init)) {
            Err(InsertError::Heap(error)) => Err(error.into()),
            // No other member knows the list.
            Ok(()) | Err(InsertError::Exists(_)) => Ok(()),
        }
    }

    fn open(contents: Contents<M>) -> Result<Self, ObjectError> {
        Ok(Self(<List<u64, V, M> as Object<M>>::open(contents)?))
    }
}

impl<V: Datum + ?Sized, M: Memory> fmt::Debug for Cell<V, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cell({})", self.0.offset())
    }
}
