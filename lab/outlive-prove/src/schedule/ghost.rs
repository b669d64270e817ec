//! State of a scenario outside its memory.

use super::engine;
use std::sync::{Arc, Mutex, PoisonError};

/// State that the scenario has and its threads do not: which thread is inside a critical section,
/// which result an operation returned. Fresh at the start of every execution.
///
/// Threads may be interrupted before each [`with`](Self::with), and may die there, as at an access;
/// the closure is one step.
#[derive(Debug, Default)]
pub struct Ghost<T> {
    inner: Arc<Mutex<(u64, T)>>,
}

impl<T> Clone for Ghost<T> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
        }
    }
}

impl<T: Default> Ghost<T> {
    /// Returns a ghost that holds `T::default()` when an execution starts.
    pub fn new() -> Self {
        Self {
            inner: Arc::new(Mutex::new((0, T::default()))),
        }
    }

    /// Calls `f` with the state. `f` makes no access to the memory.
    pub fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        engine::outside();
        // A poisoned lock is an assertion that failed in an earlier execution.
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let number = engine::number();
        if inner.0 != number {
            *inner = (number, T::default());
        }
        f(&mut inner.1)
    }
}
