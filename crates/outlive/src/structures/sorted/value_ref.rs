//! Values that are read in place.

use super::datum::{Datum, OrderedDatum};
use super::node::Typed;
use super::{List, Map};
use crate::heap::{LocalHeap, Pinned};
use core::fmt;
use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr::NonNull;
use outlive_memory::{Native, Offset};

/// A datum whose representation in memory is its bytes, so that it can be borrowed. For `str`, each
/// borrowing checks the UTF-8.
pub trait InPlace: Datum {
    /// Returns `bytes` as a datum; `None` if they are not a valid value of the type.
    fn of_bytes(bytes: &[u8]) -> Option<&Self>;
}

impl InPlace for [u8] {
    #[inline(always)]
    fn of_bytes(bytes: &[u8]) -> Option<&Self> {
        Some(bytes)
    }
}

impl InPlace for str {
    fn of_bytes(bytes: &[u8]) -> Option<&Self> {
        std::str::from_utf8(bytes).ok()
    }
}

/// A value in place, as it was when it was found. While this exists, the value is neither changed
/// nor freed, although another member may have replaced or removed it.
///
/// It holds a [pin](LocalHeap::pin), which keeps every block that this thread can have read since
/// the pin began. Drop it soon: it delays reclamation.
///
/// The structures never store to the bytes of a linked value. A program that stores to them itself,
/// at the offset that [`Map::place`] returns, must not do so while a `ValueRef` to the value
/// exists: that is undefined behaviour. So it is to read a value whose length or place is damaged:
/// the bytes are checked to be inside the memory, and nothing else. In a pod whose users do not
/// trust one another, read a copy instead.
pub struct ValueRef<'h, V: ?Sized> {
    value: NonNull<V>,
    _pin: Pinned<'h, Native>,
    types: PhantomData<&'h V>,
}

impl<'h, V: InPlace + ?Sized> ValueRef<'h, V> {
    /// Returns the value of `len` bytes at `at`, which a structure led to under `pin`.
    ///
    /// # Panics
    /// If the structure is damaged: the bytes are not inside the memory, or not a valid value.
    #[inline]
    fn new(memory: Native, pin: Pinned<'h, Native>, (at, len): (Offset, u64)) -> Self {
        let start = memory.address(at, len);
        // SAFETY: they are inside the memory. No structure stores to a linked value; the pin and
        // the handle keep it allocated. The rest is assumed: see the type.
        let bytes = unsafe { core::slice::from_raw_parts(start.as_ptr(), len as usize) };
        let Some(value) = V::of_bytes(bytes) else {
            panic!(
                "the value at {at} is not a valid {}; run `outlive pod check`",
                V::describe()
            )
        };
        Self {
            value: NonNull::from(value),
            _pin: pin,
            types: PhantomData,
        }
    }
}

impl<V: ?Sized> Deref for ValueRef<'_, V> {
    type Target = V;

    #[inline(always)]
    fn deref(&self) -> &V {
        // SAFETY: as in `new`; the pin exists.
        unsafe { self.value.as_ref() }
    }
}

impl<V: ?Sized + fmt::Debug> fmt::Debug for ValueRef<'_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<K: Datum + ?Sized, V: InPlace + ?Sized> Map<K, V> {
    /// Returns the value of `key` in place. Lock-free. A named handle ensures that the structure is
    /// not destroyed while the value exists.
    #[inline]
    pub(crate) fn read<'h>(&self, heap: &'h LocalHeap<'h>, key: &K) -> Option<ValueRef<'h, V>> {
        let pin = heap.pin();
        let (node, word) = self.find(&pin, key)?;
        let place = Typed::<K, V>::FORM.value(self.header.memory, node, word);
        Some(ValueRef::new(self.header.memory, pin, place))
    }
}

impl<K: OrderedDatum + ?Sized, V: InPlace + ?Sized> List<K, V> {
    /// Returns the value of `key` in place. Lock-free. A named handle ensures that the structure is
    /// not destroyed while the value exists.
    #[inline]
    pub(crate) fn read<'h>(&self, heap: &'h LocalHeap<'h>, key: &K) -> Option<ValueRef<'h, V>> {
        let pin = heap.pin();
        let (node, word) = self.find(&pin, key)?;
        let place = Typed::<K, V>::FORM.value(self.header.memory, node, word);
        Some(ValueRef::new(self.header.memory, pin, place))
    }
}
