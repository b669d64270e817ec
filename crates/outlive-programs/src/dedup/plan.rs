//! The division of the work, and its data in the pod.
//!
//! The [text](super::text) is archived in *windows*. The pod holds the text of one window and the
//! stored new chunks of two, since the driver writes the output of one window while hosts work on
//! the next. A window begins at the start of a chunk, and ends with the last chunk that has a
//! certain end, less than [`MAX`] bytes before the window's largest end. The pod also holds the
//! digests of all different chunks.
//!
//! A window is divided into *stretches*, with three tasks each: one reads the stretch and finds its
//! marks, one takes the digests of the chunks that begin in it, and one packs the new ones among
//! these.

use super::chunk::{MAX, MIN};
use super::numbers::{Numbers, WORDS};
use super::{bits, text::Text};
use outlive::heap::LocalHeap;
use outlive_tasks::{Array, PoolError, WorkerPool};

/// The smallest and the largest default stretch, in bytes; the largest takes some 30 ms to pack.
const CHOSEN: (u64, u64) = (64 << 10, 1 << 20);
/// The limits of the size of a stretch, in bytes.
pub(crate) const STRETCHES: (u64, u64) = (4 << 10, 64 << 20);
/// The limits of the size of a window, in bytes.
pub(crate) const WINDOWS: (u64, u64) = (256 << 10, 1 << 30);
/// The largest default window: with the rest of its block it takes 16 MiB. A larger window would
/// make the pod larger, and its pages take time too; jobs are long enough.
const WINDOW: u64 = 15 << 20;
/// The number of workers from which windows have that size. Fewer workers have as much work each in
/// a smaller window, and use its pages more often, which cost each host about a microsecond at the
/// first access.
const MANY: u64 = 4;

/// Returns the default size of a window for this number of workers.
pub(crate) fn window_for(workers: u32) -> u64 {
    WINDOW / MANY * u64::from(workers).clamp(1, MANY)
}

// The names of the arrays.
/// The state of the run: see [`Now`].
pub(super) const NOW: &str = "window";
/// The bytes of the window.
pub(super) const TEXT: &str = "text";
/// Its marks, as [bits].
pub(super) const MARKS: [&str; 2] = ["marks", "strong marks"];
/// The ends of its chunks, from the window's start.
pub(super) const CHUNKS_END: &str = "chunks end";
/// Their digests, and their numbers.
pub(super) const FOUND: &str = "digests of chunks";
pub(super) const NUMBERS: &str = "numbers of chunks";
/// The indexes of the new chunks.
pub(super) const FRESH: &str = "new chunks";
/// The place and the length of the stored form of each new chunk.
pub(super) const PLACES: &str = "places";
pub(super) const KEPT: &str = "kept lengths";
/// The slots of the hash table, and the digests of all different chunks.
pub(super) const SLOTS: &str = "slots";
pub(super) const DIGESTS: &str = "digests";

/// Returns the array of the stored new chunks of window `number`. Windows alternate between two
/// arrays.
pub(super) fn packed(number: u64) -> &'static str {
    ["packed 0", "packed 1"][number as usize % 2]
}

/// The words of the run's state. The first two do not change; the driver writes the next ones
/// before it submits a window's job, and that job's tasks write the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(super) enum Now {
    /// The size of a stretch in bytes.
    Stretch,
    /// The compression level.
    Level,
    /// The number of the window.
    Number,
    /// The start of the window in the text.
    Start,
    /// The number of bytes read.
    Len,
    /// The number of its first unit.
    Unit,
    /// The number of different chunks before the window.
    Known,
    /// The number of its bytes that belong to complete chunks.
    Cut,
    /// The number of its chunks.
    Chunks,
    /// The number of its new chunks.
    Fresh,
}

/// The number of these words.
const NOW_WORDS: u64 = Now::Fresh as u64 + 1;

/// The division of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// The number of bytes and of extents of the text.
    pub bytes: u64,
    pub extents: u64,
    /// The size of a stretch in bytes: a multiple of [`bits::BYTES`].
    pub stretch: u64,
    /// The size of a window in bytes: a multiple of [`bits::BYTES`].
    pub window: u64,
    /// The compression level.
    pub level: u32,
}

impl Plan {
    /// Creates the plan for `text` and this number of workers; unspecified sizes get defaults.
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

    /// Returns the number of stretches of `len` bytes of a window.
    pub fn stretches(&self, len: u64) -> u64 {
        len.div_ceil(self.stretch)
    }

    /// Returns the minimal number of units, as windows overlap.
    pub fn units(&self) -> u64 {
        3 * self.stretches(self.bytes)
    }

    /// Returns whether there is more than one window.
    pub fn has_windows(&self) -> bool {
        self.bytes > self.window
    }

    /// Returns the maximum number of windows. The cut at the end of each window but the last is
    /// within the window's last [`MAX`] bytes, so windows can be that much shorter than planned.
    pub fn windows(&self) -> u64 {
        if !self.has_windows() {
            return 1;
        }
        self.bytes.div_ceil(self.window - MAX as u64)
    }

    /// Returns the maximum number of chunks that `bytes` bytes can have: all but the last of an
    /// extent have at least [`MIN`] bytes.
    fn chunks(&self, bytes: u64) -> u64 {
        bytes.min(bytes / MIN as u64 + self.extents).max(1)
    }

    /// Returns the largest number of different chunks.
    pub fn most_chunks(&self) -> u64 {
        self.chunks(self.bytes)
    }

    /// Returns the arrays: name, number of elements, and the size of an element.
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

    /// Returns the size of each array in bytes.
    pub fn sizes(&self) -> impl Iterator<Item = u64> {
        let arrays = self.arrays().into_iter();
        arrays.map(|(_, len, each)| len * each)
    }

    /// Writes the state of the run before its first window.
    fn begin(&self, now: Array<u64>) {
        now.fill(0..NOW_WORDS as usize, 0);
        now.set(Now::Stretch as usize, self.stretch);
        now.set(Now::Level as usize, self.level.into());
        now.set(Now::Len as usize, self.window.min(self.bytes));
    }

    /// Creates the arrays, the largest first.
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
