//! The boundary between the shared and the private frames of a server.
//!
//! Only the server moves its boundary. *Shrink*: the server stores the smaller number of shared
//! frames, executes a full fence, and scans the frames behind the boundary. If one is in use, it
//! stores the old number again; otherwise it marks these frames as dirty, as private frames always
//! are. *Grow*: the server stores the larger number.
//!
//! A client claims a frame, executes a full fence, and reads the number. It releases a frame behind
//! the boundary. One of the two sees the other's store, so no slice has a private frame. If the
//! boundary has moved there and back after the claim, the client reads the number after the mark,
//! and so clears the frame. Readers of shared frames notice nothing.

use super::{Coherent, Home, ServerEntry, ServerId};
use crate::error::PoolError;
use crate::layout::MapWord;
use outlive::memory::{Memory, Offset, Ordering};

/// The place of the request in a server's entry: the generation of the server, in the upper half,
/// and the requested number of frames; 0 without a request.
const WANTED: u64 = 32;

impl<M: Memory> Coherent<M> {
    /// Moves the boundary of the server `entry`, whose region is `home`, so that `frames` frames
    /// are shared. Only one thread of the server calls this at a time.
    ///
    /// # Errors
    /// If slices have frames that would become private. Nothing is changed then, but clients may
    /// have found too little memory during the call.
    ///
    /// # Crash
    /// The memory is lost with the server.
    pub fn move_boundary(
        self,
        entry: &ServerEntry,
        home: Home<M>,
        frames: u64,
    ) -> Result<(), PoolError> {
        let before = home.shared();
        if frames >= before {
            home.set_shared(frames);
            return Ok(());
        }
        let held = |slices| PoolError::StillHeld {
            server: entry.id,
            slices,
        };
        // First without a change that clients notice.
        match home.used_in(frames..before) {
            0 => {}
            slices => return Err(held(slices)),
        }
        home.set_shared(frames);
        // SeqCst: either this scan finds the frame of a client, or the client finds that the frame
        // is private, and releases it.
        self.memory.fence(Ordering::SeqCst);
        let slices = home.used_in(frames..before);
        if slices > 0 {
            home.set_shared(before);
            return Err(held(slices));
        }
        home.soil(frames..before);
        Ok(())
    }

    fn wanted_at(self, server: ServerId) -> Offset {
        self.entry_at(server) + WANTED
    }

    /// Requests that the live server `entry` shares `frames` frames.
    pub fn request_frames(self, entry: &ServerEntry, frames: u64) {
        // Relaxed: the request is all in this word.
        let at = self.wanted_at(entry.id);
        let frames = frames.min(MapWord::FRAMES + 1);
        let word = entry.generation << 32 | frames;
        self.memory.store(at, word, Ordering::Relaxed);
    }

    /// Takes the last request to the server `entry`: a number of frames.
    pub fn take_request(self, entry: &ServerEntry) -> Option<u64> {
        let at = self.wanted_at(entry.id);
        let word: u64 = self.memory.load(at, Ordering::Acquire);
        // One for an earlier server with this number is not taken.
        if word >> 32 != entry.generation {
            return None;
        }
        // A compare-and-swap: a later request stays.
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        let taken = { self.memory }.compare_exchange(at, word, 0, order.0, order.1);
        taken.ok().map(|_| word & u64::from(u32::MAX))
    }

    /// Removes the request to an earlier server with this number.
    pub(super) fn forget_request(self, server: ServerId) {
        // Relaxed: the state of the entry publishes it.
        let at = self.wanted_at(server);
        self.memory.store(at, 0u64, Ordering::Relaxed);
    }

    /// Returns whether the server has not taken the last request yet.
    pub fn has_request(self, entry: &ServerEntry) -> bool {
        let at = self.wanted_at(entry.id);
        self.memory.load::<u64>(at, Ordering::Acquire) >> 32 == entry.generation
    }
}
