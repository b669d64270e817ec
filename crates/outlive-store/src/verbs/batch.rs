//! A batch of verbs and its local buffer.

use core::fmt;
use core::ops::{Add, Range};

/// The number of bytes of a word: the unit of offsets, lengths and atomicity.
pub(crate) const WORD: u64 = 8;

/// An offset in bytes into the [region](super::Region) of a memory server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RemoteOffset(u64);

impl RemoteOffset {
    /// Returns the offset `bytes`.
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    /// Returns the offset in bytes.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl Add<u64> for RemoteOffset {
    type Output = Self;

    fn add(self, bytes: u64) -> Self {
        Self(self.0.wrapping_add(bytes))
    }
}

impl fmt::Display for RemoteOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// The kind of a verb, with the operands of the atomics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerbKind {
    /// Copies remote words to the local buffer.
    Read,
    /// Copies words of the local buffer to the remote region.
    Write,
    /// Writes `new` if the remote word is `expected`; the previous word goes to the local buffer.
    CompareSwap {
        /// The word that is replaced.
        expected: u64,
        /// The word that replaces it.
        new: u64,
    },
    /// Adds to the remote word, wrapping; the previous word goes to the local buffer.
    FetchAdd {
        /// The summand.
        add: u64,
    },
}

/// A posted verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verb {
    /// The operation of the verb.
    pub kind: VerbKind,
    /// The start of the remote words.
    pub at: RemoteOffset,
    /// Whether the verb waits for all earlier verbs of its connection, and later verbs for it.
    pub is_fenced: bool,
    /// The index of the first word in the local buffer.
    local: u32,
    /// The number of words.
    words: u32,
}

impl Verb {
    /// Returns the number of remote words.
    pub fn words(&self) -> u64 {
        self.words.into()
    }

    /// Returns the indices of the verb's words in the [local buffer](Batch::buffer).
    pub fn local(&self) -> Range<usize> {
        let start = self.local as usize;
        start..start + self.words as usize
    }
}

/// The position of a verb's result in the local buffer of its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    local: u32,
    words: u32,
}

/// Verbs for one connection in posting order, with the local buffer that holds the words to write
/// and receives those that are read.
///
/// Posting moves a batch into the connection, and its completion returns it, so its buffer cannot
/// change or be freed in between. A [cleared](Self::clear) batch keeps its allocations for reuse.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    verbs: Vec<Verb>,
    buffer: Vec<u64>,
    is_fenced: bool,
}

impl Batch {
    /// Returns an empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Removes all verbs, and keeps the allocations.
    pub fn clear(&mut self) {
        self.verbs.clear();
        self.buffer.clear();
        self.is_fenced = false;
    }

    /// Appends a READ of `words` words at `at`.
    ///
    /// # Panics
    /// If a batch would have 2^32 words.
    pub fn read(&mut self, at: RemoteOffset, words: usize) -> Slot {
        let start = self.buffer.len();
        self.buffer.resize(start + words, 0);
        self.push(VerbKind::Read, at, start)
    }

    /// Appends a WRITE of `words` at `at`.
    ///
    /// # Panics
    /// If a batch would have 2^32 words.
    pub fn write(&mut self, at: RemoteOffset, words: &[u64]) {
        let start = self.buffer.len();
        self.buffer.extend_from_slice(words);
        self.push(VerbKind::Write, at, start);
    }

    /// Appends a CAS: writes `new` at `at` if the word there is `expected`. Its
    /// [value](Self::value) is the previous word: the CAS took effect if and only if that is
    /// `expected`.
    ///
    /// # Panics
    /// If a batch would have 2^32 words.
    pub fn compare_swap(&mut self, at: RemoteOffset, expected: u64, new: u64) -> Slot {
        self.atomic(VerbKind::CompareSwap { expected, new }, at)
    }

    /// Appends an FAA: adds `add` to the word at `at`. Its [value](Self::value) is the previous
    /// word.
    ///
    /// # Panics
    /// If a batch would have 2^32 words.
    pub fn fetch_add(&mut self, at: RemoteOffset, add: u64) -> Slot {
        self.atomic(VerbKind::FetchAdd { add }, at)
    }

    /// Makes the next verb wait until all earlier verbs of its connection have taken effect. Later
    /// verbs wait for it.
    pub fn fence(&mut self) {
        self.is_fenced = true;
    }

    fn atomic(&mut self, kind: VerbKind, at: RemoteOffset) -> Slot {
        let start = self.buffer.len();
        self.buffer.push(0);
        self.push(kind, at, start)
    }

    fn push(&mut self, kind: VerbKind, at: RemoteOffset, start: usize) -> Slot {
        let end = u32::try_from(self.buffer.len()).expect("fewer than 2^32 words in a batch");
        let local = start as u32;
        let words = end - local;
        self.verbs.push(Verb {
            kind,
            at,
            is_fenced: core::mem::take(&mut self.is_fenced),
            local,
            words,
        });
        Slot { local, words }
    }

    /// Returns the words that the READ of `slot` read, once the batch is complete.
    ///
    /// # Panics
    /// If `slot` is not inside the buffer of this batch, because it belongs to another batch.
    pub fn words(&self, slot: Slot) -> &[u64] {
        let start = slot.local as usize;
        &self.buffer[start..start + slot.words as usize]
    }

    /// Returns the previous word of the CAS or FAA of `slot`, or the first word of a READ, once the
    /// batch is complete.
    ///
    /// # Panics
    /// Panics under the same conditions as [`words`](Self::words), and if `slot` is that of a READ
    /// of no words.
    pub fn value(&self, slot: Slot) -> u64 {
        self.words(slot)[0]
    }

    /// Returns the verbs in posting order.
    pub fn verbs(&self) -> &[Verb] {
        &self.verbs
    }

    /// Returns the number of verbs.
    pub fn len(&self) -> usize {
        self.verbs.len()
    }

    /// Returns whether there are no verbs.
    pub fn is_empty(&self) -> bool {
        self.verbs.is_empty()
    }

    /// Returns the local buffer, for backends.
    pub fn buffer(&self) -> &[u64] {
        &self.buffer
    }

    /// Returns the verbs, and the local buffer to execute them on, for backends.
    pub fn parts(&mut self) -> (&[Verb], &mut [u64]) {
        (&self.verbs, &mut self.buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_holds_for_the_next_verb_only() {
        let mut batch = Batch::new();
        batch.read(RemoteOffset::new(0), 3);
        batch.fence();
        batch.write(RemoteOffset::new(8), &[1, 2]);
        batch.write(RemoteOffset::new(8), &[3]);
        let fenced: Vec<_> = batch.verbs().iter().map(|verb| verb.is_fenced).collect();
        assert_eq!(fenced, [false, true, false]);
        assert_eq!(batch.verbs()[2].local(), 5..6);
    }

    #[test]
    fn a_cleared_batch_is_empty_and_keeps_its_memory() {
        let mut batch = Batch::new();
        batch.write(RemoteOffset::new(0), &[7; 100]);
        batch.fence();
        let room = batch.buffer.capacity();
        batch.clear();
        assert!(batch.is_empty());
        let slot = batch.fetch_add(RemoteOffset::new(0), 1);
        assert_eq!(batch.value(slot), 0);
        assert!(!batch.verbs()[0].is_fenced);
        assert_eq!(batch.buffer.capacity(), room);
    }
}
