//! A thread's cache of facts about its slabs, which can be lost at any time.

use super::slab::{CLASSES, Class, Inverse, LocalWord, Slab, Table};
use core::cell::Cell;
use outlive_memory::{Memory, Offset};

/// The number of slabs for which a thread remembers the divisor.
pub(super) const GUESSES: usize = 256;

/// The value that stands for no slab.
pub(super) const NONE: u64 = u64::MAX;

/// A thread's cache of facts about its slabs.
#[derive(Debug)]
pub(super) struct Aids {
    /// The slab of each class that blocks are taken from, and the word of its bits.
    pub(super) current: [Current; CLASSES],
    /// An empty slab of each class that was kept.
    pub(super) spare: [Cell<u64>; CLASSES],
    /// The last known divisor of some slabs. It is a guess, used once it is known to be right.
    pub(super) inverses: [Cell<Inverse>; GUESSES],
    /// Whether the slabs of this member's earlier heap handles are in its rings.
    pub(super) resumed: Cell<bool>,
    /// The table entry at which the search for orphans continues.
    pub(super) cursor: Cell<u64>,
    /// The orphan hint when the current round began, and the number of entries left in the round.
    pub(super) round: Cell<(u64, u64)>,
    /// The progress of the search for owed blocks.
    pub(super) debts: Cell<Debts>,
}

/// A round through all units in search of owed blocks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Debts {
    /// The count of owed blocks when the round began; 0 if no round is in progress.
    pub(super) owed: u64,
    /// The next unit to check.
    pub(super) next: u64,
    /// Whether an owed block had to be left.
    pub(super) left: bool,
}

/// A word of a slab's bits to take blocks from, and the facts needed for that.
///
/// Blocks are taken in the order in which they were free when the word was last read; blocks freed
/// later wait until all of those are taken. The address of the next block therefore does not depend
/// on the free just before, and the processor overlaps the two.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Current {
    pub(super) slab: Cell<u64>,
    pub(super) word: Cell<LocalWord>,
    /// Bits of the word that were clear and for which no block has been taken since.
    pub(super) free: Cell<u64>,
    /// The start of the block of its first bit.
    pub(super) first: Cell<Offset>,
    /// The bits that stand for blocks; none if there is no slab.
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
    /// Makes it stand for no slab.
    pub(super) fn clear(&self) {
        self.slab.set(NONE);
        self.free.set(0);
        self.mask.set(0);
    }

    /// Moves to word `word` of the bits of `slab`, which is of class `number`.
    pub(super) fn set<M: Memory>(&self, table: &Table<M>, slab: Slab, number: usize, word: u64) {
        let class = Class::get(number);
        let size = u64::from(class.size);
        self.slab.set(slab.index().into());
        self.word.set(table.local_word(slab, word * 64));
        // The word is read when a block is requested.
        self.free.set(0);
        self.first.set(table.start(slab) + word * 64 * size);
        self.mask.set(class.mask(word));
        self.size.set(size);
    }
}
