//! Operations as requests of a client.

use super::{Client, Named};
use crate::heap::buddy::AllocateError;
use crate::structures::{Datum, Exchange, InsertError, Map};
use core::fmt;
use outlive_memory::{Memory, Native};

/// An operation on a map that a [client](Client) is told of: after a death it can be asked whether
/// it took effect. It is the map's operation, and two cache lines are written besides.
///
/// # Panics
/// Each operation, if the client is used by another thread's session, or another request of it is
/// running.
///
/// # Crash
/// As that of the map; and the [last request](Client::last) of the client is this one, with what
/// became of it, or the one before, and this one had no effect.
pub struct Request<'r, K: Datum + ?Sized, V: Datum + ?Sized, M: Memory = Native> {
    map: &'r Named<'r, Map<K, V, M>, M>,
    client: &'r Client<'r, M>,
    token: u64,
}

impl<K: Datum + ?Sized, V: Datum + ?Sized, M: Memory> Named<'_, Map<K, V, M>, M> {
    /// Makes the next operation the request `token` of `client`.
    pub fn request<'r>(&'r self, client: &'r Client<'_, M>, token: u64) -> Request<'r, K, V, M> {
        Request {
            map: self,
            client,
            token,
        }
    }
}

impl<K: Datum + ?Sized, V: Datum + ?Sized, M: Memory> Request<'_, K, V, M> {
    fn run<R>(self, operation: impl FnOnce(&Named<'_, Map<K, V, M>, M>) -> R) -> R {
        let heap = self.map.lease().heap();
        self.client.run(heap, self.token, || operation(self.map))
    }

    /// See [`Map::insert`].
    ///
    /// # Errors
    /// If the key exists, or there is no memory: then it had no effect.
    pub fn insert(self, key: &K, value: &V) -> Result<(), InsertError<V::Owned>> {
        self.run(|map| map.insert(key, value))
    }

    /// See [`Map::remove`]. It had an effect if the key existed.
    pub fn remove(self, key: &K) -> Option<V::Owned> {
        self.run(|map| map.remove(key))
    }

    /// See [`Map::replace`]. It had an effect if the key existed.
    ///
    /// # Errors
    /// If there is no memory: then it had no effect.
    pub fn replace(self, key: &K, value: &V) -> Result<Option<V::Owned>, AllocateError> {
        self.run(|map| map.replace(key, value))
    }

    /// See [`Map::update`]. It had an effect if the key existed.
    ///
    /// # Errors
    /// If there is no memory: then it had no effect.
    pub fn update(
        self,
        key: &K,
        make: impl FnMut(V::Owned) -> V::Owned,
    ) -> Result<Option<V::Owned>, AllocateError> {
        self.run(|map| map.update(key, make))
    }

    /// See [`Map::upsert`].
    ///
    /// # Errors
    /// If there is no memory: then it had no effect.
    pub fn upsert(
        self,
        key: &K,
        first: &V,
        make: impl FnMut(V::Owned) -> V::Owned,
    ) -> Result<(), AllocateError> {
        self.run(|map| map.upsert(key, first, make))
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
        self.run(|map| map.compare_exchange(key, expected, new))
    }
}

impl<K: Datum + ?Sized, V: Datum + ?Sized, M: Memory> fmt::Debug for Request<'_, K, V, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Request({})", self.token)
    }
}
