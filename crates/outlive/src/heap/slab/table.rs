//! The table of slab metadata, with an entry for each 32 KiB of the region.
//!
//! ```text
//!  0x000  owner      the instance whose slab this is, or 0: no slab
//!  0x008  class      the size class of its blocks
//!  0x010  owed       two words: blocks of the buddy allocator that start here and are to be freed
//!  0x020  next, before   its neighbours in the ring of its owner's slabs (the owner's own memory aids)
//!  0x080  local      bits of allocated blocks: written by the owner alone
//!  0x180  remote     bits of blocks that other members have freed
//! ```
//!
//! The words that the owner writes constantly and those that others write are on lines, and on
//! pairs of lines, of their own; the payload is elsewhere.

use super::class::{Class, WORDS};
use super::{SLAB, UNIT};
use outlive_memory::{Memory, Offset, Ordering};

/// The distance between entries in bytes.
pub(in crate::heap) const STRIDE: u64 = 0x280;
const CLASS: u64 = 0x08;
const OWED: u64 = 0x10;
const NEXT: u64 = 0x20;
const BEFORE: u64 = 0x28;
const LOCAL: u64 = 0x80;
const REMOTE: u64 = LOCAL + WORDS * 8;
const _: () = assert!(REMOTE + WORDS * 8 == STRIDE);

/// The table of slab metadata of a heap.
#[derive(Clone, Copy, Debug)]
pub(in crate::heap) struct Table<M: Memory> {
    pub(in crate::heap) memory: M,
    at: Offset,
    region: Offset,
    bytes: u64,
}

/// An entry of a heap's table and the part of the region that it describes. Never past the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::heap) struct Slab(u32);

impl Slab {
    #[inline(always)]
    pub(in crate::heap) fn index(self) -> u32 {
        self.0
    }
}

/// Returns `at`, a word that the memory is known to have, so that the following access omits the
/// check.
///
/// # Safety
/// The memory [has](Memory::has_word) the word.
#[inline(always)]
pub(super) unsafe fn there<M: Memory>(memory: M, at: Offset) -> Offset {
    // SAFETY: the caller guarantees it.
    unsafe { core::hint::assert_unchecked(memory.has_word::<u64>(at)) };
    at
}

/// A word of local bits in an entry of a heap's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::heap) struct LocalWord(Offset);

impl<M: Memory> Table<M> {
    /// Returns the table at `at` for the region of `bytes` bytes at `region`.
    ///
    /// # Panics
    /// If the table is not inside the memory. After this check, accesses to its entries need no
    /// other one.
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

    /// Returns the size in bytes of the table for a region of `bytes`.
    pub(in crate::heap) fn bytes(bytes: u64) -> u64 {
        bytes.div_ceil(SLAB) * STRIDE
    }

    /// Returns the number of entries.
    pub(in crate::heap) fn count(&self) -> u32 {
        self.bytes.div_ceil(SLAB) as u32
    }

    /// Returns entry `index`, if it exists.
    pub(in crate::heap) fn slab(&self, index: u64) -> Option<Slab> {
        (index < u64::from(self.count())).then_some(Slab(index as u32))
    }

    /// Iterates over all entries.
    pub(in crate::heap) fn all(&self) -> impl Iterator<Item = Slab> + use<M> {
        (0..self.count()).map(Slab)
    }

    /// Returns the distance of `block` from the start of the region, if it is inside.
    #[inline(always)]
    pub(in crate::heap) fn within(&self, block: Offset) -> Option<u64> {
        let from = block.raw().wrapping_sub(self.region.raw());
        (from < self.bytes).then_some(from)
    }

    /// Returns the entry for the byte at distance `from` from the start of the region.
    ///
    /// # Panics
    /// If `from` is beyond the region.
    #[inline(always)]
    pub(in crate::heap) fn slab_of(&self, from: u64) -> Slab {
        assert!(from < self.bytes, "{from:#x} is beyond the region");
        Slab((from / SLAB) as u32)
    }

    /// Returns the start of a slab.
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

    /// Returns the owed word for the block of the buddy allocator at distance `from` in the region.
    pub(in crate::heap) fn owed(&self, from: u64) -> Offset {
        // The last slab may be half a slab. The second owed word of its entry then stands for no
        // block, and is checked too.
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

    /// Returns the owner word of a slab.
    #[inline(always)]
    pub(in crate::heap) fn owner_word(&self, slab: Slab) -> u64 {
        // SAFETY: `new` has checked every entry.
        let at = unsafe { there(self.memory, self.owner(slab)) };
        // Relaxed: a thread that may free a block of the slab learnt of the block after the word
        // was written, and only the caller makes a slab the caller's.
        self.memory.load(at, Ordering::Relaxed)
    }

    /// Returns the class word of a slab.
    #[inline(always)]
    pub(in crate::heap) fn class_word(&self, slab: Slab) -> u64 {
        // SAFETY: as above.
        let at = unsafe { there(self.memory, self.class(slab)) };
        // Relaxed: as above.
        self.memory.load(at, Ordering::Relaxed)
    }

    /// Returns the word that has the local bit of block `block` of the slab.
    #[inline(always)]
    pub(in crate::heap) fn local_word(&self, slab: Slab, block: u64) -> LocalWord {
        // The remainder: a word of the slab, whatever the block.
        LocalWord(self.local(slab, block / 64 % WORDS))
    }

    /// Returns the local bits of the word: the allocated blocks.
    #[inline(always)]
    pub(in crate::heap) fn allocated(&self, word: LocalWord) -> u64 {
        // SAFETY: `new` has checked every entry, and the word is in one.
        let at = unsafe { there(self.memory, word.0) };
        // Relaxed: only the owner writes it.
        self.memory.load(at, Ordering::Relaxed)
    }

    /// Writes the local bits of the word.
    #[inline(always)]
    pub(in crate::heap) fn set_allocated(&self, word: LocalWord, bits: u64) {
        // SAFETY: as above.
        let at = unsafe { there(self.memory, word.0) };
        // Release: after the preceding stores.
        self.memory.store(at, bits, Ordering::Release);
        self.memory.persist(at, 8);
    }

    /// Returns the remote bits for the word: the blocks that others have freed.
    #[inline(always)]
    pub(in crate::heap) fn freed_by_others(&self, word: LocalWord) -> u64 {
        // SAFETY: as above; each word of local bits has one of remote bits.
        let at = unsafe { there(self.memory, word.0 + (REMOTE - LOCAL)) };
        // Relaxed: the bit serves to refuse a second free of a block that another instance has
        // freed. An instance that frees a block which it was given knows of no such free.
        self.memory.load(at, Ordering::Relaxed)
    }

    /// Returns the first word of the slab's bits with a free block, cyclically from `word` on.
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

    /// Returns the class of a slab, if its class word is valid.
    #[inline(always)]
    pub(in crate::heap) fn class_of(&self, slab: Slab) -> Option<Class> {
        // Relaxed: it was written before the slab got its owner, and is constant while the slab has
        // blocks.
        Class::checked(self.memory.load(self.class(slab), Ordering::Relaxed))
    }

    /// Returns the next slab in the ring.
    pub(in crate::heap) fn next(&self, slab: Slab) -> Option<Slab> {
        self.neighbour(slab, NEXT)
    }

    /// Returns the previous slab in the ring.
    pub(in crate::heap) fn before(&self, slab: Slab) -> Option<Slab> {
        self.neighbour(slab, BEFORE)
    }

    fn neighbour(&self, slab: Slab, which: u64) -> Option<Slab> {
        // Relaxed: only the owner uses it.
        let index: u64 = self
            .memory
            .load(self.owner(slab) + which, Ordering::Relaxed);
        self.slab(index)
    }

    /// Makes `after` follow `slab` in the ring.
    pub(in crate::heap) fn join(&self, slab: Slab, after: Slab) {
        let (first, second) = (self.owner(slab) + NEXT, self.owner(after) + BEFORE);
        // Relaxed: only the owner uses it, and no thread relies on it after the owner's death.
        self.memory
            .store(first, u64::from(after.0), Ordering::Relaxed);
        self.memory
            .store(second, u64::from(slab.0), Ordering::Relaxed);
    }

    /// Returns whether no block of the slab is allocated, as its owner or adopter sees it.
    pub(in crate::heap) fn is_empty(&self, slab: Slab, class: Class) -> bool {
        (0..class.words()).all(|word| {
            // Relaxed: the caller's own word.
            self.memory
                .load::<u64>(self.local(slab, word), Ordering::Relaxed)
                == 0
        })
    }

    /// Returns the first word of the slab's bits with a free block.
    pub(in crate::heap) fn word_with_room(&self, slab: Slab, class: Class) -> Option<u64> {
        (0..class.words()).find(|&word| self.has_room(slab, class, word))
    }

    /// Returns whether one word of the slab's bits has a free block.
    pub(in crate::heap) fn has_room(&self, slab: Slab, class: Class, word: u64) -> bool {
        // Relaxed: the caller's own word.
        let bits: u64 = self.memory.load(self.local(slab, word), Ordering::Relaxed);
        !bits & class.mask(word) != 0
    }
}
