//! The writes of a segment's creation, in an order that a death may cut anywhere.
//!
//! An opener of a segment trusts its first page only if the first word is the complete magic. So:
//!
//! 1. the first word is set to the mark of an incomplete segment, by compare-and-swap from the
//!    value that the creator read there, and written back: from now on no process can open the
//!    previous segment;
//! 2. memory that is not fresh is cleared, all but the first word, and written back: a segment
//!    begins as zeros, and nothing of an earlier one is left behind it;
//! 3. the rest of the first page is written and written back;
//! 4. the first word becomes the complete magic, by compare-and-swap from the creator's own mark
//!    (release: a process that reads it sees the rest), and is written back.
//!
//! A death before 1 leaves the previous contents. A death after 1 and before 4 leaves an incomplete
//! segment, which `open` reports as incomplete and a new creation starts over. A death after 4
//! leaves a segment. A mark holds a random number: of two creators on different hosts, which no
//! file lock keeps apart, the one that was overtaken fails at 4 instead of completing memory that
//! the other clears. It checks its mark before each piece that it clears and each page that it
//! writes, so a creator that was stopped continues with one piece at most.
//!
//! Before 4 no other process accesses the memory, except for the first word, so it is written by
//! plain payload copies.

use super::superblock::{Page, SUPERBLOCK_BYTES, incomplete_word};
use outlive_memory::{Memory, Offset, Ordering, crash_points};

crash_points! {
    /// Crash points of the creation of a segment.
    pub enum CreatePoint for "segment.create" {
        /// The first word marks the segment as incomplete.
        Marked,
        /// Memory that was not fresh holds zeros.
        Cleared,
        /// The superblock is written except for its first word.
        Written,
        /// The first word marks the segment as complete. A file has no name yet.
        Completed,
    }
}

const MAGIC_AT: Offset = Offset::new(0);
/// The number of bytes cleared between two reports of progress.
const STEP: u64 = 1 << 20;

/// Another creator began to create a segment in the same place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Overtaken;

/// A creation that has marked its place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Creation<M: Memory> {
    memory: M,
    mark: u64,
}

impl<M: Memory> Creation<M> {
    /// Marks the segment as incomplete (step 1). `seen` is the first word that the creator has
    /// read; the mark replaces no other value.
    pub fn begin(memory: M, seen: u64, nonce: u32) -> Result<Self, Overtaken> {
        let mark = incomplete_word(nonce);
        // Relaxed: the mark publishes nothing; `complete` alone orders the writes that follow.
        memory
            .compare_exchange(MAGIC_AT, seen, mark, Ordering::Relaxed, Ordering::Relaxed)
            .map_err(|_| Overtaken)?;
        memory.persist(MAGIC_AT, 8);
        memory.crash_point(CreatePoint::Marked);
        Ok(Self { memory, mark })
    }

    /// Returns an error if another creator has begun since.
    pub fn check(self) -> Result<(), Overtaken> {
        // Relaxed: nothing is read on the strength of it.
        match self.memory.load::<u64>(MAGIC_AT, Ordering::Relaxed) == self.mark {
            true => Ok(()),
            false => Err(Overtaken),
        }
    }

    /// Clears memory that is not fresh (step 2). `progress` receives the number of bytes cleared.
    pub fn clear(self, mut progress: impl FnMut(u64)) -> Result<(), Overtaken> {
        let zeros = vec![0; STEP as usize];
        let size = self.memory.size();
        let mut at = 8;
        while at < size {
            let len = (STEP - at % STEP).min(size - at);
            let here = Offset::new(at);
            self.check()?;
            self.memory.copy_in(here, &zeros[..len as usize]);
            self.memory.write_back(here, len);
            at += len;
            progress(at);
        }
        self.memory.drain();
        self.memory.crash_point(CreatePoint::Cleared);
        Ok(())
    }

    /// Writes `page`, a complete superblock (steps 3 and 4): the first word last.
    pub fn complete(self, page: &Page) -> Result<(), Overtaken> {
        let rest = MAGIC_AT + 8;
        self.check()?;
        self.memory.copy_in(rest, &page[8..]);
        self.memory.persist(rest, SUPERBLOCK_BYTES - 8);
        self.memory.crash_point(CreatePoint::Written);
        let word = u64::from_ne_bytes(page[..8].try_into().expect("eight bytes"));
        // Release: a process that reads the complete magic sees the page, and the zeros behind it.
        self.memory
            .compare_exchange(
                MAGIC_AT,
                self.mark,
                word,
                Ordering::Release,
                Ordering::Relaxed,
            )
            .map_err(|_| Overtaken)?;
        self.memory.persist(MAGIC_AT, 8);
        self.memory.crash_point(CreatePoint::Completed);
        Ok(())
    }
}

/// Loads the first page into private memory: the first word first, so that a page that was complete
/// when its word was read is read as its creator wrote it.
pub(super) fn load_page<M: Memory>(memory: M) -> Page {
    let mut page: Page = [0; SUPERBLOCK_BYTES as usize];
    // Acquire: pairs with `complete`.
    let word: u64 = memory.load(MAGIC_AT, Ordering::Acquire);
    memory.copy_out(MAGIC_AT + 8, &mut page[8..]);
    page[..8].copy_from_slice(&word.to_ne_bytes());
    page
}

/// Removes a segment: its first page becomes zeros, the first word first.
pub(super) fn erase<M: Memory>(memory: M, seen: u64) -> Result<(), Overtaken> {
    memory
        .compare_exchange(
            MAGIC_AT,
            seen,
            incomplete_word(0),
            Ordering::Relaxed,
            Ordering::Relaxed,
        )
        .map_err(|_| Overtaken)?;
    memory.persist(MAGIC_AT, 8);
    let rest = MAGIC_AT + 8;
    memory.copy_in(rest, &[0; SUPERBLOCK_BYTES as usize - 8]);
    memory.persist(rest, SUPERBLOCK_BYTES - 8);
    memory.store(MAGIC_AT, 0u64, Ordering::Relaxed);
    memory.persist(MAGIC_AT, 8);
    Ok(())
}

#[cfg(test)]
mod tests;
