//! Words to sleep on: the wake-up calls of one operating system.

use core::fmt::Debug;
use core::time::Duration;

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
