//! The objects of a history: one for each time that an object of the store is set.

use crate::driver::Key;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// An object of the history.
#[derive(Debug)]
pub(super) struct Object {
    /// The key in the history.
    pub key: u64,
    pub initial: Option<i64>,
    /// Whether a deletion was requested.
    is_deleted: AtomicBool,
}

impl Object {
    /// Records that a deletion is about to be requested.
    pub fn delete(&self) {
        self.is_deleted.store(true, Ordering::Release);
    }

    /// Returns whether a deletion was requested. A client that sees one has its answer from a
    /// store that received the request, so it also sees the flag.
    pub fn is_deleted(&self) -> bool {
        self.is_deleted.load(Ordering::Acquire)
    }
}

/// The current objects, by their keys in the store.
#[derive(Debug, Default)]
pub(super) struct Objects(RwLock<Current>);

#[derive(Debug, Default)]
struct Current {
    by_key: HashMap<Key, Arc<Object>>,
    last: u64,
}

impl Current {
    fn add(&mut self, key: Key, initial: Option<i64>) -> Arc<Object> {
        self.last += 1;
        let object = Arc::new(Object {
            key: self.last,
            initial,
            is_deleted: AtomicBool::new(false),
        });
        self.by_key.insert(key, Arc::clone(&object));
        object
    }
}

impl Objects {
    /// Adds objects with initial values, in place of those with the same keys in the store.
    pub fn set(&self, objects: &[(Key, Option<i64>)]) {
        let mut current = self.0.write().unwrap_or_else(PoisonError::into_inner);
        for (key, initial) in objects {
            current.add(*key, *initial);
        }
    }

    /// Returns the object with this key in the store. One that was never set is absent at first.
    pub fn get(&self, key: Key) -> Arc<Object> {
        let current = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(object) = current.by_key.get(&key) {
            return Arc::clone(object);
        }
        drop(current);
        let mut current = self.0.write().unwrap_or_else(PoisonError::into_inner);
        match current.by_key.get(&key) {
            Some(object) => Arc::clone(object),
            None => current.add(key, None),
        }
    }
}
