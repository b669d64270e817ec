//! Writes to a slice with [replicas](super::replicas).
//!
//! 1. The writer announces all replicas with W, executes a full fence, and reads their map words
//!    again.
//! 2. It takes the write lock by a compare-and-swap.
//! 3. It stores each word to all replicas that are alive, from the last to the first.
//! 4. It marks the chunks that it has written for movers, releases the lock, and withdraws the
//!    announcements.
//!
//! If the writer dies while it has the lock, a survivor copies each replica to the one before it,
//! beginning with the last, and releases the lock. It then marks all chunks and withdraws the
//! announcements. A stored word is then in all live replicas or in none.
//!
//! Tests and proofs: see [`replicas`](super::replicas).

use super::migrate::{PIECE, copy_while};
use super::readers::Access;
use super::replicas::{MOST_REPLICAS, ReplicaSet};
use super::{Coherent, Homes, Line, ServerId, Translated};
use crate::error::PoolError;
use crate::layout::{Address, LINE_SLOTS, MapWord};
use outlive::membership::Instance;
use outlive::memory::{Memory, Native, Offset, Ordering};

outlive::memory::crash_points! {
    /// Crash points of a write to replicas.
    pub enum ReplicaPoint for "pool.replicas" {
        /// The writer has the lock.
        Locked,
        /// Movers know what was written; the writer still has the lock.
        Marked,
        /// The lock is released; the replicas are still announced.
        Unlocked,
        /// A survivor has made two replicas equal.
        Equalised,
    }
}

/// The replicas of a slice whose write lock a reader has.
#[derive(Clone, Copy, Debug)]
pub struct WriteSet<M: Memory = Native> {
    set: ReplicaSet,
    /// `None` for a replica that is lost.
    frames: Frames<M>,
}

type Frames<M> = [Option<Translated<M>>; MOST_REPLICAS];

/// The result of an attempt to write to replicas.
#[derive(Debug)]
pub enum ToWrite<M: Memory = Native> {
    /// The caller has the lock.
    Ready(WriteSet<M>),
    /// A replica is frozen: the caller retries, and may [thaw](Coherent::thaw_replicas) it.
    Frozen,
    /// The lock is taken. The caller retries, unless it has the lock itself.
    Locked {
        /// The process that has the lock; `None` if the lock was released meanwhile.
        by: Option<Instance>,
        /// Whether the calling reader has the lock.
        is_own: bool,
    },
}

impl<M: Memory> WriteSet<M> {
    fn alive(&self) -> impl DoubleEndedIterator<Item = &Translated<M>> {
        self.frames.iter().flatten()
    }

    /// Returns the first replica that was alive.
    pub fn first(&self) -> Option<Translated<M>> {
        self.alive().next().copied()
    }

    /// Returns the number of replicas, which is the number of slots with announcements.
    pub fn replicas(&self) -> usize {
        self.set.len()
    }

    /// Stores a word at `byte` of the slice.
    #[inline]
    pub fn store(&self, byte: u64, word: u64) {
        for replica in self.alive().rev() {
            // Release: a reader that has seen the word in a replica finds it in the later ones.
            { replica.memory }.store(replica.at + byte, word, Ordering::Release);
        }
    }

    /// Copies whole words to `byte`.
    pub fn copy_in(&self, byte: u64, from: &[u8]) {
        for replica in self.alive().rev() {
            // Release: as in `store`.
            { replica.memory }.fence(Ordering::Release);
            { replica.memory }.copy_in(replica.at + byte, from);
        }
    }
}

impl<M: Memory> Coherent<M> {
    /// Announces the replicas of the slice of `address` in the first of `slots`, takes the write
    /// lock, and translates the replicas that are alive. After `Frozen`, `Locked` or an error
    /// nothing is announced. Lock-free.
    ///
    /// # Errors
    /// As [`translate_replica`](Self::translate_replica), and if there are fewer slots than
    /// replicas.
    ///
    /// # Crash
    /// A survivor that recovers the reader releases the lock.
    pub fn translate_to_write_replicas(
        self,
        line: Line,
        slots: &[u64],
        address: Address,
        homes: &impl Homes<M>,
    ) -> Result<ToWrite<M>, PoolError> {
        let set = self.replicas_at(address)?;
        let Some(slots) = slots.get(..set.len()) else {
            return Err(PoolError::TooManyGuards { most: LINE_SLOTS });
        };
        let (lock, own) = (self.lock_at(set), self.number_of(line) as u64 + 1);
        let locked = |by: u64| ToWrite::Locked {
            by: by.checked_sub(1).and_then(|it| self.owner_of_line(it)),
            is_own: by == own,
        };
        // A writer that waits announces nothing. Relaxed: the compare-and-swap decides.
        let by: u64 = self.memory.load(lock, Ordering::Relaxed);
        if by != 0 {
            return Ok(locked(by));
        }
        let withdraw = || slots.iter().for_each(|slot| self.withdraw(line, *slot));
        let words = loop {
            let words = self.words_of(set);
            let used = &words[..set.len()];
            let is_it = |it: &MapWord| it.has_access() && it.generation() == address.generation();
            if !used.iter().all(is_it) {
                withdraw();
                return Err(PoolError::Freed { address });
            }
            if used.iter().any(|it| it.is_frozen()) {
                withdraw();
                return Ok(ToWrite::Frozen);
            }
            for (slot, slice) in slots.iter().zip(set.slices()) {
                self.announce(line, *slot, slice, Access::Write);
            }
            // SeqCst: as in `translate_for`, for each replica.
            self.memory.fence(Ordering::SeqCst);
            if self.words_of(set) == words {
                break words;
            }
            self.memory.spin_hint();
        };
        // AcqRel: this writer sees the stores of the one before.
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        if let Err(by) = { self.memory }.compare_exchange(lock, 0, own, order.0, order.1) {
            withdraw();
            return Ok(locked(by));
        }
        self.memory.crash_point(ReplicaPoint::Locked);
        // From here on no map word names another frame, because movers wait for the announcements;
        // a map word may be frozen or made inaccessible. So lost replicas stay lost, and the others
        // are equal.
        let found = self.frames_of(set, &words, address, homes);
        let refused = match found {
            Ok(frames) if frames.iter().any(Option::is_some) => {
                // Release: a reader that sees a word of this writer also sees the map words above.
                self.memory.fence(Ordering::Release);
                return Ok(ToWrite::Ready(WriteSet { set, frames }));
            }
            Ok(_) => {
                let server = ServerId(words[0].segment());
                PoolError::Lost { address, server }
            }
            Err(error) => error,
        };
        self.unlock(set);
        withdraw();
        Err(refused)
    }

    /// Returns the frames of the replicas that are alive.
    fn frames_of(
        self,
        set: ReplicaSet,
        words: &[MapWord],
        address: Address,
        homes: &impl Homes<M>,
    ) -> Result<Frames<M>, PoolError> {
        let mut frames = [None; MOST_REPLICAS];
        for ((slice, word), frame) in set.slices().zip(words).zip(&mut frames) {
            let replica = self.address_in(slice, address);
            match self.find(replica, slice, *word, homes) {
                Ok(found) => {
                    let primary = set.primary;
                    *frame = Some(Translated { primary, ..found });
                }
                Err(PoolError::Lost { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(frames)
    }

    fn lock_at(self, set: ReplicaSet) -> Offset {
        self.holder_at(set.lock())
    }

    fn unlock(self, set: ReplicaSet) {
        // Release: the next writer sees the stores of this one.
        self.memory
            .store(self.lock_at(set), 0u64, Ordering::Release);
        self.memory.crash_point(ReplicaPoint::Unlocked);
    }

    /// Loads the word at `byte` of the slice from a replica that was alive after the load; 0 if
    /// there is none.
    #[inline]
    pub fn load_replica(self, replicas: &WriteSet<M>, byte: u64) -> u64 {
        for replica in replicas.alive() {
            let loaded: u64 = { replica.memory }.load(replica.at + byte, Ordering::Relaxed);
            // Acquire: the state of the server is read after the word.
            self.memory.fence(Ordering::Acquire);
            if self.is_alive(replica.word) {
                return loaded;
            }
        }
        0
    }

    /// Copies the bytes from `byte` on, from a replica that was alive after the copy; returns
    /// `false` if there is none.
    pub fn copy_out_replica(self, replicas: &WriteSet<M>, byte: u64, into: &mut [u8]) -> bool {
        replicas.alive().any(|replica| {
            { replica.memory }.copy_out(replica.at + byte, into);
            // Acquire: as in `load_replica`.
            self.memory.fence(Ordering::Acquire);
            self.is_alive(replica.word)
        })
    }

    /// Confirms that a replica which was written is alive, and the slice not freed.
    ///
    /// # Errors
    /// [`Freed`](PoolError::Freed) or [`Lost`](PoolError::Lost): what was written is lost.
    pub fn confirm_replicas(
        self,
        replicas: &WriteSet<M>,
        address: Address,
    ) -> Result<(), PoolError> {
        self.memory.fence(Ordering::Acquire);
        let now = self.map_word(replicas.set.primary);
        if !now.has_access() || now.generation() != address.generation() {
            return Err(PoolError::Freed { address });
        }
        match replicas.alive().any(|it| self.is_alive(it.word)) {
            true => Ok(()),
            false => Err(PoolError::Lost {
                address,
                server: ServerId(now.segment()),
            }),
        }
    }

    /// Ends a write: marks the written chunks, releases the lock, and withdraws the announcements.
    pub fn end_write(self, line: Line, slots: &[u64], replicas: &WriteSet<M>, chunks: u64) {
        for slice in replicas.set.slices() {
            self.mark_written(slice, chunks);
        }
        self.memory.crash_point(ReplicaPoint::Marked);
        self.unlock(replicas.set);
        for slot in slots.iter().take(replicas.replicas()) {
            self.withdraw(line, *slot);
        }
    }

    /// Thaws the replicas of the slice of `address`. Announces them one after another in `slot`,
    /// which is free.
    pub fn thaw_replicas(self, line: Line, slot: u64, address: Address) {
        if let Ok(set) = self.replicas_at(address) {
            let thaw = |slice| self.thaw_announced((line, slot), slice);
            set.slices().for_each(thaw);
        }
    }

    /// Equalises the replicas that the dead reader of `line` was writing, and releases their locks.
    /// The announcements of the reader are still there, so no replica is moved or released.
    ///
    /// Returns the replicas that could not be equalised, because a live server could not be
    /// reached, and the last error.
    pub(super) fn settle_writes(
        self,
        line: Line,
        homes: &impl Homes<M>,
    ) -> (Vec<u64>, Option<PoolError>) {
        let (mut remaining, mut failed) = (Vec::new(), None);
        let own = self.number_of(line) as u64 + 1;
        for slice in self.written_by(line) {
            let word = self.map_word(slice);
            let address = self.address_of(slice, word);
            // The lock of a slice that is freed ends with it.
            let Some(set) = { address.is_replicated() && word.has_access() }
                .then(|| self.replicas_at(address).ok())
                .flatten()
            else {
                continue;
            };
            // Acquire: the stores of a survivor that has died come before.
            let lock: u64 = self.memory.load(self.lock_at(set), Ordering::Acquire);
            if lock != own {
                continue;
            }
            match self.equalise(set, address, homes) {
                Ok(()) => self.unlock(set),
                Err(error) => {
                    remaining.extend(set.slices());
                    failed = Some(error);
                }
            }
        }
        (remaining, failed)
    }

    /// Copies each replica to the one before it, from the last to the first. Lost ones are left
    /// out.
    fn equalise(
        self,
        set: ReplicaSet,
        address: Address,
        homes: &impl Homes<M>,
    ) -> Result<(), PoolError> {
        loop {
            let frames = self.frames_of(set, &self.words_of(set), address, homes)?;
            let alive: Vec<_> = frames.into_iter().flatten().collect();
            // If the server of a replica dies before all of it is copied, the one before it may be
            // older than the later ones: again, without it.
            let are_equal = { alive.windows(2).rev() }.all(|pair| {
                let is_whole = self.copy_alive(pair[1], pair[0]);
                self.memory.crash_point(ReplicaPoint::Equalised);
                is_whole
            });
            if are_equal {
                return Ok(());
            }
        }
    }

    /// Copies the slice until the server of `source` dies; no byte is copied from a dead server.
    /// Returns whether all of it was copied.
    fn copy_alive(self, source: Translated<M>, target: Translated<M>) -> bool {
        let all = 0..self.sizes.slice_bytes();
        let (from, to) = ((source.memory, source.at), (target.memory, target.at));
        let mut piece = [0; PIECE as usize];
        copy_while(all, (from, to), &mut piece, || {
            // AcqRel: the state of the server is read after the bytes, and a reader that sees a
            // word in the target finds it in the later replicas.
            self.memory.fence(Ordering::AcqRel);
            self.is_alive(source.word)
        })
    }
}
