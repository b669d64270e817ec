//! A worker's own table of counts in shared memory. One word commits its counts of a unit.
//!
//! Every *place* of the pool of workers has one table ([slot](outlive_tasks::engine::slot)), which
//! successive owners of the place continue. While a worker works on a unit, it counts straight into
//! the table with plain stores. When the unit is done, the compare-and-swap of the unit's
//! [result](crate::mapreduce::results) makes all these counts valid atomically. If the worker dies
//! before, none of them ever becomes valid.
//!
//! # Algorithm
//!
//! An *attempt* is one worker's work on one unit. A table numbers its attempts from 1, over all
//! owners; a *stamp* is a unit and the number of an attempt at it. A unit's result names the table
//! and the attempt that committed it. So a stamp is *valid* if and only if the result of its unit
//! names this table and its attempt. Only that word decides validity, and it decides once.
//!
//! An entry has two slots, a value and a stamp each. At most one slot is being written at any time:
//!
//! ```text
//!  entry:   hash, length | value, stamp | value, stamp | the key, or where it stands       64 bytes
//! ```
//!
//! * The entry's *total* is the value in the slot with the highest valid attempt (0 if no slot is
//!   valid).
//! * When an attempt first meets a key, it writes the total, combined with the new value, into the
//!   *other* slot, then its stamp. From then on it changes that slot.
//!
//! # Correctness
//!
//! *The slot with the total is never written.* It keeps its value until the attempt with its stamp
//! in the other slot is committed. That attempt's stores are then over: a worker begins
//! the next attempt only after the commit (or after it gave the attempt up), and a worker that
//! takes over begins an attempt with a number of its own.
//!
//! *An attempt counts whole or not at all.* All its slots have its stamp, and become valid
//! together. A slot with an abandoned attempt's stamp never becomes valid: every attempt takes a
//! number above the one in the header, which was stored there before the first slot was stamped, so
//! no number is reused. The unit is counted again by another attempt, in this or another table. The
//! same holds for a live worker: a task that fails in the middle of an attempt is retried in a new
//! attempt.
//!
//! *So a dead worker's table loses nothing and counts nothing twice.* The counts that its owner
//! committed are valid, stay so, and are reduced whether or not the table gets another owner. The
//! counts that it had only begun are not valid, and never will be.
//!
//! *Whether a stamp is valid* depends on the result of its unit. Most checks avoid that load: the
//! header says since which attempt all but the last have been committed, whichever owners made
//! them. It is raised, before another attempt begins, when the last one was not committed.
//!
//! *Whether the value or the stamp is written first* does not matter. A slot is read only through
//! its stamp's validity, or by its own attempt. A slot with an old stamp is overwritten only if it
//! is the lower of two valid ones, or was never used or never valid; so the total is the other
//! slot's. (Were it the only valid slot, it would hold the total, which is not written.)
//!
//! *New keys.* An entry is found by its first word, which is written last. An entry without it is
//! empty whatever else it holds. An entry whose attempt died has a key and no valid slot: total 0.
//!
//! *Growth.* A larger block is allocated into a cell of the header, filled, and swapped in by one
//! redo transaction that also frees the old one. A death before the transaction leaves the block in
//! the cell; the next owner frees it. Long keys are stored in an arena, a chain of blocks, which
//! grows by a transaction too.
//!
//! *Orderings.* One thread at a time writes a table: the owner of its place. Its stores are
//! relaxed; the result's compare-and-swap releases them, and a thread that has seen the end of the
//! job has acquired them. The next owner acquires them with the place, or with the raised
//! generation; the dead owner's log was settled before the next owner had the place. If an attempt
//! grew the table and died, the worker that took its unit over sees the growth, as it had settled
//! the dead worker's log before; so does every thread after that worker's commit.
//!
//! | death | left behind | consequence |
//! | --- | --- | --- |
//! | while an attempt counts | slots with a stamp that is never valid | the unit is counted again |
//! | while a key is inserted | an empty entry, bytes of the arena | both are reused, or lost |
//! | while the table grows | a block in the header's cell | it is freed when the table is opened |
//! | in the transaction | nothing, or a committed log | recovery applies the log first |

mod grow;

use crate::key::{INLINE, Key};
use crate::mapreduce::results::Results;
use outlive::heap::buddy::{AllocateError, FreeError};
use outlive::memory::{Memory, Native, Offset, Ordering};
use outlive_run::blocks::Blocks;

outlive::memory::crash_points! {
    /// The crash points of the counting of a unit.
    pub enum CountPoint for "table.count" {
        /// The attempt has a number.
        Begun,
        /// A key is written, but cannot be found yet.
        KeyWritten,
        /// A new key can be found.
        Inserted,
        /// A slot has a value but not yet its stamp.
        Valued,
        /// A slot has the attempt's stamp.
        Stamped,
    }
}

outlive::memory::crash_points! {
    /// The crash points of the growth of a table.
    pub enum GrowPoint for "table.grow" {
        /// The new block is in the header's cell.
        Allocated,
        /// The new block is filled.
        Filled,
        /// The new block is the table.
        Swapped,
        /// The arena has a new block.
        ArenaGrown,
        /// The block that a predecessor left in the cell is freed.
        CellCleared,
    }
}

/// The reason why a key was not counted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// A block could not be allocated.
    #[error(transparent)]
    Allocate(#[from] AllocateError),
    /// A block could not be freed.
    #[error(transparent)]
    Free(#[from] FreeError),
    /// A key is longer than a table allows.
    #[error("a key has {len} bytes; the maximum is {} bytes", Table::<Native>::LONGEST)]
    TooLong {
        /// Its length in bytes.
        len: usize,
    },
}

// The header, 128 bytes.
const BLOCK: u64 = 0;
const LOG2: u64 = 8;
const USED: u64 = 16;
const NEXT: u64 = 24;
const ARENA: u64 = 32;
const ARENA_USED: u64 = 40;
/// The stamp of the last attempt.
const ATTEMPT: u64 = 48;
/// All attempts from this one up to, but not including, the last are committed.
const SINCE: u64 = 56;

// An entry.
const ENTRY: u64 = 64;
const META: u64 = 0;
const SLOTS: [u64; 2] = [8, 24];
const STAMP: u64 = 8;
const KEY: u64 = 40;

const LEN_BITS: u32 = 24;
const LEN_MASK: u64 = (1 << LEN_BITS) - 1;

/// The head of a block of the arena, in bytes: the previous block, and this block's length.
const ARENA_HEAD: u64 = 16;
const ARENA_BLOCK: u64 = 64 << 10;

/// Returns a unit and the number of an attempt at it.
fn stamp(unit: u64, attempt: u32) -> u64 {
    unit << 32 | u64::from(attempt)
}

/// The location of one worker's table, and the data that decides which of its counts are valid.
#[derive(Clone, Copy, Debug)]
pub struct Place<M: Memory = Native> {
    /// The memory that holds the table.
    pub memory: M,
    /// The offset of the header: [`Table::HEADER`] bytes, aligned to 64, zeroed before the first
    /// use.
    pub header: Offset,
    /// The number of the table, from 0.
    pub number: u32,
    /// The table of commits, which decides which attempt's counts of each unit are valid.
    pub results: Results<M>,
    /// The seed of the hashes, the same for all tables that are read together.
    pub seed: u64,
}

impl<M: Memory> Place<M> {
    fn word(self, at: u64) -> u64 {
        // Relaxed: see the orderings at the top.
        self.memory.load(self.header + at, Ordering::Relaxed)
    }

    fn set(self, at: u64, value: u64) {
        self.memory
            .store(self.header + at, value, Ordering::Relaxed);
    }

    /// Returns the result of a unit that this table's `attempt` has committed.
    fn result(self, attempt: u32) -> u64 {
        (u64::from(self.number) + 1) << 32 | u64::from(attempt)
    }

    /// Returns the table that committed the unit with this result.
    pub fn committer(result: u64) -> Option<u32> {
        ((result >> 32) as u32).checked_sub(1)
    }

    /// Returns the cell of a block for the table to grow into.
    #[doc(hidden)]
    pub fn next_at(self) -> Offset {
        self.header + NEXT
    }

    /// Returns the location of the last attempt's stamp.
    #[doc(hidden)]
    pub fn attempt_at(self) -> Offset {
        self.header + ATTEMPT
    }

    fn is_valid(self, stamp: u64) -> bool {
        stamp != 0 && self.results.result(stamp >> 32) == self.result(stamp as u32)
    }

    /// Returns the attempt since which all are committed, including the last.
    fn since(self) -> u32 {
        let last = self.word(ATTEMPT);
        if last == 0 || self.is_valid(last) {
            (self.word(SINCE) as u32).max(1)
        } else {
            self.attempts().saturating_add(1)
        }
    }

    /// Counts `unit` in this table as a new attempt: `add` [adds](Table::add) the unit's keys. The
    /// caller must own the table's place and hold the unit's task. Returns the unit's result. The
    /// counts of the attempt become valid when the caller commits this result. If the table does
    /// not exist, creates it with `1 << log2` entries.
    ///
    /// # Errors
    /// If the heap is full, or `add` fails. The counts of the attempt are then never valid.
    ///
    /// # Crash
    /// The counts of the attempt are never valid.
    pub fn attempt<'m, E: From<TableError>>(
        self,
        blocks: Blocks<'m, M>,
        log2: u32,
        unit: u64,
        add: impl FnOnce(&mut Table<'m, M>) -> Result<(), E>,
    ) -> Result<u64, E> {
        let mut table = Table::open(self, blocks, log2)?;
        table.begin(unit);
        add(&mut table)?;
        Ok(table.result())
    }

    /// Returns the number of attempts so far, over all owners.
    pub fn attempts(self) -> u32 {
        self.word(ATTEMPT) as u32
    }

    /// Returns the number of units that this table has committed.
    pub fn committed(self) -> u32 {
        let mine = |unit: &u64| Self::committer(self.results.result(*unit)) == Some(self.number);
        (0..self.results.count()).filter(mine).count() as u32
    }

    /// Returns the unit of the last attempt, if that was not committed.
    pub fn attempting(self) -> Option<u64> {
        let last = self.word(ATTEMPT);
        (last != 0 && !self.is_valid(last)).then_some(last >> 32)
    }

    /// Returns the total of the entry at `at`.
    fn total(self, at: Offset) -> Option<u64> {
        let load = |place| self.memory.load::<u64>(at + place, Ordering::Relaxed);
        SLOTS
            .iter()
            .map(|slot| (load(slot + STAMP), slot))
            .filter(|(stamp, _)| self.is_valid(*stamp))
            .max_by_key(|(stamp, _)| *stamp as u32)
            .map(|(_, slot)| load(*slot))
    }

    /// Calls `each` with the hash, key and total of every counted key with a hash that begins with
    /// the `bits` bits of `part`. Call it only when all units are done and no worker counts any
    /// more.
    pub fn each_in(self, part: u64, bits: u32, mut each: impl FnMut(u64, &[u8], u64)) {
        let block = self.word(BLOCK);
        if block == 0 {
            return;
        }
        let (block, log2) = (Offset::from_raw(block), self.word(LOG2) as u32);
        let capacity = 1u64 << log2;
        // The entries whose home is in this part, and the run into which they may have been pushed.
        let home = |part: u64| ((u128::from(part) << log2) >> bits) as u64;
        let (start, end) = (home(part), home(part + 1));
        let mut key = Vec::new();
        for index in start..start + capacity {
            let at = block + (index & (capacity - 1)) * ENTRY;
            let meta: u64 = self.memory.load(at + META, Ordering::Relaxed);
            if meta == 0 {
                if index >= end {
                    break;
                }
                continue;
            }
            if bits > 0 && meta >> (64 - bits) != part {
                continue;
            }
            if let Some(total) = self.total(at) {
                self.read_key(at, meta, &mut key);
                each(meta & !LEN_MASK, &key, total);
            }
        }
    }

    fn read_key(self, at: Offset, meta: u64, key: &mut Vec<u8>) {
        let len = (meta & LEN_MASK) as usize;
        key.clear();
        key.resize(len, 0);
        let from = if len <= INLINE {
            at + KEY
        } else {
            Offset::from_raw(self.memory.load(at + KEY, Ordering::Relaxed))
        };
        self.memory.copy_out(from, key);
    }
}

/// A worker's open table, for counting.
#[derive(Debug)]
pub struct Table<'m, M: Memory = Native> {
    place: Place<M>,
    blocks: Blocks<'m, M>,
    entries: Offset,
    mask: u64,
    /// The shift that turns a hash into an index.
    shift: u32,
    used: u64,
    /// From this attempt on, all before the current one are committed.
    #[doc(hidden)]
    pub since: u32,
    /// The stamp of the current attempt; 0 before the first.
    #[doc(hidden)]
    pub now: u64,
}

impl<'m, M: Memory> Table<'m, M> {
    /// The size of a table's header in bytes.
    pub const HEADER: u64 = 128;
    /// The longest key in bytes.
    pub const LONGEST: usize = LEN_MASK as usize;

    /// Returns the bytes of the entries of a table with space for `keys` keys.
    pub const fn bytes_for(keys: u64) -> u64 {
        // At most three quarters full.
        (keys * 4 / 3 + 1).next_power_of_two() * ENTRY
    }

    /// Opens the table at `place`, or creates it with `1 << log2` entries if it does not exist. The
    /// caller must own the place and `blocks`; only the owner may write to the table. Opening an
    /// existing table takes a few loads, so it can be opened for each unit.
    ///
    /// # Errors
    /// If the heap is full.
    ///
    /// # Crash
    /// The table is unchanged, or a new empty one.
    pub fn open(place: Place<M>, blocks: Blocks<'m, M>, log2: u32) -> Result<Self, TableError> {
        if place.word(NEXT) != 0 {
            // A predecessor died while the table grew.
            blocks.free_from(place.header + NEXT)?;
            place.memory.crash_point(GrowPoint::CellCleared);
        }
        let mut table = Self {
            place,
            blocks,
            entries: Offset::new(0),
            mask: 0,
            shift: 0,
            used: place.word(USED),
            since: place.since(),
            now: 0,
        };
        if place.word(BLOCK) == 0 {
            table.move_to(log2.clamp(2, 40))?;
        }
        table.look();
        Ok(table)
    }

    fn look(&mut self) {
        let log2 = self.place.word(LOG2) as u32;
        self.entries = Offset::from_raw(self.place.word(BLOCK));
        self.mask = (1 << log2) - 1;
        self.shift = 64 - log2;
    }

    /// Begins an attempt at `unit`, whose task the caller holds. The previous attempt has been
    /// committed or never will be, and the table was opened since.
    fn begin(&mut self, unit: u64) {
        assert!(unit < 1 << 32, "a unit number is below 2^32");
        let attempt = self.place.attempts().checked_add(1);
        self.now = stamp(unit, attempt.expect("fewer than 2^32 attempts at units"));
        // SINCE is written first: if a death cuts in between, it covers no attempt.
        self.place.set(SINCE, self.since.into());
        self.place.set(ATTEMPT, self.now);
        self.place.memory.crash_point(CountPoint::Begun);
    }

    /// Returns the result by which the current attempt is committed.
    pub fn result(&self) -> u64 {
        self.place.result(self.now as u32)
    }

    /// Combines `value` into the total of `key`, as part of the current attempt. Wait-free unless
    /// the table grows.
    ///
    /// # Errors
    /// If the heap is full, or the key is too long.
    #[inline(always)]
    pub fn add(
        &mut self,
        key: Key<'_>,
        value: u64,
        combine: impl Fn(u64, u64) -> u64,
    ) -> Result<(), TableError> {
        let hash = key.hash(self.place.seed);
        let meta = hash & !LEN_MASK | key.len() as u64 & LEN_MASK;
        let mut index = hash >> self.shift;
        loop {
            let at = self.entries + (index & self.mask) * ENTRY;
            let found: u64 = self.place.memory.load(at + META, Ordering::Relaxed);
            if found == meta && self.is_at(at, &key) {
                self.touch(at, value, combine);
                return Ok(());
            }
            if found == 0 {
                return self.insert(index, meta, key, value);
            }
            index += 1;
        }
    }

    #[inline(always)]
    fn is_at(&self, at: Offset, key: &Key<'_>) -> bool {
        let memory = self.place.memory;
        if key.len() <= INLINE {
            let word = |i: u64| memory.load::<u64>(at + (KEY + i * 8), Ordering::Relaxed);
            let [a, b, c] = key.words;
            return (word(0) ^ a) | (word(1) ^ b) | (word(2) ^ c) == 0;
        }
        self.is_long_at(at, key)
    }

    #[cold]
    fn is_long_at(&self, at: Offset, key: &Key<'_>) -> bool {
        let memory = self.place.memory;
        let stands: u64 = memory.load(at + KEY, Ordering::Relaxed);
        let mut from = Offset::from_raw(stands);
        let mut there = [0; 256];
        key.long.chunks(256).all(|chunk| {
            memory.copy_out(from, &mut there[..chunk.len()]);
            from = from + 256;
            there[..chunk.len()] == *chunk
        })
    }

    #[inline(always)]
    fn touch(&self, at: Offset, value: u64, combine: impl Fn(u64, u64) -> u64) {
        let memory = self.place.memory;
        let load = |place| memory.load::<u64>(at + place, Ordering::Relaxed);
        let store = |place, word: u64| memory.store(at + place, word, Ordering::Relaxed);
        let stamps = SLOTS.map(|slot| load(slot + STAMP));
        for (slot, stamp) in SLOTS.into_iter().zip(stamps) {
            if stamp == self.now {
                store(slot, combine(load(slot), value));
                return;
            }
        }
        let valid = stamps.map(|stamp| if self.holds(stamp) { stamp as u32 } else { 0 });
        let total = usize::from(valid[1] > valid[0]);
        let value = if valid[total] == 0 {
            value
        } else {
            combine(load(SLOTS[total]), value)
        };
        let other = SLOTS[1 - total];
        store(other, value);
        memory.crash_point(CountPoint::Valued);
        store(other + STAMP, self.now);
        memory.crash_point(CountPoint::Stamped);
    }

    /// Returns whether a stamp other than the current attempt's is valid.
    #[inline(always)]
    fn holds(&self, stamp: u64) -> bool {
        stamp as u32 >= self.since || self.place.is_valid(stamp)
    }

    #[cold]
    fn insert(
        &mut self,
        mut index: u64,
        meta: u64,
        key: Key<'_>,
        value: u64,
    ) -> Result<(), TableError> {
        if key.len() > Self::LONGEST {
            return Err(TableError::TooLong { len: key.len() });
        }
        if (self.used + 1) * 4 > (self.mask + 1) * 3 {
            let log2 = self.place.word(LOG2) as u32;
            self.move_to(log2 + 1)?;
            self.look();
            index = self.free_index(self.entries, self.mask, meta >> self.shift);
        }
        let words = if key.len() <= INLINE {
            key.words
        } else {
            [self.keep(key.long)?.raw(), 0, 0]
        };
        let memory = self.place.memory;
        let at = self.entries + (index & self.mask) * ENTRY;
        let store = |place, word: u64| memory.store(at + place, word, Ordering::Relaxed);
        for (word, place) in words.into_iter().zip([KEY, KEY + 8, KEY + 16]) {
            store(place, word);
        }
        // The other slot was never written: before it can be found, an entry is written only here.
        store(SLOTS[0], value);
        store(SLOTS[0] + STAMP, self.now);
        memory.crash_point(CountPoint::KeyWritten);
        store(META, meta);
        memory.crash_point(CountPoint::Inserted);
        self.used += 1;
        // One too low if the worker dies in between, which delays the next growth by one key.
        self.place.set(USED, self.used);
        Ok(())
    }
}

/// Returns the blocks that the table at `place` holds, for checks of the heap.
pub fn blocks_of<M: Memory>(place: Place<M>) -> Vec<Offset> {
    let mut blocks: Vec<Offset> = [BLOCK, NEXT, ARENA]
        .map(|at| Offset::from_raw(place.word(at)))
        .into_iter()
        .filter(|block| !block.is_null())
        .collect();
    let mut arena = place.word(ARENA);
    while arena != 0 {
        arena = place
            .memory
            .load(Offset::from_raw(arena), Ordering::Relaxed);
        if arena != 0 {
            blocks.push(Offset::from_raw(arena));
        }
    }
    blocks
}
