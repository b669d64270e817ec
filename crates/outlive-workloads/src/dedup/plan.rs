//! How the work is dealt, and what stands in the pod for it.
//!
//! The [text](super::text) is archived in *windows*: the pod holds as much of it as one window has, and what is kept of
//! the new chunks of two, since the driver writes what one window gave while hosts work at the next. A window begins
//! where a chunk begins, and ends where the last chunk does whose end is certain: less than
//! [`MAX`] before where it could. Besides, the pod has the digests of all different chunks.
//!
//! A window is dealt in *stretches*. Three tasks are for each: one reads it and finds the marks in it, one takes the digests of the
//! chunks that begin in it, and one packs those among these that are new.

use super::chunk::{MAX, MIN};
use super::numbers::{Numbers, WORDS};
use super::{bits, text::Text};
use outlive::heap::LocalHeap;
use outlive_tasks::{Array, PoolError, WorkerPool};

/// The largest and the smallest stretch that is chosen where nobody says how large they are to be: the largest takes some 30
/// ms to be packed.
const CHOSEN: (u64, u64) = (64 << 10, 1 << 20);
/// How large stretches can be.
pub(crate) const STRETCHES: (u64, u64) = (4 << 10, 64 << 20);
/// How large windows can be.
pub(crate) const WINDOWS: (u64, u64) = (256 << 10, 1 << 30);
/// How large they are at most if nobody says otherwise: with what else is in its block, a window of these takes 16 MiB. More would
/// make the pod larger, whose pages take time too, and jobs are long enough.
const WINDOW: u64 = 15 << 20;
/// From how many workers on they are so large. Fewer have as much to do for each in a smaller window, whose pages, which cost each
/// host about a microsecond when it first comes by, are used more often.
const MANY: u64 = 4;

/// How large windows are for so many workers if nobody says otherwise.
pub(crate) fn window_for(workers: u32) -> u64 {
    WINDOW / MANY * u64::from(workers).clamp(1, MANY)
}

// The names of the arrays.
/// Where the run stands: see [`Now`].
pub(super) const NOW: &str = "window";
/// The bytes of the window.
pub(super) const TEXT: &str = "text";
/// Its marks, as [bits].
pub(super) const MARKS: [&str; 2] = ["marks", "strong marks"];
/// Where its chunks end, from the window's start on.
pub(super) const CHUNKS_END: &str = "chunks end";
/// Their digests, and their numbers.
pub(super) const FOUND: &str = "digests of chunks";
pub(super) const NUMBERS: &str = "numbers of chunks";
/// Which of them are new.
pub(super) const FRESH: &str = "new chunks";
/// Of the new ones: where what is kept of them stands, and how long it is.
pub(super) const PLACES: &str = "places";
pub(super) const KEPT: &str = "kept lengths";
/// The slots of the hash table, and the digests of all different chunks.
pub(super) const SLOTS: &str = "slots";
pub(super) const DIGESTS: &str = "digests";

/// What is kept of the new chunks of window `number`: every other one has the same place.
pub(super) fn packed(number: u64) -> &'static str {
    ["packed 0", "packed 1"][number as usize % 2]
}

/// Words that say where the run stands: the first two stay, the next are written by the driver before it submits a window's
/// job, the others by the tasks of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(super) enum Now {
    /// How large stretches are.
    Stretch,
    /// How hard to compress.
    Level,
    /// Which window it is.
    Number,
    /// Where it begins in the text.
    Start,
    /// How many bytes are read.
    Len,
    /// The number of its first unit.
    Unit,
    /// How many different chunks there were before.
    Known,
    /// How many of the bytes are of chunks.
    Cut,
    /// How many chunks there are.
    Chunks,
    /// How many of them are new.
    Fresh,
}

/// How many words these are.
const NOW_WORDS: u64 = Now::Fresh as u64 + 1;

/// How the work is dealt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// The number of bytes and of extents of the text.
    pub bytes: u64,
    pub extents: u64,
    /// How large stretches are: a multiple of [`bits::BYTES`].
    pub stretch: u64,
    /// How large windows are: a multiple of that.
    pub window: u64,
    /// How hard to compress.
    pub level: u32,
}

impl Plan {
    /// For `text` and so many workers. What is not said is chosen.
    pub fn new(
        text: &Text,
        workers: u32,
        (stretch, window): (Option<u64>, Option<u64>),
        level: u32,
    ) -> Self {
        let (bytes, window) = (text.bytes(), window.unwrap_or(window_for(workers)));
        // Several for each worker in every job.
        let chosen = || {
            let many = bytes.min(window) / (u64::from(workers.max(1)) * 8);
            many.next_power_of_two().clamp(CHOSEN.0, CHOSEN.1)
        };
        let stretch = stretch.unwrap_or_else(chosen);
        let stretch = stretch.clamp(STRETCHES.0, STRETCHES.1) / bits::BYTES * bits::BYTES;
        let window = window.clamp(WINDOWS.0, WINDOWS.1).min(bytes.max(1));
        Self {
            bytes,
            extents: text.extents() as u64,
            stretch,
            window: window.next_multiple_of(bits::BYTES),
            level,
        }
    }

    /// How many stretches `len` bytes of a window have.
    pub fn stretches(&self, len: u64) -> u64 {
        len.div_ceil(self.stretch)
    }

    /// How many units there are at least: windows overlap.
    pub fn units(&self) -> u64 {
        3 * self.stretches(self.bytes)
    }

    /// Whether it takes more than one window.
    pub fn has_windows(&self) -> bool {
        self.bytes > self.window
    }

    /// How many windows there are at most, since each but the last is cut before its last [`MAX`] bytes end.
    pub fn windows(&self) -> u64 {
        if !self.has_windows() {
            return 1;
        }
        self.bytes.div_ceil(self.window - MAX as u64)
    }

    /// Returns the most chunks that `bytes` bytes can have: all but the last of an extent have at
    /// least [`MIN`] bytes.
    fn chunks(&self, bytes: u64) -> u64 {
        bytes.min(bytes / MIN as u64 + self.extents).max(1)
    }

    /// How many different chunks there can be.
    pub fn most_chunks(&self) -> u64 {
        self.chunks(self.bytes)
    }

    /// The arrays: name, number of elements, and the size of an element.
    fn arrays(&self) -> Vec<(&'static str, u64, u64)> {
        let (window, chunks, all) = (self.window, self.chunks(self.window), self.most_chunks());
        // Whole words, as bytes are copied.
        let packed_bytes = window + chunks * 8;
        let mut arrays = vec![
            (NOW, NOW_WORDS, 8),
            (TEXT, window, 1),
            (MARKS[0], window / bits::BYTES, 8),
            (MARKS[1], window / bits::BYTES, 8),
            (CHUNKS_END, chunks, 4),
            (FOUND, chunks * WORDS as u64, 8),
            (NUMBERS, chunks, 4),
            (FRESH, chunks, 4),
            (PLACES, chunks + 1, 8),
            (KEPT, chunks, 4),
            (SLOTS, Numbers::slots_for(all), 4),
            (DIGESTS, all * WORDS as u64, 8),
            (packed(0), packed_bytes, 1),
        ];
        if self.has_windows() {
            arrays.push((packed(1), packed_bytes, 1));
        }
        arrays
    }

    /// How many bytes each array has.
    pub fn sizes(&self) -> impl Iterator<Item = u64> {
        let arrays = self.arrays().into_iter();
        arrays.map(|(_, len, each)| len * each)
    }

    /// Writes where the run stands before its first window.
    fn begin(&self, now: Array<u64>) {
        now.fill(0..NOW_WORDS as usize, 0);
        now.set(Now::Stretch as usize, self.stretch);
        now.set(Now::Level as usize, self.level.into());
        now.set(Now::Len as usize, self.window.min(self.bytes));
    }

    /// Makes the arrays, the largest first.
    pub fn put(&self, pool: &WorkerPool, heap: &LocalHeap<'_>) -> Result<(), PoolError> {
        let mut arrays = self.arrays();
        arrays.sort_by_key(|(_, len, each)| core::cmp::Reverse(len * each));
        for (name, len, each) in arrays {
            let len = len as usize;
            match each {
                1 => drop(pool.put_array::<u8>(heap, name, len, |_| ())?),
                8 if name == NOW => {
                    pool.put_array::<u64>(heap, name, len, |now| self.begin(now))?;
                }
                4 if name == SLOTS => {
                    pool.put_array::<u32>(heap, name, len, |slots| slots.fill(0..len, 0))?;
                }
                4 => drop(pool.put_array::<u32>(heap, name, len, |_| ())?),
                _ => drop(pool.put_array::<u64>(heap, name, len, |_| ())?),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_overlap_by_less_than_a_chunk() {
        let plan = Plan {
            bytes: 10 << 20,
            extents: 3,
            stretch: 64 << 10,
            window: 1 << 20,
            level: 6,
        };
        assert!(plan.has_windows());
        assert_eq!((plan.windows(), plan.units()), (11, 480));
        // Small files have a chunk each, of a byte at least.
        let small = Plan {
            bytes: 1000,
            extents: 700,
            window: 1024,
            ..plan
        };
        assert_eq!((small.most_chunks(), small.has_windows()), (700, false));
        let tiny = Plan {
            bytes: 5,
            extents: 700,
            ..small
        };
        assert_eq!(tiny.most_chunks(), 5);
    }
}
