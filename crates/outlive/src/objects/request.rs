//! Operations that a client records as requests.

use super::client::Open;
use super::{Cell, Client, Named};
use crate::heap::buddy::AllocateError;
use crate::structures::{Datum, Exchange, InsertError, List, Map, OrderedDatum};
use core::fmt;
use outlive_memory::{Memory, Native, Offset};

/// An operation on a map, a list or a cell (`T`) that a [client](Client) records as a request.
/// After a death, [`Client::last`] returns its outcome. It has the effect of the object's
/// operation, and additionally writes two cache lines.
///
/// # Panics
/// Each operation panics if the client and the object were opened in different sessions, or if a
/// request of the client is running.
///
/// # Crash
/// The outcome is that of a crash in the object's operation. After the recovery, [`Client::last`]
/// returns this request with its outcome, or the previous request; in the latter case, this one had
/// no effect.
pub struct Request<'r, T, M: Memory = Native> {
    object: &'r Named<'r, T, M>,
    structure: Offset,
    client: &'r Client<'r, M>,
    token: u64,
}

macro_rules! requests {
    ($($structure:ident<$($parameter:ident: $bound:ident),+>),+) => {$(
        impl<$($parameter: $bound + ?Sized,)+ M: Memory>
            Named<'_, $structure<$($parameter,)+ M>, M>
        {
            /// Returns a request. The operation that is called on it runs as the request `token`
            /// of `client`.
            pub fn request<'r>(
                &'r self,
                client: &'r Client<'_, M>,
                token: u64,
            ) -> Request<'r, $structure<$($parameter,)+ M>, M> {
                Request {
                    object: self,
                    structure: self.low_level().offset(),
                    client,
                    token,
                }
            }
        }
    )+};
}

requests! { Map<K: Datum, V: Datum>, List<K: OrderedDatum, V: Datum>, Cell<V: Datum> }

impl<T, M: Memory> Request<'_, T, M> {
    fn run<R>(&self, operation: impl FnOnce(&Named<'_, T, M>, &Open<'_, '_, M>) -> R) -> R {
        let heap = self.object.lease().heap();
        let run = |open: &Open<'_, '_, M>| operation(self.object, open);
        self.client.run(heap, self.token, self.structure, run)
    }
}

/// The operations of [`Map`].
impl<K: Datum + ?Sized, V: Datum + ?Sized, M: Memory> Request<'_, Map<K, V, M>, M> {
    /// Calls [`Map::insert`].
    ///
    /// # Errors
    /// If the key exists, or there is no memory. The request has no effect then.
    pub fn insert(self, key: &K, value: &V) -> Result<(), InsertError<V::Owned>> {
        self.run(|map, _| map.insert(key, value))
    }

    /// Calls [`Map::remove`]. The request has an effect if the key exists.
    pub fn remove(self, key: &K) -> Option<V::Owned> {
        self.run(|map, _| map.remove(key))
    }

    /// Calls [`Map::replace`]. The request has an effect if the key exists.
    ///
    /// # Errors
    /// If there is no memory. The request has no effect then.
    pub fn replace(self, key: &K, value: &V) -> Result<Option<V::Owned>, AllocateError> {
        self.run(|map, _| map.replace(key, value))
    }

    /// Calls [`Map::update`]. The request has an effect if the key exists.
    ///
    /// # Errors
    /// If there is no memory. The request has no effect then.
    pub fn update(
        self,
        key: &K,
        mut make: impl FnMut(V::Owned) -> V::Owned,
    ) -> Result<Option<V::Owned>, AllocateError> {
        // `make` is dropped after the request is closed, with all that it owns.
        self.run(|map, open| map.update(key, |value| open.pause(|| make(value))))
    }

    /// Calls [`Map::upsert`].
    ///
    /// # Errors
    /// If there is no memory. The request has no effect then.
    pub fn upsert(
        self,
        key: &K,
        first: &V,
        mut make: impl FnMut(V::Owned) -> V::Owned,
    ) -> Result<(), AllocateError> {
        // As in `update`.
        self.run(|map, open| map.upsert(key, first, |value| open.pause(|| make(value))))
    }

    /// Calls [`Map::compare_exchange`]. The request has an effect if it returns [`Exchange::Done`].
    ///
    /// # Errors
    /// If there is no memory. The request has no effect then.
    pub fn compare_exchange(
        self,
        key: &K,
        expected: &V,
        new: &V,
    ) -> Result<Exchange<V::Owned>, AllocateError> {
        self.run(|map, _| map.compare_exchange(key, expected, new))
    }
}

/// The operations of [`List`].
impl<K: OrderedDatum + ?Sized, V: Datum + ?Sized, M: Memory> Request<'_, List<K, V, M>, M> {
    /// Calls [`List::insert`].
    ///
    /// # Errors
    /// If the key exists, or there is no memory. The request has no effect then.
    pub fn insert(self, key: &K, value: &V) -> Result<(), InsertError<V::Owned>> {
        self.run(|list, _| list.insert(key, value))
    }

    /// Calls [`List::remove`]. The request has an effect if the key exists.
    pub fn remove(self, key: &K) -> Option<V::Owned> {
        self.run(|list, _| list.remove(key))
    }

    /// Calls [`List::replace`]. The request has an effect if the key exists.
    ///
    /// # Errors
    /// If there is no memory. The request has no effect then.
    pub fn replace(self, key: &K, value: &V) -> Result<Option<V::Owned>, AllocateError> {
        self.run(|list, _| list.replace(key, value))
    }
}

/// The operations of [`Cell`].
impl<V: Datum + ?Sized, M: Memory> Request<'_, Cell<V, M>, M> {
    /// Calls [`Cell::set`].
    ///
    /// # Errors
    /// If there is no memory. The request has no effect then.
    pub fn set(self, value: &V) -> Result<(), AllocateError> {
        self.run(|cell, _| cell.set(value))
    }

    /// Calls [`Cell::update`].
    ///
    /// # Errors
    /// If there is no memory. The request has no effect then.
    pub fn update(
        self,
        mut make: impl FnMut(V::Owned) -> V::Owned,
    ) -> Result<V::Owned, AllocateError> {
        // As in `Map::update`.
        self.run(|cell, open| cell.update(|value| open.pause(|| make(value))))
    }

    /// Calls [`Cell::compare_exchange`]. The request has an effect if it returns
    /// [`Exchange::Done`].
    ///
    /// # Errors
    /// If there is no memory. The request has no effect then.
    pub fn compare_exchange(
        self,
        expected: &V,
        new: &V,
    ) -> Result<Exchange<V::Owned>, AllocateError> {
        self.run(|cell, _| cell.compare_exchange(expected, new))
    }
}

impl<T, M: Memory> fmt::Debug for Request<'_, T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Request({})", self.token)
    }
}
