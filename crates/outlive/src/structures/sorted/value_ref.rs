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

/// A datum that can be read in place: it is its bytes.
pub trait InPlace: Datum {
    /// Returns the datum of these bytes; `None` if they are none.
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
/// It is a [pin](LocalHeap::pin): as long as it exists, no member frees a block that was in use
/// since. So it is for reading, not for keeping.
///
/// No one stores to the bytes of a value that is replaced as a whole. For one that a program
/// changes at its [place](Map::place) it must not be used.
pub struct ValueRef<'h, V: ?Sized> {
    value: NonNull<V>,
    _pin: Pinned<'h, Native>,
    types: PhantomData<&'h V>,
}

impl<'h, V: InPlace + ?Sized> ValueRef<'h, V> {
    /// Returns the value of `len` bytes at `at`, which a structure led to under `pin`.
    ///
    /// # Panics
    /// If the structure is damaged: the bytes are not inside the memory, or no value.
    #[inline]
    fn new(memory: Native, pin: Pinned<'h, Native>, (at, len): (Offset, u64)) -> Self {
        let start = memory.address(at, len);
        // SAFETY: inside the memory, as `address` has checked. The bytes of a value are written
        // before it is linked and not after that, and the pin keeps the block from being freed.
        let bytes = unsafe { core::slice::from_raw_parts(start.as_ptr(), len as usize) };
        let Some(value) = V::of_bytes(bytes) else {
            panic!("the value at {at} is not valid UTF-8; run `outlive pod check`")
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
    /// Returns the value of `key` in place. Lock-free.
    #[inline]
    pub fn read<'h>(&self, heap: &'h LocalHeap<'h>, key: &K) -> Option<ValueRef<'h, V>> {
        let pin = heap.pin();
        let (node, word) = self.find(&pin, key)?;
        let place = Typed::<K, V>::FORM.value(heap.memory(), node, word);
        Some(ValueRef::new(heap.memory(), pin, place))
    }
}

impl<K: OrderedDatum + ?Sized, V: InPlace + ?Sized> List<K, V> {
    /// Returns the value of `key` in place. Lock-free.
    #[inline]
    pub fn read<'h>(&self, heap: &'h LocalHeap<'h>, key: &K) -> Option<ValueRef<'h, V>> {
        let pin = heap.pin();
        let (node, word) = self.find(&pin, key)?;
        let place = Typed::<K, V>::FORM.value(heap.memory(), node, word);
        Some(ValueRef::new(heap.memory(), pin, place))
    }
}
