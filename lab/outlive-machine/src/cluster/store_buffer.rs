//! Stores between their beginning and their commit: the store queue and the store buffer.

use std::collections::VecDeque;

use crate::line::{Line, LineAddress};
use crate::program::{BarrierId, ConditionId, EventCountId, LockId, Word};
use crate::protocol::Store as Replication;

/// The effect of the commit of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    Nothing,
    /// The lock is free.
    Unlock(LockId),
    /// The core's thread has tried to take the lock: it has it, or waits.
    Take(LockId),
    /// The core's thread has arrived at the barrier.
    Arrive(BarrierId),
    /// The thread that has waited longest for the condition may continue.
    Signal(ConditionId),
    /// All threads that wait for the condition may continue.
    Broadcast(ConditionId),
    /// The threads that wait at the barrier may continue.
    Open(BarrierId),
    /// The event count is advanced: not a store, but in its place among the stores.
    Advance(EventCountId),
}

impl Then {
    /// Returns whether the store is one of a lock, a barrier or a condition.
    pub fn is_of_synchronisation(self) -> bool {
        !matches!(self, Self::Nothing | Self::Advance(_))
    }
}

/// The size of the filter by which a word is looked up before any search: several times as large as
/// a store queue and a store buffer together, so that a load seldom searches in vain.
const FILTER: usize = 1024;

/// The mask of a store of a whole word.
pub(super) const ALL_BYTES: u8 = u8::MAX;

/// A store that has not retired.
#[derive(Clone, Copy, Debug)]
pub(super) struct Store {
    pub line: LineAddress,
    pub place: u8,
    /// The bytes of the word that it writes.
    pub bytes: u8,
    /// Whether it is to the thread's own memory: without a value.
    pub private: bool,
    pub value: u64,
    pub then: Then,
    /// Its group in the reorder buffer.
    pub number: u64,
    /// The tick from which the line is available, as far as the node itself provides it.
    pub ready: u64,
}

impl Store {
    pub fn word(&self) -> Word {
        Word(self.line.0 * Word::PER_LINE + u64::from(self.place))
    }

    /// Returns the bytes of the line that it writes.
    fn bytes_of_line(&self) -> u64 {
        u64::from(self.bytes) << (8 * u32::from(self.place))
    }
}

/// Retired stores to one line, to be committed together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub line: LineAddress,
    pub private: bool,
    /// The words that they write.
    pub words: u8,
    pub values: Line,
    pub then: Then,
    pub entered: u64,
    pub ready: u64,
    /// Nothing may join any more.
    pub sealed: bool,
    /// The progress of its replication, in a machine that replicates.
    pub replication: Replication,
    /// The tick from which it is the oldest with its line pinned, and waits to become durable.
    pub pinned_at: Option<u64>,
}

impl Entry {
    /// Returns an entry that writes nothing yet, and that nothing joins.
    fn of_its_own(line: LineAddress, then: Then, at: u64) -> Self {
        Self {
            line,
            private: true,
            words: 0,
            values: [0; 8],
            then,
            entered: at,
            ready: at,
            sealed: true,
            replication: Replication::default(),
            pinned_at: None,
        }
    }
}

/// The result of retiring the oldest store of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Retired {
    /// The buffer is full: it has not retired.
    NoRoom,
    /// It has joined the last entry.
    Joined {
        /// It is a store to shared memory.
        shared: bool,
    },
    /// It is an entry of its own.
    Entered,
}

/// The store queue (in the reorder buffer, not retired) and the store buffer (retired, not
/// committed) of a core. Loads search both.
#[derive(Clone, Debug)]
pub(super) struct StoreBuffer {
    queue: VecDeque<Store>,
    queue_size: usize,
    entries: VecDeque<Entry>,
    size: usize,
    /// The bytes of its line that the last entry writes.
    last_bytes: u64,
    /// Whether stores of shared words join; private ones always do.
    coalesces: bool,
    /// The number of stores of shared words that are here, by the low bits of their words: most
    /// loads need no further search.
    words: Box<[u32; FILTER]>,
    /// The number of entries that have been committed.
    committed: u64,
    /// For each REPL that may wait, by the low bits of its number, the number of entries before its
    /// own, including committed ones.
    replicated: Box<[u64]>,
    /// The tick of the last commit.
    pub last_commit: u64,
    /// The first entry's line has been requested, and is awaited.
    pub missing: bool,
}

impl StoreBuffer {
    pub fn new(queue_size: usize, size: usize, coalesces: bool) -> StoreBuffer {
        StoreBuffer {
            queue: VecDeque::with_capacity(queue_size),
            queue_size,
            entries: VecDeque::with_capacity(size),
            size,
            last_bytes: 0,
            coalesces,
            words: Box::new([0; FILTER]),
            committed: 0,
            replicated: vec![0; size.next_power_of_two()].into(),
            last_commit: 0,
            missing: false,
        }
    }

    /// Returns whether stores of shared words join.
    pub fn coalesces(&self) -> bool {
        self.coalesces
    }

    /// Returns whether the store queue is full.
    pub fn queue_is_full(&self) -> bool {
        self.queue.len() == self.queue_size
    }

    /// Adds a store that begins.
    pub fn begin(&mut self, store: Store) {
        if !store.private {
            self.words[store.word().0 as usize % FILTER] += 1;
        }
        self.queue.push_back(store);
    }

    /// Retires the oldest store of the queue at this tick. It joins the last entry if it writes
    /// other bytes of the same line, or becomes an entry of its own. (The paper says words, and its
    /// example has words of four bytes.)
    pub fn retire(&mut self, at: u64) -> Retired {
        let store = *self.queue.front().expect("a store retires once");
        let (bit, bytes) = (1 << store.place, store.bytes_of_line());
        if let Some(last) = self.entries.back_mut()
            && last.line == store.line
            && !last.sealed
            && store.then == Then::Nothing
            && (store.private || self.coalesces && self.last_bytes & bytes == 0)
        {
            self.last_bytes |= bytes;
            if !store.private && last.words & bit != 0 {
                // It was counted when the word was first stored, and is subtracted once.
                self.words[store.word().0 as usize % FILTER] -= 1;
            }
            last.words |= bit;
            last.values[store.place as usize] = store.value;
            last.ready = last.ready.max(store.ready);
            self.queue.pop_front();
            return Retired::Joined {
                shared: !store.private,
            };
        }
        if self.is_full() {
            return Retired::NoRoom;
        }
        self.queue.pop_front();
        self.last_bytes = bytes;
        let mut values = [0; 8];
        values[store.place as usize] = store.value;
        self.entries.push_back(Entry {
            private: store.private,
            words: bit,
            values,
            ready: store.ready,
            sealed: store.then != Then::Nothing,
            ..Entry::of_its_own(store.line, store.then, at)
        });
        Retired::Entered
    }

    /// Adds the write of a serialised operation: an entry of its own, which nothing joins.
    pub fn enter(&mut self, word: Word, value: u64, then: Then, at: u64) {
        debug_assert!(self.queue.is_empty() && !self.is_full());
        self.words[word.0 as usize % FILTER] += 1;
        let mut values = [0; 8];
        values[word.place()] = value;
        self.entries.push_back(Entry {
            words: 1 << word.place(),
            values,
            private: false,
            ..Entry::of_its_own(word.line(), then, at)
        });
    }

    /// Adds an entry that writes no line and only has the effect `then` when it is committed.
    pub fn enter_mark(&mut self, then: Then, at: u64) {
        debug_assert!(self.queue.is_empty() && !self.is_full());
        self.entries
            .push_back(Entry::of_its_own(LineAddress(0), then, at));
    }

    /// Undoes the write of an atomic that is not committed, and is the only store here.
    pub fn withdraw(&mut self) {
        let last_commit = self.last_commit;
        self.commit(0, last_commit);
        debug_assert!(self.is_empty());
    }

    /// Drops everything.
    pub fn clear(&mut self) {
        self.queue.clear();
        self.entries.clear();
        self.words.fill(0);
    }

    /// Returns the entry that came last.
    pub fn last(&self) -> Option<&Entry> {
        self.entries.back()
    }

    #[inline]
    pub fn front(&self) -> Option<&Entry> {
        self.entries.front()
    }

    pub fn front_mut(&mut self) -> Option<&mut Entry> {
        self.entries.front_mut()
    }

    /// Returns the tick at which the oldest entry, if its line is here, can commit: one a cycle.
    #[inline]
    pub fn due(&self, cycle: u64) -> Option<u64> {
        let head = self.entries.front()?;
        let due = (self.last_commit + cycle).max(head.entered).max(head.ready);
        (!self.missing && head.pinned_at.is_none()).then_some(due)
    }

    /// Returns the entry at a place, counted from the oldest.
    pub fn get(&self, place: usize) -> Option<&Entry> {
        self.entries.get(place)
    }

    pub fn get_mut(&mut self, place: usize) -> Option<&mut Entry> {
        self.entries.get_mut(place)
    }

    /// Records that the REPL `sequence` replicates the entry at `place`, counted from the oldest.
    pub fn replicate(&mut self, place: usize, sequence: u32) {
        let at = sequence as usize & (self.replicated.len() - 1);
        self.replicated[at] = self.committed + place as u64;
    }

    /// Returns the place of the entry whose REPL has this number.
    pub fn replicated_as(&self, sequence: u32) -> Option<usize> {
        let found = |entry: &Entry| entry.replication.sequence() == Some(sequence);
        let at = sequence as usize & (self.replicated.len() - 1);
        let place = self.replicated[at].wrapping_sub(self.committed) as usize;
        if self.entries.get(place).is_some_and(found) {
            return Some(place);
        }
        // It has been committed; or, in a broken machine, an entry before it that was not the
        // first.
        self.entries.iter().position(found)
    }

    /// Commits an entry at this tick. Only a broken machine commits another than the first.
    pub fn commit(&mut self, place: usize, at: u64) -> Option<Entry> {
        let entry = match place {
            0 => self.entries.pop_front()?,
            _ => self.entries.remove(place)?,
        };
        self.committed += 1;
        self.last_commit = at;
        self.missing = false;
        if !entry.private {
            let mut words = entry.words;
            while words != 0 {
                let word = entry.line.0 * Word::PER_LINE + u64::from(words.trailing_zeros());
                self.words[word as usize % FILTER] -= 1;
                words &= words - 1;
            }
        }
        Some(entry)
    }

    /// Returns the value that a load of the word, group `number` of the reorder buffer, gets from
    /// the youngest older store.
    #[inline]
    pub fn forward(&self, word: Word, number: u64) -> Option<u64> {
        if self.words[word.0 as usize % FILTER] == 0 {
            return None;
        }
        let (line, place) = (word.line(), word.place());
        let own = |store: &&Store| {
            store.number < number
                && !store.private
                && store.line == line
                && store.place as usize == place
        };
        if let Some(store) = self.queue.iter().rev().find(own) {
            return Some(store.value);
        }
        let has =
            |entry: &&Entry| entry.line == line && !entry.private && entry.words & 1 << place != 0;
        let entry = self.entries.iter().rev().find(has)?;
        Some(entry.values[place])
    }

    #[inline]
    pub fn is_full(&self) -> bool {
        self.entries.len() == self.size
    }

    /// Returns whether no store is under way.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.queue.is_empty()
    }

    /// Returns the number of entries of the store buffer.
    pub fn len(&self) -> usize {
        self.entries.len()
    }
}
