//! Wake-up futexes: words on which the threads of one operating system sleep.

use core::fmt::Debug;
use core::time::Duration;
use std::sync::{Mutex, PoisonError};

/// A table of wake-up futexes, hashed by key, that the processes of one operating system share.
///
/// A wake-up shows that something *may* have changed; the sleeper reads the change from the
/// segment. So a lost wake-up costs time but not correctness, and every wait has a time-out.
/// Processes on other operating systems are not woken; they poll.
///
/// To wait: [`read`](Self::read) the count, check the condition, and only then [`wait`](Self::wait)
/// with the count that was read. To wake: make the change, then [`ring`](Self::ring).
pub trait Bells: Debug + Send + Sync {
    /// Returns the count of the futex of `key`.
    fn read(&self, key: u64) -> u32;
    /// Sleeps until the count has changed from `seen`, at most for `timeout`; may return early.
    fn wait(&self, key: u64, seen: u32, timeout: Duration);
    /// Increments the count and wakes all sleepers.
    fn ring(&self, key: u64);
}

/// Defers wake-ups until it is dropped, and then wakes the sleepers of each key once: for many
/// deaths at the same time.
///
/// A caller that dies before the drop has woken no sleeper; the watchers notice the new events and
/// wake the sleepers for it.
#[derive(Debug)]
pub(crate) struct Gathered<'a> {
    bells: &'a dyn Bells,
    keys: Mutex<Vec<u64>>,
}

impl<'a> Gathered<'a> {
    /// Defers the wake-ups of `bells`.
    pub(crate) fn new(bells: &'a dyn Bells) -> Self {
        Self {
            bells,
            keys: Mutex::default(),
        }
    }
}

impl Bells for Gathered<'_> {
    fn read(&self, key: u64) -> u32 {
        self.bells.read(key)
    }

    fn wait(&self, key: u64, seen: u32, timeout: Duration) {
        self.bells.wait(key, seen, timeout);
    }

    fn ring(&self, key: u64) {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
}

impl Drop for Gathered<'_> {
    fn drop(&mut self) {
        let keys = self.keys.get_mut().unwrap_or_else(PoisonError::into_inner);
        keys.iter().for_each(|key| self.bells.ring(*key));
    }
}
