//! A worker's own table of counts, in shared memory, whose counts of a unit are committed by one word.
//!
//! Every *place* of the pool of workers has one ([slot](outlive_tasks::slot)): its owners go on with the same table, one after
//! the other, whoever they are. While a worker works on a unit it counts straight into the table with plain stores. When it is
//! done, the compare-and-swap that makes the unit's [result](crate::mapreduce::results) makes all these counts valid at once;
//! if it dies before, none of them ever is.
//!
//! # How
//!
//! An *attempt* is one worker's work on one unit. A table numbers its attempts from 1 on, over all
//! owners; a *stamp* is a unit and the number of an attempt at it. A unit's result names the table and the
//! attempt that committed it. So a stamp is *valid* if and only if the result of its unit names this table and its
//! attempt: nothing but that one word decides it, and it decides once.
//!
//! An entry has two slots, a value and a stamp each. At most one of them is ever being written:
//!
//! ```text
//!  entry:   hash, length | value, stamp | value, stamp | the key, or where it stands       64 bytes
//! ```
//!
//! * The entry's *total* is the value in the slot with the highest valid attempt (0 if there is none).
//! * The first time that an attempt meets a key, it writes the total, combined with the new value, into
//!   the *other* slot, and its stamp into that slot. From then on it changes that slot.
//!
//! # Why it is right
//!
//! *What is valid is never written.* The slot with the total keeps its value until an attempt is committed whose
//! stamp stands in the other one. That attempt's stores are then over: a worker begins the next attempt
//! only after the commit (or after it gave the attempt up), and whoever takes over begins one with a number of its own.
//!
//! *An attempt counts whole or not at all.* All its slots have its stamp, and become valid together. A slot
//! that holds an abandoned attempt's stamp never becomes valid: its number is not used again, since every attempt
//! goes on above the number that stands in the header, and it stood there before the first
//! slot was stamped. The unit is counted again by another attempt, here or in another table. The same for an attempt whose worker
//! lives: a task that fails in the middle of one is tried again, in an attempt of its own.
//!
//! *So a dead worker's table loses nothing and counts nothing twice.* What its owner had committed is valid, and stays so; it is
//! reduced whether or not the table has another owner. What it had begun is not, and never will be.
//!
//! *Whether a stamp is valid* says the result of its unit. Most are asked for without that: the header says since which
//! attempt all but the last have been committed, which is so whoever made them. It moves, before another attempt begins,
//! when the last one was not.
//!
//! *The value before the stamp, or after?* It does not matter: a slot is looked at only through its stamp's validity,
//! and by its own attempt; and a slot whose stamp is still an old valid one is the lower of two valid ones, or
//! was never met: while its value is overwritten, the total is the other's. (Were it the only valid
//! slot, it would be the total's, which is not written.)
//!
//! *New keys.* An entry is found by its first word, which is written last. An entry without it is empty
//! whatever else it holds. One whose attempt died has a key and no valid slot: total 0.
//!
//! *Growth.* A larger block is allocated into a cell of the header, filled, and put in place of the old one by one
//! redo transaction that also frees the old one. A death before it leaves the block in the cell, to be
//! freed by the next owner. Long keys stand in an arena, blocks in a chain, which grows by a
//! transaction too.
//!
//! *Orderings.* One thread at a time writes a table: the owner of its place. Its stores are relaxed; the result's
//! compare-and-swap releases them, and whoever has seen the end of the job has acquired them. The next
//! owner acquires them with the place, or with the raised generation; the dead one's log was settled before he had the place.
//! Growth that its attempt did not outlive is seen by whoever
//! took its unit over, who had settled the dead one's log before, and so by all after that one's commit.
//!
//! | death | what is left | what follows |
//! | --- | --- | --- |
//! | while an attempt counts | slots with a stamp that is never valid | the unit is counted again |
//! | while a key is inserted | an empty entry, some bytes of the arena | they are used over, or lost with the table |
//! | while the table grows | a block in the header's cell | it is freed when the table is opened |
//! | in the transaction | nothing, or a committed log | recovery carries it out before anybody goes on |

mod grow;

use crate::key::{INLINE, Key};
use crate::mapreduce::results::Results;
use outlive::heap::buddy::{AllocateError, Buddy, FreeError};
use outlive::membership::Member;
use outlive::memory::{Memory, Native, Offset, Ordering};
use outlive::recovery::Recoverers;

outlive::memory::crash_points! {
    /// Where the counting of a unit may be cut short.
    pub enum CountPoint for "table.count" {
        /// The attempt has a number.
        Begun,
        /// A key is written, nobody finds it.
        KeyWritten,
        /// A new key is there.
        Inserted,
        /// A slot has a value and not yet its stamp.
        Valued,
        /// A slot has the attempt's stamp.
        Stamped,
    }
}

outlive::memory::crash_points! {
    /// Where the growth of a table may be cut short.
    pub enum GrowPoint for "table.grow" {
        /// The new block is in the header's cell.
        Allocated,
        /// It is filled.
        Filled,
        /// It is the table.
        Swapped,
        /// The arena has a new block.
        ArenaGrown,
        /// What a predecessor left in the cell is freed.
        CellCleared,
    }
}

/// Why something was not counted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// A block could not be had.
    #[error(transparent)]
    Allocate(#[from] AllocateError),
    /// A block could not be given back.
    #[error(transparent)]
    Free(#[from] FreeError),
    /// A key is longer than a table can name.
    #[error("a key of {len} bytes: the longest is {} bytes", Table::<Native>::LONGEST)]
    TooLong {
        /// How long it is.
        len: usize,
    },
}

/// A member's way to large blocks.
#[derive(Debug)]
pub struct Blocks<'m, M: Memory = Native> {
    /// The allocator.
    pub buddy: Buddy<M>,
    /// Who allocates.
    pub member: &'m Member<M>,
    /// Who recovers what the dead held.
    pub recoverers: &'m Recoverers<M>,
}

impl<M: Memory> Clone for Blocks<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<M: Memory> Copy for Blocks<'_, M> {}

impl<M: Memory> Blocks<'_, M> {
    /// See [`Buddy::allocate_into`].
    ///
    /// # Errors
    /// As there.
    pub fn allocate_into(&self, bytes: u64, cell: Offset) -> Result<Offset, AllocateError> {
        self.buddy
            .allocate_into(self.member, self.recoverers, bytes, cell)
    }

    /// See [`Buddy::free_from`].
    ///
    /// # Errors
    /// As there.
    pub fn free_from(&self, cell: Offset) -> Result<Offset, FreeError> {
        self.buddy.free_from(self.member, self.recoverers, cell)
    }
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
/// All attempts from this one to before the last are committed.
const SINCE: u64 = 56;

// An entry.
const ENTRY: u64 = 64;
const META: u64 = 0;
const SLOTS: [u64; 2] = [8, 24];
const STAMP: u64 = 8;
const KEY: u64 = 40;

const LEN_BITS: u32 = 24;
const LEN_MASK: u64 = (1 << LEN_BITS) - 1;

/// What stands before the keys in a block of the arena: the block before it, and how long it is.
const ARENA_HEAD: u64 = 16;
const ARENA_BLOCK: u64 = 64 << 10;

/// A unit and the number of an attempt at it.
fn stamp(unit: u64, attempt: u32) -> u64 {
    unit << 32 | u64::from(attempt)
}

/// Where the table of one worker is, and what tells its valid counts.
#[derive(Clone, Copy, Debug)]
pub struct Place<M: Memory = Native> {
    /// The memory.
    pub memory: M,
    /// The header: [`Table::HEADER`] zeroed bytes at first, aligned to 64.
    pub header: Offset,
    /// Which table it is, from 0.
    pub number: u32,
    /// What has become of the units that are counted.
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

    /// The result of a unit that this table's `attempt` has committed.
    fn result(self, attempt: u32) -> u64 {
        (u64::from(self.number) + 1) << 32 | u64::from(attempt)
    }

    /// Which table committed the unit with this result.
    pub fn committer(result: u64) -> Option<u32> {
        ((result >> 32) as u32).checked_sub(1)
    }

    /// The cell of a block for the table to grow into.
    pub(crate) fn next_at(self) -> Offset {
        self.header + NEXT
    }

    fn is_valid(self, stamp: u64) -> bool {
        stamp != 0 && self.results.result(stamp >> 32) == self.result(stamp as u32)
    }

    /// Since which attempt all are committed, the last one too.
    fn since(self) -> u32 {
        let last = self.word(ATTEMPT);
        if last == 0 || self.is_valid(last) {
            (self.word(SINCE) as u32).max(1)
        } else {
            self.attempts().saturating_add(1)
        }
    }

    /// Counts `unit` in this table, whose place the caller owns, as holder of the unit's task: `add` [adds](Table::add) what the
    /// unit has. Returns the unit's result, by which this attempt is committed. A new table has `1 << log2` entries.
    ///
    /// # Errors
    /// If there is no room; what `add` says. The attempt never counts, then.
    ///
    /// # Crash
    /// The attempt never counts.
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

    /// How many attempts there have been, over all owners.
    pub fn attempts(self) -> u32 {
        self.word(ATTEMPT) as u32
    }

    /// How many units this table has committed.
    pub fn committed(self) -> u32 {
        let mine = |unit: &u64| Self::committer(self.results.result(*unit)) == Some(self.number);
        (0..self.results.count()).filter(mine).count() as u32
    }

    /// The unit of the last attempt, if that was not committed.
    pub fn attempting(self) -> Option<u64> {
        let last = self.word(ATTEMPT);
        (last != 0 && !self.is_valid(last)).then_some(last >> 32)
    }

    /// The total of the entry at `at`.
    fn total(self, at: Offset) -> Option<u64> {
        let load = |place| self.memory.load::<u64>(at + place, Ordering::Relaxed);
        SLOTS
            .iter()
            .map(|slot| (load(slot + STAMP), slot))
            .filter(|(stamp, _)| self.is_valid(*stamp))
            .max_by_key(|(stamp, _)| *stamp as u32)
            .map(|(_, slot)| load(*slot))
    }

    /// Calls `each` with the hash, key and total of all that was counted and whose hash begins with the `bits` bits
    /// of `part`. For when nobody counts any more, and all units are done.
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

/// A worker's table, to count in.
#[derive(Debug)]
pub struct Table<'m, M: Memory = Native> {
    place: Place<M>,
    blocks: Blocks<'m, M>,
    entries: Offset,
    mask: u64,
    /// How far a hash is shifted to be an index.
    shift: u32,
    used: u64,
    /// From this attempt on, all before the present one are committed.
    since: u32,
    /// The stamp of the present attempt; 0 before the first.
    now: u64,
}

impl<'m, M: Memory> Table<'m, M> {
    /// The size of a table's header in bytes.
    pub const HEADER: u64 = 128;
    /// The longest key in bytes.
    pub const LONGEST: usize = LEN_MASK as usize;

    /// How many bytes the entries of a table with room for `keys` keys take.
    pub const fn bytes_for(keys: u64) -> u64 {
        // Three quarters full at most.
        (keys * 4 / 3 + 1).next_power_of_two() * ENTRY
    }

    /// Opens the table at `place` for the owner of the place, whom `blocks` belong to: the only one that may
    /// write to it. A new table has `1 << log2` entries. It takes a few loads: tables are opened for each unit.
    ///
    /// # Errors
    /// If there is no room.
    ///
    /// # Crash
    /// The table stays as it is, or is a new one.
    pub fn open(place: Place<M>, blocks: Blocks<'m, M>, log2: u32) -> Result<Self, TableError> {
        if place.word(NEXT) != 0 {
            // A predecessor died while it grew.
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

    /// Begins an attempt at `unit`, whose task the caller holds. The attempt before has been committed, or never will be; the table
    /// was opened since.
    fn begin(&mut self, unit: u64) {
        assert!(unit < 1 << 32, "a table stamps 2^32 units");
        let attempt = self.place.attempts().checked_add(1);
        self.now = stamp(unit, attempt.expect("2^32 attempts at units"));
        // First what says of which attempts all are committed: cut short in between, it says it of none.
        self.place.set(SINCE, self.since.into());
        self.place.set(ATTEMPT, self.now);
        self.place.memory.crash_point(CountPoint::Begun);
    }

    /// Wrong: goes on under the number of the attempt before. For the proof that sees it.
    pub(crate) fn begin_again(&mut self) {
        let attempt = self.place.attempts().saturating_sub(1).max(1);
        self.now = stamp(self.now >> 32, attempt);
        self.place.set(ATTEMPT, self.now);
    }

    /// Wrong: forgets that there was an attempt. For the proof that sees it.
    pub(crate) fn forget(&self) {
        self.place.set(ATTEMPT, 0);
    }

    /// Wrong: takes all attempts for committed. For the proof that sees it.
    pub(crate) fn trust(&mut self) {
        self.since = 0;
    }

    /// The result by which the present attempt is committed.
    pub fn result(&self) -> u64 {
        self.place.result(self.now as u32)
    }

    /// Combines `value` into the total of `key`, as part of the present attempt. Wait-free unless the table grows.
    ///
    /// # Errors
    /// If there is no room, or the key is too long.
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

    /// Whether a stamp that is not the present one's is valid.
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
        // The other slot was never written: an entry that nobody finds is written here only.
        store(SLOTS[0], value);
        store(SLOTS[0] + STAMP, self.now);
        memory.crash_point(CountPoint::KeyWritten);
        store(META, meta);
        memory.crash_point(CountPoint::Inserted);
        self.used += 1;
        // Behind by one if we die in between, which moves the next growth by one.
        self.place.set(USED, self.used);
        Ok(())
    }
}

/// The blocks that the table at `place` holds: for checks of the heap.
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
