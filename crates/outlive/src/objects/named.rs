//! Handles to named objects, with their operations.

use super::lease::Lease;
use super::{Array, Cell, Counter, ObjectError, Objects};
use crate::heap::LocalHeap;
use crate::heap::buddy::AllocateError;
use crate::membership::{Instance, InstanceId};
use crate::segment::Shared;
use crate::structures::{
    Datum, Exchange, InPlace, InsertError, Iter, List, Map, OrderedDatum, ValueRef,
};
use crate::sync::{
    BarrierError, GroupBarrier, LockError, MutexGuard, RecoverableMutex, Repair, Seat,
};
use core::fmt;
use core::time::Duration;
use outlive_memory::{Memory, Native};
use std::ops::Deref;

/// A handle to a named object. While it exists, the object is not destroyed, although it may lose
/// its name.
///
/// The operations are those of the type, without the heap handle: the handle has it.
///
/// # Crash
/// If the caller dies, the member that recovers it gives up the handle.
pub struct Named<'h, T, M: Memory = Native> {
    lease: Lease<'h, M>,
    object: T,
}

impl<'h, T, M: Memory> Named<'h, T, M> {
    pub(super) fn lease(&self) -> &Lease<'h, M> {
        &self.lease
    }

    pub(super) fn new(lease: Lease<'h, M>, object: T) -> Self {
        Self { lease, object }
    }

    /// Returns the object in the form whose operations take a heap handle. It must not be used
    /// after this handle is dropped.
    #[inline(always)]
    pub fn low_level(&self) -> &T {
        &self.object
    }

    /// Returns the ids of the members that have other handles to the object at this moment, once
    /// for each handle.
    pub fn other_users(&self) -> Vec<InstanceId> {
        let lease = &self.lease;
        { lease.directory().users(lease.at(), lease.slot()) }.collect()
    }

    /// Removes the current name of the object, also a new one after a rename, and ends the handle:
    /// see [`Objects::unlink`](super::Objects::unlink). Returns false if the object had no name any
    /// more.
    ///
    /// ```
    #[doc = include_str!("../structures/example_setup.txt")]
    /// use outlive::objects::{Counter, Directory, Objects};
    ///
    /// let objects = Objects::of(&heap, Directory::open_or_create(&heap)?);
    /// let hits = objects.create::<Counter>("hits", 3)?;
    /// objects.rename("hits", "misses")?;
    /// assert!(hits.unlink()?);
    /// assert!(objects.open::<Counter>("misses").is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the object is damaged, or a [`Client`](super::Client) in use.
    ///
    /// # Crash
    /// The object has its name, or not; the last of its users destroys it then.
    pub fn unlink(self) -> Result<bool, ObjectError> {
        Objects::of(self.heap(), *self.lease.directory()).unlink_leased(&self.lease, None)
    }

    #[inline(always)]
    fn heap(&self) -> &'h LocalHeap<'h, M> {
        self.lease.heap()
    }
}

/// The operations of [`Map`].
impl<'h, K: Datum + ?Sized, V: Datum + ?Sized, M: Memory> Named<'h, Map<K, V, M>, M> {
    /// Calls [`Map::get`].
    #[inline]
    pub fn get(&self, key: &K) -> Option<V::Owned> {
        self.object.get(self.heap(), key)
    }

    /// Calls [`Map::contains`].
    pub fn contains(&self, key: &K) -> bool {
        self.object.contains(self.heap(), key)
    }

    /// Calls [`Map::insert`].
    ///
    /// # Errors
    /// If the key exists, or there is no memory.
    #[inline]
    pub fn insert(&self, key: &K, value: &V) -> Result<(), InsertError<V::Owned>> {
        self.object.insert(self.heap(), key, value)
    }

    /// Calls [`Map::get_or_insert`].
    ///
    /// # Errors
    /// If there is no memory.
    pub fn get_or_insert(&self, key: &K, value: &V) -> Result<V::Owned, AllocateError> {
        self.object.get_or_insert(self.heap(), key, value)
    }

    /// Calls [`Map::remove`].
    pub fn remove(&self, key: &K) -> Option<V::Owned> {
        self.object.remove(self.heap(), key)
    }

    /// Calls [`Map::remove_if`].
    pub fn remove_if(&self, key: &K, wanted: impl FnMut(V::Owned) -> bool) -> Option<V::Owned> {
        self.object.remove_if(self.heap(), key, wanted)
    }

    /// Calls [`Map::replace`].
    ///
    /// # Errors
    /// If there is no memory.
    pub fn replace(&self, key: &K, value: &V) -> Result<Option<V::Owned>, AllocateError> {
        self.object.replace(self.heap(), key, value)
    }

    /// Calls [`Map::update`].
    ///
    /// # Errors
    /// If there is no memory.
    pub fn update(
        &self,
        key: &K,
        make: impl FnMut(V::Owned) -> V::Owned,
    ) -> Result<Option<V::Owned>, AllocateError> {
        self.object.update(self.heap(), key, make)
    }

    /// Calls [`Map::upsert`].
    ///
    /// # Errors
    /// If there is no memory.
    pub fn upsert(
        &self,
        key: &K,
        first: &V,
        make: impl FnMut(V::Owned) -> V::Owned,
    ) -> Result<(), AllocateError> {
        self.object.upsert(self.heap(), key, first, make)
    }

    /// Calls [`Map::compare_exchange`].
    ///
    /// # Errors
    /// If there is no memory.
    pub fn compare_exchange(
        &self,
        key: &K,
        expected: &V,
        new: &V,
    ) -> Result<Exchange<V::Owned>, AllocateError> {
        self.object
            .compare_exchange(self.heap(), key, expected, new)
    }

    /// Calls [`Map::len`].
    pub fn len(&self) -> u64 {
        self.object.len()
    }

    /// Calls [`Map::is_empty`].
    pub fn is_empty(&self) -> bool {
        self.object.is_empty()
    }

    /// Calls [`Map::iter`].
    pub fn iter(&self) -> Iter<'_, K, V, M> {
        self.object.iter(self.heap())
    }
}

/// The operations of [`List`].
impl<'h, K: OrderedDatum + ?Sized, V: Datum + ?Sized, M: Memory> Named<'h, List<K, V, M>, M> {
    /// Calls [`List::get`].
    pub fn get(&self, key: &K) -> Option<V::Owned> {
        self.object.get(self.heap(), key)
    }

    /// Calls [`List::insert`].
    ///
    /// # Errors
    /// If the key exists, or there is no memory.
    pub fn insert(&self, key: &K, value: &V) -> Result<(), InsertError<V::Owned>> {
        self.object.insert(self.heap(), key, value)
    }

    /// Calls [`List::remove`].
    pub fn remove(&self, key: &K) -> Option<V::Owned> {
        self.object.remove(self.heap(), key)
    }

    /// Calls [`List::replace`].
    ///
    /// # Errors
    /// If there is no memory.
    pub fn replace(&self, key: &K, value: &V) -> Result<Option<V::Owned>, AllocateError> {
        self.object.replace(self.heap(), key, value)
    }

    /// Calls [`List::iter`].
    pub fn iter(&self) -> Iter<'_, K, V, M> {
        self.object.iter(self.heap())
    }
}

/// Reading in place.
impl<K: Datum + ?Sized, V: InPlace + ?Sized> Named<'_, Map<K, V>> {
    /// Returns the value of `key` in place: see [`ValueRef`]. Lock-free.
    #[inline]
    pub fn read(&self, key: &K) -> Option<ValueRef<'_, V>> {
        self.object.read(self.heap(), key)
    }
}

/// Reading in place.
impl<K: OrderedDatum + ?Sized, V: InPlace + ?Sized> Named<'_, List<K, V>> {
    /// Returns the value of `key` in place: see [`ValueRef`]. Lock-free.
    pub fn read(&self, key: &K) -> Option<ValueRef<'_, V>> {
        self.object.read(self.heap(), key)
    }
}

/// The operations of [`Cell`].
impl<V: Datum + ?Sized, M: Memory> Named<'_, Cell<V, M>, M> {
    /// Calls [`Cell::get`].
    pub fn get(&self) -> V::Owned {
        self.object.get(self.heap())
    }

    /// Calls [`Cell::set`].
    ///
    /// # Errors
    /// If there is no memory.
    pub fn set(&self, value: &V) -> Result<(), AllocateError> {
        self.object.set(self.heap(), value)
    }

    /// Calls [`Cell::update`].
    ///
    /// # Errors
    /// If there is no memory.
    pub fn update(
        &self,
        make: impl FnMut(V::Owned) -> V::Owned,
    ) -> Result<V::Owned, AllocateError> {
        self.object.update(self.heap(), make)
    }

    /// Calls [`Cell::compare_exchange`].
    ///
    /// # Errors
    /// If there is no memory.
    pub fn compare_exchange(
        &self,
        expected: &V,
        new: &V,
    ) -> Result<Exchange<V::Owned>, AllocateError> {
        self.object.compare_exchange(self.heap(), expected, new)
    }
}

/// Reading in place.
impl<V: InPlace + ?Sized> Named<'_, Cell<V>> {
    /// Returns the value in place: see [`ValueRef`]. Lock-free.
    ///
    /// # Panics
    /// If the cell is damaged.
    #[inline]
    pub fn read(&self) -> ValueRef<'_, V> {
        self.object.read(self.heap())
    }
}

/// The operations of [`GroupBarrier`].
impl<M: Memory> Named<'_, GroupBarrier<M>, M> {
    /// Calls [`GroupBarrier::join`].
    ///
    /// # Errors
    /// See [`BarrierError`].
    pub fn join(&self) -> Result<Seat<'_, M>, BarrierError> {
        self.object.join(self.heap().member())
    }
}

/// The operations of [`RecoverableMutex`].
impl<T: Repair, M: Memory> Named<'_, RecoverableMutex<T, M>, M> {
    /// Calls [`RecoverableMutex::holder`].
    pub fn holder(&self) -> Option<Instance> {
        self.object.holder()
    }

    /// Calls [`RecoverableMutex::lock`].
    ///
    /// # Errors
    /// See [`LockError`].
    #[inline]
    pub fn lock(&self) -> Result<MutexGuard<'_, T, M>, LockError> {
        self.object.lock(self.heap().member())
    }

    /// Calls [`RecoverableMutex::try_lock`].
    ///
    /// # Errors
    /// See [`LockError`].
    pub fn try_lock(&self) -> Result<Option<MutexGuard<'_, T, M>>, LockError> {
        self.object.try_lock(self.heap().member())
    }

    /// Calls [`RecoverableMutex::lock_for`].
    ///
    /// # Errors
    /// See [`LockError`].
    pub fn lock_for(&self, timeout: Duration) -> Result<Option<MutexGuard<'_, T, M>>, LockError> {
        self.object.lock_for(self.heap().member(), timeout)
    }
}

impl<M: Memory> Deref for Named<'_, Counter<M>, M> {
    type Target = Counter<M>;

    fn deref(&self) -> &Counter<M> {
        &self.object
    }
}

impl<T: Shared, M: Memory> Deref for Named<'_, Array<T, M>, M> {
    type Target = Array<T, M>;

    fn deref(&self) -> &Array<T, M> {
        &self.object
    }
}

impl<T: fmt::Debug, M: Memory> fmt::Debug for Named<'_, T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Named").field(&self.object).finish()
    }
}
