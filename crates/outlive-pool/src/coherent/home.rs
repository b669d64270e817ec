//! The region of a server: its frames and its fine map.
//!
//! ```text
//! 0            frame 0, frame 1, ...
//!              unused
//! end - 64-8n  fine map: the word of index n - 1, ..., of index 0
//! end - 64     magic, number of shared frames
//! ```
//!
//! The frames from the number of shared ones on are private to the server: see
//! [`boundary`](super::boundary).

use crate::error::PoolError;
use crate::layout::{FrameWord, MapWord};
use core::ops::Range;
use outlive::memory::{Memory, Native, Offset, Ordering};

const MAGIC: u64 = u64::from_le_bytes(*b"outlhome");
const HEADER: u64 = 64;

/// The regions of servers that this process can reach.
pub trait Homes<M: Memory> {
    /// Returns the region of the server with this segment number and generation; `None` if the
    /// server has died or left.
    ///
    /// # Errors
    /// If the region of a live server cannot be reached.
    fn home(&self, segment: u16, generation: u64) -> Result<Option<Home<M>>, PoolError>;
}

/// The region of a server.
#[derive(Clone, Copy, Debug)]
pub struct Home<M: Memory = Native> {
    memory: M,
    at: Offset,
    bytes: u64,
    slice_bits: u32,
}

impl<M: Memory> Home<M> {
    /// Returns the region of `bytes` bytes at `at` in `memory`, all inside it.
    pub fn new(memory: M, at: Offset, bytes: u64, slice_bits: u32) -> Self {
        Self {
            memory,
            at,
            bytes,
            slice_bits,
        }
    }

    /// Returns the number of bytes of a region with this number of frames.
    pub fn bytes_for(frames: u64, slice_bits: u32) -> u64 {
        ((frames << slice_bits) + frames * 8 + HEADER).next_multiple_of(64)
    }

    /// Returns whether a region can have this number of bytes, which may come from a damaged entry.
    pub(crate) fn is_region(bytes: u64) -> bool {
        bytes >= HEADER && bytes.is_multiple_of(64)
    }

    /// Returns the number of frames.
    pub fn frames(self) -> u64 {
        let frames = self.bytes.saturating_sub(HEADER) / ((1 << self.slice_bits) + 8);
        frames.min(MapWord::FRAMES)
    }

    fn header_at(self) -> Offset {
        self.at + (self.bytes - HEADER)
    }

    fn fine_at(self, index: u64) -> Offset {
        self.at + (self.bytes - HEADER - (index + 1) * 8)
    }

    /// Writes the fine map of a new server, of which the first `shared` frames are in the pool.
    pub fn initialise(self, shared: u64) {
        for index in 0..self.frames() {
            let word = match FrameWord::free(index as u32) {
                word if index < shared => word,
                // Private: the server uses the frame.
                word => word.soiled(),
            };
            self.memory
                .store(self.fine_at(index), word.0, Ordering::Relaxed);
        }
        self.memory
            .store(self.header_at() + 8, shared, Ordering::Relaxed);
        // Release: the state of the server publishes the region; the magic number is for checks.
        self.memory
            .store(self.header_at(), MAGIC, Ordering::Release);
    }

    /// Returns the number of frames that are in the pool.
    pub fn shared(self) -> u64 {
        let shared: u64 = self.memory.load(self.header_at() + 8, Ordering::Acquire);
        shared.min(self.frames())
    }

    /// Returns the memory and the place of the private part, and its number of bytes.
    pub fn private(self) -> (M, Offset, u64) {
        let (shared, frames) = (self.shared(), self.frames());
        let at = self.at + (shared << self.slice_bits);
        (self.memory, at, (frames - shared) << self.slice_bits)
    }

    fn fine(self, index: u64) -> FrameWord {
        // Acquire: the claimant of a frame sees the stores of its previous user.
        FrameWord(self.memory.load(self.fine_at(index), Ordering::Acquire))
    }

    pub(super) fn set_shared(self, frames: u64) {
        // Release: a client that claims a frame sees that it is dirty.
        self.memory
            .store(self.header_at() + 8, frames, Ordering::Release);
    }

    /// Marks private frames as dirty.
    pub(super) fn soil(self, indices: Range<u64>) {
        for index in indices {
            let at = self.fine_at(index);
            let mut word = self.fine(index);
            // A compare-and-swap: a client may claim the frame concurrently, and releases it then.
            // Relaxed: the number of shared frames publishes it.
            let order = Ordering::Relaxed;
            while let Err(found) =
                { self.memory }.compare_exchange(at, word.0, word.soiled().0, order, order)
            {
                word = FrameWord(found);
            }
        }
    }

    /// Returns whether the frame of `index` may have data of a previous user.
    pub(super) fn is_dirty(self, index: u64) -> bool {
        self.fine(index).is_dirty()
    }

    /// Returns the number of frames that are in use.
    pub fn used(self) -> u64 {
        self.used_in(0..self.shared())
    }

    /// Returns the number of frames with these indices that are in use.
    pub fn used_in(self, indices: Range<u64>) -> u64 {
        indices.filter(|it| self.fine(*it).is_used()).count() as u64
    }

    /// Returns the indices of used frames, each with its slice.
    pub fn uses(self) -> impl Iterator<Item = (u64, u64)> {
        (0..self.shared()).filter_map(move |index| Some((index, self.fine(index).slice()?)))
    }

    /// Returns the first free index from `from` on.
    pub(crate) fn free_index(self, from: u64) -> Option<u64> {
        (from..self.shared()).find(|index| !self.fine(*index).is_used())
    }

    /// Returns whether the region has this frame or fine index.
    #[inline]
    fn has(self, number: u64) -> bool {
        // Numbers have 24 bits and slices 26, so nothing overflows.
        debug_assert!(number <= MapWord::FRAMES);
        (number + 1) * ((1 << self.slice_bits) + 8) + HEADER <= self.bytes
    }

    /// Returns the first fine index whose word names a frame that does not exist.
    pub(crate) fn damaged_index(self) -> Option<u64> {
        (0..self.shared()).find(|index| !self.has(self.fine(*index).frame()))
    }

    /// Claims the frame of `index` for `slice`, if it is free and exists. Returns the frame.
    pub(crate) fn claim(self, index: u64, slice: u64) -> Option<u64> {
        // Loaded once: the frame is checked, and then used.
        let word = self.fine(index);
        let (at, to) = (self.fine_at(index), word.claimed_by(slice));
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        let is_free = !word.is_used() && self.has(word.frame());
        let claimed = is_free && { self.memory }
            .compare_exchange(at, word.0, to.0, order.0, order.1)
            .is_ok();
        claimed.then(|| word.frame())
    }

    /// Releases the frame of `index`, if `slice` has it.
    pub(crate) fn release(self, index: u64, slice: u64) {
        if !self.has(index) {
            return;
        }
        let word = self.fine(index);
        if word.is_of(slice) {
            // Release: the next user sees no store of this one later. Plain, because only the owner
            // of the slice, or its mover, changes the word of this frame.
            let released = word.released();
            self.memory
                .store(self.fine_at(index), released.0, Ordering::Release);
        }
    }

    /// Returns the place of the frame of `index`, if `slice` has it.
    #[inline]
    pub(crate) fn frame_of(self, index: u64, slice: u64) -> Option<(M, Offset)> {
        if !self.has(index) {
            return None;
        }
        let word = self.fine(index);
        let start = word.frame() << self.slice_bits;
        (word.is_of(slice) && self.has(word.frame())).then(|| (self.memory, self.at + start))
    }

    /// Fills a frame, which the caller has claimed, with zeros.
    pub(crate) fn clear(self, frame: u64) {
        let start = self.at + (frame << self.slice_bits);
        for byte in (0..1u64 << self.slice_bits).step_by(8) {
            self.memory.store(start + byte, 0u64, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use outlive::memory::PersistenceDomain;

    #[test]
    fn frames_that_do_not_exist_are_not_used() {
        let frames = 600;
        let bytes = Home::<Native>::bytes_for(frames, 12);
        let memory = Native::leaked(bytes.next_multiple_of(4096), PersistenceDomain::Flushed);
        let home = Home::new(memory, Offset::new(0), bytes, 12);
        home.initialise(frames);
        assert_eq!((home.frames(), home.damaged_index()), (frames, None));
        let last = frames - 1;
        assert_eq!(home.claim(last, 7), Some(last));
        assert_eq!(home.frame_of(last, 7).unwrap().1, Offset::new(last << 12));
        assert!(home.frame_of(frames, 7).is_none());
        // The first one overlaps the fine map, and the last one is far outside the region.
        for frame in [frames as u32, (1 << 24) - 1] {
            let free = FrameWord::free(frame);
            memory.store(home.fine_at(0), free.0, Ordering::Relaxed);
            assert_eq!((home.claim(0, 7), home.damaged_index()), (None, Some(0)));
            memory.store(home.fine_at(0), free.claimed_by(7).0, Ordering::Relaxed);
            assert!(home.frame_of(0, 7).is_none());
        }
    }
}
