//! The layout of the words of a tree, which depends on the number of units only.
//!
//! ```text
//!  order 0:  one bit for each block of one unit          64 blocks a word
//!            its summary: one bit for each word above
//!            the summary's summary, and so on to a single word
//!  order 1:  one bit for each block of two units
//!            ...
//!  sizes:    one byte for each unit
//! ```

use crate::recovery::{Logs, Operation};
use outlive_memory::{Native, Offset};

/// The maximum number of orders of a tree, which allows 2^30 units.
pub(super) const MOST_ORDERS: usize = 31;
/// The maximum number of levels of the bits of one order: 64^5 is 2^30.
pub(super) const MOST_LEVELS: usize = 5;

/// The maximum number of words that one operation changes in the tree, its counters and the sizes.
///
/// An allocation clears one bit and sets at most one in each lower order; a free clears at most one
/// in each order but one and sets that one. A bit is changed with at most all of its summaries.
const MOST_CHANGES: usize = {
    let (mut order, mut words) = (0, 3);
    while order < MOST_ORDERS {
        let (mut bits, mut levels) = (1u64 << (MOST_ORDERS - 1 - order), 1);
        while bits > 64 {
            bits = bits.div_ceil(64);
            levels += 1;
        }
        words += levels;
        order += 1;
    }
    words
};

// With the cell, the result and the stamp, the largest operation fits into a redo log.
const _: () = assert!(MOST_CHANGES + 2 + Operation::RESULTS <= Logs::<Native>::RECORDS);

/// The geometry of a tree over a number of units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    units: u64,
    orders: u32,
    /// The first word of each order's bits, counted from the first of all.
    starts: [u32; MOST_ORDERS],
    words: u64,
}

/// The bits of one order on one level: the blocks themselves, or a summary of the level below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Level {
    /// Its first word, counted from the first of the tree.
    pub(super) first: u64,
    /// The number of its bits.
    pub(super) bits: u64,
}

impl Level {
    /// Returns the number of its words.
    #[inline(always)]
    pub(super) fn words(self) -> u64 {
        self.bits.div_ceil(64)
    }

    /// Returns the level that summarises it, unless it is a single word.
    #[inline(always)]
    pub(super) fn above(self) -> Option<Self> {
        let words = self.words();
        (words > 1).then_some(Self {
            first: self.first + words,
            bits: words,
        })
    }
}

impl Shape {
    /// Returns the shape of a tree over `units`, at least 1 and at most 2^30.
    pub(super) fn new(units: u64) -> Self {
        debug_assert!((1..=1 << (MOST_ORDERS - 1)).contains(&units));
        let mut shape = Self {
            units,
            orders: units.ilog2() + 1,
            starts: [0; MOST_ORDERS],
            words: 0,
        };
        for order in 0..shape.orders {
            shape.starts[order as usize] = shape.words as u32;
            shape.words += shape.levels(order).map(Level::words).sum::<u64>();
        }
        shape
    }

    /// Returns the number of units.
    #[inline(always)]
    pub(super) fn units(&self) -> u64 {
        self.units
    }

    /// Returns the number of orders; the largest block has `2^(orders - 1)` units.
    #[inline(always)]
    pub(super) fn orders(&self) -> u32 {
        self.orders
    }

    /// Returns the size of the metadata in bytes: words, then sizes.
    pub(super) fn bytes(&self) -> u64 {
        self.sizes() + self.units.next_multiple_of(64)
    }

    /// Returns the distance of the sizes from the first word in bytes.
    #[inline(always)]
    pub(super) fn sizes(&self) -> u64 {
        (self.words * 8).next_multiple_of(64)
    }

    /// Returns the bits of the blocks of `order`. Only whole blocks have one.
    #[inline(always)]
    pub(super) fn blocks(&self, order: u32) -> Level {
        Level {
            first: self.starts[order as usize].into(),
            bits: self.units >> order,
        }
    }

    /// Returns the blocks of `order` and their summaries, upwards.
    pub(super) fn levels(&self, order: u32) -> impl Iterator<Item = Level> {
        core::iter::successors(Some(self.blocks(order)), |level| level.above())
    }

    /// Returns the order of the smallest block that has `units`; the region has that many.
    #[inline(always)]
    pub(super) fn order_of(units: u64) -> u32 {
        units.max(1).next_power_of_two().trailing_zeros()
    }
}

/// The offsets of the metadata of a buddy allocator: a line for the lock, one for the header, one
/// for the counters, then the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Places(pub(super) Offset);

impl Places {
    pub(super) const TREE: u64 = 0xC0;

    pub(super) fn lock(self) -> Offset {
        self.0
    }
    pub(super) fn header(self) -> Offset {
        self.0 + 0x40
    }
    /// Returns the number of free units.
    #[inline(always)]
    pub(super) fn free_units(self) -> Offset {
        self.0 + 0x80
    }
    /// Returns the offset of the word with a bit for each order that has a free block.
    #[inline(always)]
    pub(super) fn orders(self) -> Offset {
        self.0 + 0x88
    }
    #[inline(always)]
    pub(super) fn word(self, index: u64) -> Offset {
        self.0 + (Self::TREE + index * 8)
    }
    /// Returns the size of the block that starts at `unit`: its order plus one, or 0 if none starts
    /// there.
    #[inline(always)]
    pub(super) fn size(self, shape: &Shape, unit: u64) -> Offset {
        self.0 + (Self::TREE + shape.sizes() + unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_end_in_one_word_and_do_not_overlap() {
        for units in (1..300).chain([4095, 4096, 4097, 1 << 20, (1 << 30) - 1, 1 << 30]) {
            let shape = Shape::new(units);
            let mut next = 0;
            for order in 0..shape.orders() {
                let levels: Vec<Level> = shape.levels(order).collect();
                assert!(levels.len() <= MOST_LEVELS);
                assert_eq!(levels[0].bits, units >> order);
                assert_eq!(levels.last().map(|level| level.words()), Some(1));
                for level in levels {
                    assert_eq!(level.first, next);
                    next += level.words();
                }
            }
            assert_eq!(next, shape.words);
            assert!(shape.sizes() >= next * 8);
        }
    }
}
