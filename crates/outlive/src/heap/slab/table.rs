//! Where the words about slabs stand: a table with an entry for each 32 KiB of the region.
//!
//! ```text
//!  0x000  owner      the instance whose slab this is, or 0: no slab
//!  0x008  class      what it is cut into
//!  0x010  owed       two words: blocks of the buddy allocator that start here and are to be freed
//!  0x020  next, before   its neighbours in the ring of its owner's slabs (the owner's own memory aids)
//!  0x080  local      bits of what is allocated: written by the owner alone
//!  0x180  remote     bits of what others have freed
//! ```
//!
//! What the owner writes all the time and what others write are on lines, and on pairs of lines, of their
//! own; the payload is elsewhere.

use super::class::{Class, WORDS};
use super::{SLAB, UNIT};
use outlive_memory::{Memory, Offset, Ordering};

/// How far apart entries are.
pub(in crate::heap) const STRIDE: u64 = 0x280;
const CLASS: u64 = 0x08;
const OWED: u64 = 0x10;
const NEXT: u64 = 0x20;
const BEFORE: u64 = 0x28;
const LOCAL: u64 = 0x80;
const REMOTE: u64 = LOCAL + WORDS * 8;
const _: () = assert!(REMOTE + WORDS * 8 == STRIDE);

/// The table.
#[derive(Clone, Copy, Debug)]
pub(in crate::heap) struct Table<M: Memory> {
    pub(in crate::heap) memory: M,
    at: Offset,
    region: Offset,
    bytes: u64,
}

/// An entry of a heap's table and the part of the region that it is about. Never beyond the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::heap) struct Slab(u32);

impl Slab {
    #[inline(always)]
    pub(in crate::heap) fn index(self) -> u32 {
        self.0
    }
}

/// A place of which it is known that the memory has a word there: the access that follows does not ask again.
///
/// # Safety
/// The memory [has](Memory::has_word) it.
#[inline(always)]
pub(super) unsafe fn there<M: Memory>(memory: M, at: Offset) -> Offset {
    // SAFETY: as the caller knows.
    unsafe { core::hint::assert_unchecked(memory.has_word::<u64>(at)) };
    at
}

/// A word of local bits of an entry of a heap's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::heap) struct LocalWord(Offset);

impl<M: Memory> Table<M> {
    /// The table at `at` about the `bytes` at `region`.
    ///
    /// # Panics
    /// If it is not in the memory: every word of every entry is, from then on.
    pub(in crate::heap) fn new(memory: M, at: Offset, region: Offset, bytes: u64) -> Self {
        let entries = Offset::checked(at.raw(), Self::bytes(bytes), 8, memory.size());
        assert!(entries.is_ok(), "a table at {at} is outside the memory");
        Self {
            memory,
            at,
            region,
            bytes,
        }
    }

    /// How many bytes the table for a region of `bytes` takes.
    pub(in crate::heap) fn bytes(bytes: u64) -> u64 {
        bytes.div_ceil(SLAB) * STRIDE
    }

    /// How many entries there are.
    pub(in crate::heap) fn count(&self) -> u32 {
        self.bytes.div_ceil(SLAB) as u32
    }

    /// Entry `index`, if there is one.
    pub(in crate::heap) fn slab(&self, index: u64) -> Option<Slab> {
        (index < u64::from(self.count())).then_some(Slab(index as u32))
    }

    /// All of them.
    pub(in crate::heap) fn all(&self) -> impl Iterator<Item = Slab> + use<M> {
        (0..self.count()).map(Slab)
    }

    /// How far into the region `block` is, if it is.
    #[inline(always)]
    pub(in crate::heap) fn within(&self, block: Offset) -> Option<u64> {
        let from = block.raw().wrapping_sub(self.region.raw());
        (from < self.bytes).then_some(from)
    }

    /// The entry for the byte so far into the region.
    ///
    /// # Panics
    /// If it is beyond the region.
    #[inline(always)]
    pub(in crate::heap) fn slab_of(&self, from: u64) -> Slab {
        assert!(from < self.bytes, "{from:#x} is beyond the region");
        Slab((from / SLAB) as u32)
    }

    /// Where a slab starts.
    #[inline(always)]
    pub(in crate::heap) fn start(&self, slab: Slab) -> Offset {
        self.region + u64::from(slab.0) * SLAB
    }

    #[inline(always)]
    pub(in crate::heap) fn owner(&self, slab: Slab) -> Offset {
        self.at + u64::from(slab.0) * STRIDE
    }

    #[inline(always)]
    pub(in crate::heap) fn class(&self, slab: Slab) -> Offset {
        self.owner(slab) + CLASS
    }

    /// The word for the block of the buddy allocator that starts so far into the region.
    pub(in crate::heap) fn owed(&self, from: u64) -> Offset {
        // The last slab may be half a slab: the second word of its entry is about nothing, and is looked at too.
        let slab = self.slab(from / SLAB).expect("it is in the region");
        self.owner(slab) + OWED + from % SLAB / UNIT * 8
    }

    #[inline(always)]
    pub(in crate::heap) fn local(&self, slab: Slab, word: u64) -> Offset {
        self.owner(slab) + LOCAL + word * 8
    }

    #[inline(always)]
    pub(in crate::heap) fn remote(&self, slab: Slab, word: u64) -> Offset {
        self.owner(slab) + REMOTE + word * 8
    }

    /// Whose slab it is, as its word has it.
    #[inline(always)]
    pub(in crate::heap) fn owner_word(&self, slab: Slab) -> u64 {
        // SAFETY: `new` has asked for every entry.
        let at = unsafe { there(self.memory, self.owner(slab)) };
        // Relaxed: whoever may free a block of it has learnt of the block after this was written, and nobody
        // but the caller makes a slab the caller's.
        self.memory.load(at, Ordering::Relaxed)
    }

    /// What it is cut into, likewise.
    #[inline(always)]
    pub(in crate::heap) fn class_word(&self, slab: Slab) -> u64 {
        // SAFETY: as above.
        let at = unsafe { there(self.memory, self.class(slab)) };
        // Relaxed: as above.
        self.memory.load(at, Ordering::Relaxed)
    }

    /// The word that has the local bit of block `block` of the slab.
    #[inline(always)]
    pub(in crate::heap) fn local_word(&self, slab: Slab, block: u64) -> LocalWord {
        // The remainder: a word of the slab's, whatever the block.
        LocalWord(self.local(slab, block / 64 % WORDS))
    }

    /// What is allocated, as the word has it.
    #[inline(always)]
    pub(in crate::heap) fn allocated(&self, word: LocalWord) -> u64 {
        // SAFETY: `new` has asked for every entry, and the word is one of an entry's.
        let at = unsafe { there(self.memory, word.0) };
        // Relaxed: the owner's alone.
        self.memory.load(at, Ordering::Relaxed)
    }

    /// Writes the word.
    #[inline(always)]
    pub(in crate::heap) fn set_allocated(&self, word: LocalWord, bits: u64) {
        // SAFETY: as above.
        let at = unsafe { there(self.memory, word.0) };
        // Release: after what came before.
        self.memory.store(at, bits, Ordering::Release);
        self.memory.persist(at, 8);
    }

    /// What others have freed of it.
    #[inline(always)]
    pub(in crate::heap) fn freed_by_others(&self, word: LocalWord) -> u64 {
        // SAFETY: as above; each word of local bits has one of remote bits.
        let at = unsafe { there(self.memory, word.0 + (REMOTE - LOCAL)) };
        // Relaxed: what a stranger has freed is not to be freed again; who frees a block that he has been given
        // knows of no such free.
        self.memory.load(at, Ordering::Relaxed)
    }

    /// The first word of the slab's bits that has a free block, from `word` on and round.
    pub(in crate::heap) fn next_with_room(
        &self,
        slab: Slab,
        class: Class,
        word: LocalWord,
    ) -> Option<u64> {
        let from = word.0.raw().wrapping_sub(self.local(slab, 0).raw()) / 8;
        let words = class.words();
        let round = (0..words).map(|step| (from % words + step) % words);
        round
            .into_iter()
            .find(|&word| self.has_room(slab, class, word))
    }

    /// The class of a slab, as far as it has a possible one.
    #[inline(always)]
    pub(in crate::heap) fn class_of(&self, slab: Slab) -> Option<Class> {
        // Relaxed: it was written before the slab got its owner, and is constant while it has blocks.
        Class::checked(self.memory.load(self.class(slab), Ordering::Relaxed))
    }

    /// The next slab in the ring.
    pub(in crate::heap) fn next(&self, slab: Slab) -> Option<Slab> {
        self.neighbour(slab, NEXT)
    }

    /// The slab before in the ring.
    pub(in crate::heap) fn before(&self, slab: Slab) -> Option<Slab> {
        self.neighbour(slab, BEFORE)
    }

    fn neighbour(&self, slab: Slab, which: u64) -> Option<Slab> {
        // Relaxed: the owner's alone.
        let index: u64 = self
            .memory
            .load(self.owner(slab) + which, Ordering::Relaxed);
        self.slab(index)
    }

    /// Makes `after` follow `slab`.
    pub(in crate::heap) fn join(&self, slab: Slab, after: Slab) {
        let (first, second) = (self.owner(slab) + NEXT, self.owner(after) + BEFORE);
        // Relaxed: the owner's alone, and nobody relies on it after its death.
        self.memory
            .store(first, u64::from(after.0), Ordering::Relaxed);
        self.memory
            .store(second, u64::from(slab.0), Ordering::Relaxed);
    }

    /// Whether no block of the slab is allocated, as its owner or adopter sees it.
    pub(in crate::heap) fn is_empty(&self, slab: Slab, class: Class) -> bool {
        (0..class.words()).all(|word| {
            // Relaxed: the caller's own.
            self.memory
                .load::<u64>(self.local(slab, word), Ordering::Relaxed)
                == 0
        })
    }

    /// The first word of the slab's bits that has a free block.
    pub(in crate::heap) fn word_with_room(&self, slab: Slab, class: Class) -> Option<u64> {
        (0..class.words()).find(|&word| self.has_room(slab, class, word))
    }

    /// Whether one word of the slab's bits has a free block.
    pub(in crate::heap) fn has_room(&self, slab: Slab, class: Class, word: u64) -> bool {
        // Relaxed: the caller's own.
        let bits: u64 = self.memory.load(self.local(slab, word), Ordering::Relaxed);
        !bits & class.mask(word) != 0
    }
}
