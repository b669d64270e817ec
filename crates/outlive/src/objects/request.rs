//! Map operations that a client records as requests.

use super::client::Open;
use super::{Client, Named};
use crate::heap::buddy::AllocateError;
use crate::structures::{Datum, Exchange, InsertError, Map};
use core::fmt;
use outlive_memory::{Memory, Native};

/// A map operation that a [client](Client) records as a request. After a death, [`Client::last`]
/// returns its outcome. It does what the map's operation does, and additionally writes two cache
/// lines.
///
/// # Panics
/// Each operation panics if the client and the map were opened in different sessions, or if a
/// request of the client is running.
///
/// # Crash
/// As that of the map. After the recovery, [`Client::last`] returns this request with its outcome,
/// or the one before it, and then this one had no effect.
pub struct Request<'r, K: Datum + ?Sized, V: Datum + ?Sized, M: Memory = Native> {
    map: &'r Named<'r, Map<K, V, M>, M>,
    client: &'r Client<'r, M>,
    token: u64,
}

impl<K: Datum + ?Sized, V: Datum + ?Sized, M: Memory> Named<'_, Map<K, V, M>, M> {
    /// Returns a request: the operation called on it runs as the request `token` of `client`.
    pub fn request<'r>(&'r self, client: &'r Client<'_, M>, token: u64) -> Request<'r, K, V, M> {
        Request {
            map: self,
            client,
            token,
        }
    }
}

impl<K: Datum + ?Sized, V: Datum + ?Sized, M: Memory> Request<'_, K, V, M> {
    fn run<R>(
        &self,
        operation: impl FnOnce(&Named<'_, Map<K, V, M>, M>, &Open<'_, '_, M>) -> R,
    ) -> R {
        let heap = self.map.lease().heap();
        let structure = self.map.low_level().offset();
        (self.client).run(heap, self.token, structure, |open| {
            operation(self.map, open)
        })
    }

    /// See [`Map::insert`].
    ///
    /// # Errors
    /// If the key exists, or there is no memory: then it had no effect.
    pub fn insert(self, key: &K, value: &V) -> Result<(), InsertError<V::Owned>> {
        self.run(|map, _| map.insert(key, value))
    }

    /// See [`Map::remove`]. It had an effect if the key existed.
    pub fn remove(self, key: &K) -> Option<V::Owned> {
        self.run(|map, _| map.remove(key))
    }

    /// See [`Map::replace`]. It had an effect if the key existed.
    ///
    /// # Errors
    /// If there is no memory: then it had no effect.
    pub fn replace(self, key: &K, value: &V) -> Result<Option<V::Owned>, AllocateError> {
        self.run(|map, _| map.replace(key, value))
    }

    /// See [`Map::update`]. It had an effect if the key existed.
    ///
    /// # Errors
    /// If there is no memory: then it had no effect.
    pub fn update(
        self,
        key: &K,
        mut make: impl FnMut(V::Owned) -> V::Owned,
    ) -> Result<Option<V::Owned>, AllocateError> {
        // `make` is dropped after the request is closed, with all that it owns.
        self.run(|map, open| map.update(key, |value| open.pause(|| make(value))))
    }

    /// See [`Map::upsert`].
    ///
    /// # Errors
    /// If there is no memory: then it had no effect.
    pub fn upsert(
        self,
        key: &K,
        first: &V,
        mut make: impl FnMut(V::Owned) -> V::Owned,
    ) -> Result<(), AllocateError> {
        // As in `update`.
        self.run(|map, open| map.upsert(key, first, |value| open.pause(|| make(value))))
    }

    /// See [`Map::compare_exchange`]. It had an effect if it is [`Exchange::Done`].
    ///
    /// # Errors
    /// If there is no memory: then it had no effect.
    pub fn compare_exchange(
        self,
        key: &K,
        expected: &V,
        new: &V,
    ) -> Result<Exchange<V::Owned>, AllocateError> {
        self.run(|map, _| map.compare_exchange(key, expected, new))
    }
}

impl<K: Datum + ?Sized, V: Datum + ?Sized, M: Memory> fmt::Debug for Request<'_, K, V, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Request({})", self.token)
    }
}
