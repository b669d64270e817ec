//! Words to sleep on: the wake-up calls of one operating system.

use core::fmt::Debug;
use core::time::Duration;
use std::sync::{Mutex, PoisonError};

/// A table of wake-up words, hashed by key, that the processes of one operating system share.
///
/// A bell tells that something *may* have changed; what did is read from the segment. So a lost ring
/// costs time, never truth, and every wait has a timeout. Processes on other operating systems do not
/// hear the bell; they poll.
///
/// To wait: [`read`](Self::read) the bell, look whether what is waited for has happened, and only then
/// [`wait`](Self::wait) with the number read. To wake: make the change, then [`ring`](Self::ring).
pub trait Bells: Debug + Send + Sync {
    /// The bell's count now.
    fn read(&self, key: u64) -> u32;
    /// Sleeps until the bell has rung since its count was `seen`, at most for `timeout`; may return
    /// early.
    fn wait(&self, key: u64, seen: u32, timeout: Duration);
    /// Raises the count and wakes everyone who waits on it.
    fn ring(&self, key: u64);
}

/// Defers wake-ups until it is dropped, and then wakes the sleepers of each key once: for a change
/// that many deaths make at the same time.
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
