//! Transactions on the client's side, for stores that have no interactive ones.
//!
//! A transaction keeps the value that each object had when it first read it, and its own changes,
//! which it sees. A commit is one request, which the store executes atomically: if all objects
//! still are as they were read, it makes the changes. All reads and writes are then valid at that
//! moment, so such a store is strictly serializable as far as the request is atomic. A statement
//! that needs an object to be present or absent reads it first.

use super::{Connection, Key, StepError};
use std::collections::BTreeMap;
use std::ops::Range;

/// The requests of a client to its store.
pub(super) trait Requests {
    /// Forgets the transaction before.
    fn begin(&mut self) -> Result<(), StepError>;

    /// Reads an object for the first time in a transaction. Returns its value, and the version
    /// that the store compares at the commit, if it compares versions.
    fn fetch(&mut self, key: Key) -> Result<(Option<i64>, u64), StepError>;

    /// Makes the changes if no object has changed since it was read. Returns whether it did; an
    /// error means that the outcome is unknown.
    fn commit(&mut self, objects: &BTreeMap<Key, Object>) -> Result<bool, StepError>;
}

/// An object that a transaction has read.
pub(super) struct Object {
    /// The value that was read.
    #[cfg_attr(not(feature = "redis"), allow(dead_code))]
    pub seen: Option<i64>,
    /// The version that was read.
    #[cfg_attr(not(feature = "etcd"), allow(dead_code))]
    pub version: u64,
    /// The value that the transaction sees, after its own changes.
    pub value: Option<i64>,
    /// Whether the transaction has changed the object.
    pub is_changed: bool,
}

/// A connection whose transactions remain with the client until they commit.
pub(super) struct Optimistic<R> {
    requests: R,
    objects: BTreeMap<Key, Object>,
}

impl<R: Requests> Optimistic<R> {
    pub(super) fn new(requests: R) -> Self {
        Self {
            requests,
            objects: BTreeMap::new(),
        }
    }

    fn object(&mut self, key: Key) -> Result<&mut Object, StepError> {
        if !self.objects.contains_key(&key) {
            let (seen, version) = self.requests.fetch(key)?;
            let object = Object {
                seen,
                version,
                value: seen,
                is_changed: false,
            };
            self.objects.insert(key, object);
        }
        Ok(self.objects.get_mut(&key).expect("it was inserted"))
    }

    /// Changes an object that has to be present, or absent.
    fn change(&mut self, key: Key, is_present: bool, value: Option<i64>) -> Result<(), StepError> {
        let object = self.object(key)?;
        if object.value.is_some() != is_present {
            return Err(StepError::Refused);
        }
        object.value = value;
        object.is_changed = true;
        Ok(())
    }
}

impl<R: Requests> Connection for Optimistic<R> {
    fn begin(&mut self) -> Result<(), StepError> {
        self.objects.clear();
        self.requests.begin()
    }

    fn read(&mut self, key: Key) -> Result<Option<i64>, StepError> {
        Ok(self.object(key)?.value)
    }

    fn write(&mut self, key: Key, value: i64) -> Result<(), StepError> {
        self.change(key, true, Some(value))
    }

    fn insert(&mut self, key: Key, value: i64) -> Result<(), StepError> {
        self.change(key, false, Some(value))
    }

    fn delete(&mut self, key: Key) -> Result<(), StepError> {
        self.change(key, true, None)
    }

    fn count(&mut self, range: Range<Key>) -> Result<u64, StepError> {
        let mut count = 0;
        for key in range {
            count += u64::from(self.read(key)?.is_some());
        }
        Ok(count)
    }

    fn commit(&mut self) -> Result<(), StepError> {
        match self.requests.commit(&self.objects)? {
            true => Ok(()),
            false => Err(StepError::Aborted(
                "an object has changed since the transaction read it".into(),
            )),
        }
    }

    fn abort(&mut self) -> Result<(), StepError> {
        // The store knows nothing of the changes.
        Ok(())
    }
}
