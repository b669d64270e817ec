//! Samples of accesses: about one of 64 guards of a reader is recorded, with its slice.
//!
//! Each reader has a ring of words, which only it writes, so that readers share no line. A planner
//! reads the rings of all readers from time to time, and takes the samples that are new.
//!
//! ```text
//! 63                      32  31  30         0
//! | number of the sample    | 0 | slice + 1  |
//! ```
//!
//! A sample is one relaxed store. A ring that a planner has not read for long lacks its oldest
//! samples, which their numbers show.

use super::{Coherent, Line};
use crate::layout::{RING_BYTES, RING_SLOTS};
use outlive::membership::Instance;
use outlive::memory::{Memory, Offset, Ordering};

/// The samples of a reader.
#[derive(Clone, Debug)]
pub(crate) struct Samples {
    /// The number of the reader's line.
    pub line: usize,
    /// The process of the reader.
    pub owner: Instance,
    /// The number and the slice of each sample in the ring, in any order.
    pub all: Vec<(u32, u64)>,
}

const SLICE: u64 = (1 << 31) - 1;

impl<M: Memory> Coherent<M> {
    fn ring_at(self, line: usize) -> Offset {
        self.at + (self.sizes.rings_at() + line as u64 * RING_BYTES)
    }

    /// Records that the reader of `line` has accessed `slice`, as its sample with this number.
    pub(crate) fn record_sample(self, line: Line, number: u32, slice: u64) {
        let slot = u64::from(number) % RING_SLOTS * 8;
        let word = u64::from(number) << 32 | (slice + 1);
        let at = self.ring_at(self.number_of(line)) + slot;
        // Relaxed: the sample is all in this word.
        self.memory.store(at, word, Ordering::Relaxed);
    }

    /// Returns the number of the last sample in the ring of `line`; 0 if there is none.
    pub(crate) fn last_sample(self, line: Line) -> u32 {
        let all = self.samples_in(self.number_of(line));
        all.map(|(number, _)| number).max().unwrap_or(0)
    }

    fn samples_in(self, line: usize) -> impl Iterator<Item = (u32, u64)> {
        (0..RING_SLOTS).filter_map(move |slot| {
            let at = self.ring_at(line) + slot * 8;
            let word: u64 = self.memory.load(at, Ordering::Relaxed);
            let slice = (word & SLICE).checked_sub(1)?;
            Some(((word >> 32) as u32, slice))
        })
    }

    /// Returns the samples of all readers.
    pub(crate) fn samples(self) -> impl Iterator<Item = Samples> {
        self.line_owners_by_number()
            .map(move |(line, owner)| Samples {
                line,
                owner,
                all: self.samples_in(line).collect(),
            })
    }
}
