//! What a thread remembers of its slabs: aids, which can be lost at any time.

use super::slab::{CLASSES, Class, Inverse, LocalWord, Slab, Table};
use core::cell::Cell;
use outlive_memory::{Memory, Offset};

/// Of how many slabs a thread remembers what to divide by.
pub(super) const GUESSES: usize = 256;

/// No slab.
pub(super) const NONE: u64 = u64::MAX;

/// What a thread remembers of its slabs.
#[derive(Debug)]
pub(super) struct Aids {
    /// The slab of each class that blocks are taken from, and the word of its bits.
    pub(super) current: [Current; CLASSES],
    /// A slab of each class that was found empty and kept.
    pub(super) spare: [Cell<u64>; CLASSES],
    /// What one divides by in a slab, for some slabs, as it was last: a guess, used once it is known to be right.
    pub(super) inverses: [Cell<Inverse>; GUESSES],
    /// Whether the slabs of former ways of this member are in its rings.
    pub(super) resumed: Cell<bool>,
    /// Where to look for orphans next.
    pub(super) cursor: Cell<u64>,
    /// The hint about orphans when the present round began, and how much of the round is left.
    pub(super) round: Cell<(u64, u64)>,
    /// How far the look for what is owed has come.
    pub(super) debts: Cell<Debts>,
}

/// A round through all units in search of what is owed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Debts {
    /// How much had been owed, ever, when it began; 0 if there is none under way.
    pub(super) owed: u64,
    /// The unit to look at next.
    pub(super) next: u64,
    /// Whether it had to leave something.
    pub(super) left: bool,
}

/// A place to take blocks from: a word of a slab's bits, and what it is about.
///
/// Blocks are taken in the order in which they were free when the word was last looked at; what is freed meanwhile
/// waits until all of those are taken. So where the next block is does not hang on the free just before, and
/// the processor makes the two at the same time.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Current {
    pub(super) slab: Cell<u64>,
    pub(super) word: Cell<LocalWord>,
    /// Bits of the word that were clear, and that no block has been taken for since.
    pub(super) free: Cell<u64>,
    /// Where the block of its first bit starts.
    pub(super) first: Cell<Offset>,
    /// The bits that stand for blocks: none, if there is no slab.
    pub(super) mask: Cell<u64>,
    pub(super) size: Cell<u64>,
}

impl Aids {
    pub(super) fn new<M: Memory>(table: &Table<M>) -> Self {
        let any = table.slab(0).expect("a heap has a first slab");
        let any = table.local_word(any, 0);
        Self {
            current: core::array::from_fn(|_| Current {
                slab: Cell::new(NONE),
                word: Cell::new(any),
                free: Cell::new(0),
                first: Cell::new(Offset::new(0)),
                mask: Cell::new(0),
                size: Cell::new(0),
            }),
            spare: core::array::from_fn(|_| Cell::new(NONE)),
            inverses: core::array::from_fn(|_| Cell::new(Inverse::default())),
            resumed: Cell::new(false),
            cursor: Cell::new(0),
            round: Cell::new((0, 0)),
            debts: Cell::new(Debts::default()),
        }
    }
}

impl Current {
    /// No slab.
    pub(super) fn clear(&self) {
        self.slab.set(NONE);
        self.free.set(0);
        self.mask.set(0);
    }

    /// Word `word` of the bits of `slab`, which is of class `number`.
    pub(super) fn set<M: Memory>(&self, table: &Table<M>, slab: Slab, number: usize, word: u64) {
        let class = Class::get(number);
        let size = u64::from(class.size);
        self.slab.set(slab.index().into());
        self.word.set(table.local_word(slab, word * 64));
        // Looked at when a block is asked for.
        self.free.set(0);
        self.first.set(table.start(slab) + word * 64 * size);
        self.mask.set(class.mask(word));
        self.size.set(size);
    }
}
