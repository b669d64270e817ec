//! Replicas: slices with two or three frames, each on another server.
//!
//! An allocation of n slices with r replicas has a run of r · n slices. A slice s of the first n is
//! a *primary*, and its replicas are s itself, s + n and s + 2n. Each has a map word, a frame and a
//! mover word like any slice. An address names the primary. The holder word of the primary has the
//! [`Shape`]; that of s + n is the *write lock*: the number of a reader's line from 1, or 0.
//!
//! *Order.* One writer at a time has the lock. It stores each word to the last replica first, and
//! to the primary last. Readers read the first replica whose server is alive. So each replica has
//! what a reader has seen in the replicas before it, and no word that was read is lost with a
//! server. A writer leaves out replicas whose servers have died.
//!
//! *Announcements.* A writer announces all replicas, also lost ones, before it takes the lock. So
//! none is moved, [rebuilt](super::rebuild) or released while it writes. A reader announces the
//! replica that it reads. It confirms that the ones before are still lost, because a later writer
//! stores to a rebuilt one last.
//!
//! *A writer that dies* leaves words that only the last replicas have. A survivor copies the
//! replicas, each to the one before it, from the last to the first. No replica gets an older word.
//! Then all are equal, and the survivor releases the lock and ends the announcements.
//!
//! Tests: tests/pool/replicas.rs; proofs: lab/outlive-proofs/src/memory_pool/replica_sweeps.rs and
//! replica_scenarios.rs.

use super::readers::Access;
use super::{Coherent, Homes, Line, ServerId, Translated};
use crate::error::PoolError;
use crate::layout::{Address, MapWord, Owner, Shape};
use outlive::memory::{Memory, Ordering};

/// The largest number of replicas.
pub const MOST_REPLICAS: usize = 3;

/// The replicas of a slice.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReplicaSet {
    pub primary: u64,
    shape: Shape,
}

impl ReplicaSet {
    pub fn slices(self) -> impl DoubleEndedIterator<Item = u64> {
        (0..self.shape.replicas).map(move |replica| self.primary + replica * self.shape.slices)
    }

    /// Returns the number of replicas.
    pub fn len(self) -> usize {
        self.shape.replicas as usize
    }

    /// Returns the slice whose holder word is the write lock.
    pub fn lock(self) -> u64 {
        self.primary + self.shape.slices
    }
}

impl<M: Memory> Coherent<M> {
    /// Writes the shape of an allocation that begins at `first`, which the caller owns and which
    /// has no access yet.
    pub(super) fn set_shape(self, first: u64, shape: Shape) {
        let memory = self.memory;
        // Relaxed: the map words with access publish them.
        for slice in first + shape.slices..first + shape.slices * shape.replicas {
            memory.store(self.holder_at(slice), 0u64, Ordering::Relaxed);
        }
        for slice in first..first + shape.slices {
            memory.store(self.holder_at(slice), shape.to_word(), Ordering::Relaxed);
        }
    }

    /// Returns the replicas of `primary`, whose map word has the access and the generation of a
    /// replicated allocation; `None` if it is another replica.
    fn set_of_primary(self, primary: u64) -> Option<ReplicaSet> {
        // Relaxed: the caller has loaded the map word by Acquire.
        let word = self.memory.load(self.holder_at(primary), Ordering::Relaxed);
        let shape = Shape::from_word(word)?;
        let last = primary + (shape.replicas - 1) * shape.slices;
        (last < self.sizes.slices).then_some(ReplicaSet { primary, shape })
    }

    /// Returns the replicas of the slice of `address`, which is in a primary.
    pub(super) fn replicas_at(self, address: Address) -> Result<ReplicaSet, PoolError> {
        let freed = || PoolError::Freed { address };
        let slice = address.position() >> self.sizes.slice_bits;
        let word = (slice < self.sizes.slices).then(|| self.map_word(slice));
        let word = word.ok_or_else(freed)?;
        match word.has_access() && word.generation() == address.generation() {
            true => self.set_of_primary(slice).ok_or_else(freed),
            false => Err(freed()),
        }
    }

    /// Returns the set that `slice` belongs to, as any of its replicas. The generation of `slice`
    /// is that of a replicated allocation. If the caller does not have the mover word, the slice
    /// may be released concurrently, and the result is only a hint.
    pub(super) fn replicas_with(self, slice: u64) -> Option<ReplicaSet> {
        let first = match self.owner(slice) {
            Owner::PartOf(first) if first < slice => first,
            _ => slice,
        };
        let shape = self.set_of_primary(first)?.shape;
        self.set_of_primary(first + (slice - first) % shape.slices)
    }

    /// Returns the map words of the replicas; unmapped behind the last one.
    #[inline]
    pub(super) fn words_of(self, set: ReplicaSet) -> [MapWord; MOST_REPLICAS] {
        let mut words = [MapWord::unmapped(0); MOST_REPLICAS];
        for (word, slice) in words.iter_mut().zip(set.slices()) {
            *word = self.map_word(slice);
        }
        words
    }

    /// Returns the address in `slice` of the byte of `address`.
    pub(super) fn address_in(self, slice: u64, address: Address) -> Address {
        let byte = address.position() & (self.sizes.slice_bytes() - 1);
        Address::new(address.generation(), slice << self.sizes.slice_bits | byte)
    }

    /// Returns whether the frame of a map word is on a server that is alive.
    pub(super) fn is_alive(self, word: MapWord) -> bool {
        self.has_memory(ServerId(word.segment()), word.server_generation())
    }

    /// Announces and translates the first replica of the slice of `address` that is alive, to read
    /// it. Lock-free.
    ///
    /// # Errors
    /// As [`translate`](Self::translate), with [`Lost`](PoolError::Lost) if no replica is alive.
    pub fn translate_replica(
        self,
        line: Line,
        slot: u64,
        address: Address,
        homes: &impl Homes<M>,
    ) -> Result<Translated<M>, PoolError> {
        loop {
            let set = self.replicas_at(address)?;
            let mut lost = PoolError::Freed { address };
            for slice in set.slices() {
                let replica = self.address_in(slice, address);
                match self.translate_for(Access::Read, (line, slot), replica, homes) {
                    Ok(found) => {
                        let found = found.ok_or(PoolError::Moved { address })?;
                        let primary = set.primary;
                        return Ok(Translated { primary, ..found });
                    }
                    Err(PoolError::Lost { server, .. }) => {
                        lost = PoolError::Lost { address, server };
                    }
                    Err(PoolError::Freed { .. }) => return Err(PoolError::Freed { address }),
                    Err(error) => return Err(error),
                }
            }
            if self.are_lost(set, (line, slot)) {
                return Err(lost);
            }
            self.memory.spin_hint();
        }
    }

    /// Returns whether all replicas were lost at the same instant. A replica may be rebuilt after
    /// it was checked and before the next one is lost.
    fn are_lost(self, set: ReplicaSet, announced: (Line, u64)) -> bool {
        let before = self.words_of(set);
        if before.iter().any(|word| self.is_alive(*word)) {
            return false;
        }
        for (slice, word) in set.slices().zip(&before) {
            if word.is_frozen() {
                // A flip to a server that has died is taken back.
                self.thaw_announced(announced, slice);
                return false;
            }
        }
        // A dead server stays dead, so equal map words in both reads mean that no replica was alive
        // between them.
        self.words_of(set) == before
    }

    /// Thaws a replica while `slot` announces it. Else the slice could be moved and rebuilt between
    /// the load of a map word and its compare-and-swap, and be frozen again with the same word; the
    /// flip of the first of these moves would then be taken back, to a frame that is released.
    pub(super) fn thaw_announced(self, (line, slot): (Line, u64), slice: u64) {
        self.announce(line, slot, slice, Access::Read);
        // SeqCst: either the mover that thaws the slice finds the announcement, and keeps its
        // claim, or the map word below is the thawed one.
        self.memory.fence(Ordering::SeqCst);
        self.thaw_slice(slice);
        self.withdraw(line, slot);
    }

    /// Returns whether a replica before that of `translated` is alive.
    pub(super) fn is_overtaken(self, translated: &Translated<M>) -> bool {
        let set = self.set_of_primary(translated.primary);
        set.is_none_or(|set| {
            let mut before = set.slices().take_while(|slice| *slice != translated.slice);
            before.any(|slice| self.is_alive(self.map_word(slice)))
        })
    }

    /// Returns the slices of the other replicas of `slice`.
    fn other_replicas(self, slice: u64) -> impl Iterator<Item = u64> {
        let set = self.replicas_with(slice);
        let all = set.into_iter().flat_map(ReplicaSet::slices);
        all.filter(move |other| *other != slice)
    }

    /// Returns whether another replica of `slice` is on the live server `to`.
    pub(super) fn replica_is_on(self, slice: u64, to: ServerId) -> bool {
        self.other_replicas(slice).any(|other| {
            let word = self.map_word(other);
            word.segment() == to.0 && self.is_alive(word)
        })
    }

    /// Returns whether another replica of `slice` is on the server of the frame `new`, is moved
    /// there, or may return there. The caller has the mover word of `slice`, whose record names
    /// `new`, and has executed a full fence: at least one of two movers sees the other.
    pub(super) fn may_meet_replica(self, slice: u64, new: MapWord) -> bool {
        self.other_replicas(slice).any(|other| {
            // The record is read before the map word: if it no longer names the server, the map
            // word names it or the move was cancelled. A frozen map word may still return to the
            // old frame, if the server of the new one has died.
            let record = self.record_of(other);
            let moves_there = record.is_some_and(|it| self.frames_in(it)[1].has_server_of(new));
            let word = self.map_word(other);
            moves_there || word.has_server_of(new) || word.is_frozen()
        })
    }

    /// Returns what is wrong with the replicas of `slice`, an accessible slice of a replicated
    /// allocation.
    pub(super) fn wrong_replicas(self, slice: u64) -> Option<String> {
        let Some(set) = self.replicas_with(slice) else {
            return Some(format!("slice {slice} has no shape of its replicas"));
        };
        let word = self.map_word(slice);
        let mut others = self.other_replicas(slice);
        let met = others.find(|other| self.map_word(*other).has_server_of(word));
        if let Some(other) = met {
            let server = ServerId(word.segment());
            return Some(format!(
                "slices {slice} and {other} are replicas, and both are on {server}"
            ));
        }
        let lock: u64 = self
            .memory
            .load(self.holder_at(set.lock()), Ordering::Acquire);
        let holder = lock.checked_sub(1).map(|it| self.owner_of_line(it));
        (holder == Some(None)).then(|| format!("the write lock of slice {slice} has no owner"))
    }
}
