//! Verbs as loads, stores and atomics on a memory server's mapped segment.

use super::batch::WORD;
use super::{Batch, Completed, Connection, Region, ServerId, VerbError, VerbKind};
use core::future::{Ready, ready};
use outlive::memory::{Memory, Native, Offset, Ordering};

/// The word that fills the region of a dead memory server if the store poisons, for tests.
pub const POISON: u64 = 0xDEAD_5E12_4E12_DEAD;

/// The number of verbs by which the prefetches of a batch precede its accesses.
const PREFETCH_DISTANCE: usize = 8;

/// The word that determines whether a memory server's memory can be used. It is outside the
/// server's segment, so that it can be read and written when the segment is lost.
#[derive(Clone, Copy, Debug)]
pub struct Liveness<M: Memory = Native> {
    /// The memory that holds the word.
    pub memory: M,
    /// The offset of the word.
    pub at: Offset,
    /// The value of the word while this incarnation of the server is live.
    pub live: u64,
}

impl<M: Memory> Liveness<M> {
    /// Returns whether the server's memory can be used.
    #[inline]
    pub fn holds(&self) -> bool {
        // Acquire: pairs with the Release of the store that ends the server's life. The SeqCst
        // loads of a READ order this load after them.
        self.memory.load::<u64>(self.at, Ordering::Acquire) == self.live
    }
}

/// A connection to a memory server, through the mapping of its segment in this process.
///
/// A batch is executed by the call that posts it. The rights to the server are the mapping itself,
/// so they are revoked by fencing the process (see [`crate::servers`]).
///
/// # Crash
/// The process executes the verbs itself, so a death ends them at an instruction. The verbs before
/// it have taken effect, and a WRITE may have written only some of its words.
#[derive(Clone, Copy, Debug)]
pub struct Mapped<M: Memory = Native> {
    memory: M,
    server: ServerId,
    first: Offset,
    region: Region,
    liveness: Liveness<M>,
}

impl<M: Memory> Mapped<M> {
    /// Returns a connection to `server`. Its region begins at `first` in `memory`, and is lost when
    /// `liveness` does not hold.
    ///
    /// # Panics
    /// If the region or the liveness word is not inside its memory, or not aligned to 8 bytes.
    pub fn new(
        memory: M,
        server: ServerId,
        first: Offset,
        region: Region,
        liveness: Liveness<M>,
    ) -> Self {
        let has_state = liveness.memory.has_word::<u64>(liveness.at);
        let is_inside = first
            .raw()
            .checked_add(region.bytes)
            .is_some_and(|end| end <= memory.size());
        let is_aligned = first.raw().is_multiple_of(WORD) && region.bytes.is_multiple_of(WORD);
        assert!(
            has_state && is_inside && is_aligned,
            "a region of {} bytes at {first} or its liveness word is not inside the memory",
            region.bytes
        );
        Self {
            memory,
            server,
            first,
            region,
            liveness,
        }
    }

    /// Fills the region with [`POISON`], for tests: a result that contains it was read from a dead
    /// server. The caller ends the server's [liveness](Liveness) first.
    pub fn poison(&self) {
        for at in (0..self.region.bytes).step_by(WORD as usize) {
            // Release: a verb that reads poison also sees that the server is dead.
            self.memory
                .store(self.first + at, POISON, Ordering::Release);
        }
    }

    fn execute(&self, batch: &mut Batch) -> Result<(), VerbError> {
        for verb in batch.verbs() {
            self.region.check(self.server, verb)?;
        }
        let died = VerbError::ServerDied {
            server: self.server,
        };
        // The pages of a dead server are freed. An access to such a page needs a new one, and kills
        // the process if none is available. After this check, that can happen only to a batch that
        // passed the check before the death.
        if !self.liveness.holds() {
            return Err(died);
        }
        let memory = self.memory;
        // Whether a store may still be invisible to others. READ uses SeqCst loads and the atomics
        // are SeqCst, so an atomic and a later READ need no fence between them (on x86 the loads
        // are plain). A WRITE uses Release stores, because SeqCst ones cost a fence for each word;
        // a fence comes before the next verb that reads. (If two connections both write the same
        // two words, that the final words agree with one order of the WRITEs depends on multi-copy
        // atomic stores, which x86 and Armv8 have. The language's memory model does not guarantee
        // it.)
        let mut has_unfenced_write = false;
        let (verbs, buffer) = batch.parts();
        for (index, verb) in verbs.iter().enumerate() {
            // The misses of a large batch overlap: mostly, its verbs are at unrelated places.
            if let Some(ahead) = verbs.get(index + PREFETCH_DISTANCE) {
                memory.prefetch(self.first + ahead.at.get());
            }
            let first = self.first + verb.at.get();
            let local = &mut buffer[verb.local()];
            if verb.kind != VerbKind::Write && core::mem::take(&mut has_unfenced_write) {
                // The verb takes effect after earlier WRITEs also for all other threads. (A CAS
                // that fails is a load.)
                memory.fence(Ordering::SeqCst);
            }
            match verb.kind {
                VerbKind::Read => {
                    for (word, at) in local.iter_mut().zip(0..) {
                        // SAFETY: the region is inside the memory, and the verb inside the region
                        // and aligned: checked in `new` and above.
                        *word =
                            unsafe { memory.load_unchecked(first + at * WORD, Ordering::SeqCst) };
                    }
                }
                VerbKind::Write => {
                    for (word, at) in local.iter().zip(0..) {
                        // SAFETY: as above.
                        unsafe {
                            // Release: the words of a WRITE become visible after all earlier verbs.
                            memory.store_unchecked(first + at * WORD, *word, Ordering::Release);
                        }
                    }
                    has_unfenced_write = true;
                }
                VerbKind::CompareSwap { expected, new } => {
                    let order = Ordering::SeqCst;
                    let was = memory.compare_exchange(first, expected, new, order, order);
                    local[0] = was.unwrap_or_else(|was| was);
                }
                VerbKind::FetchAdd { add } => {
                    local[0] = memory.fetch_add(first, add, Ordering::SeqCst);
                }
            }
        }
        if has_unfenced_write {
            // Completion: visible to each verb that is posted after it, on any connection.
            memory.fence(Ordering::SeqCst);
        }
        match self.liveness.holds() {
            true => Ok(()),
            false => Err(died),
        }
    }
}

impl<M: Memory> Connection for Mapped<M> {
    type Completion = Ready<Completed>;

    fn server(&self) -> ServerId {
        self.server
    }

    fn region(&self) -> Region {
        self.region
    }

    #[inline]
    fn post(&self, mut batch: Batch) -> Self::Completion {
        let result = self.execute(&mut batch);
        ready(Completed { batch, result })
    }
}
