//! The tree of free blocks, and the two changes that are made to it, as redo records.
//!
//! A node is a block of `2^order` units. Its bit is set if it is free as a whole and its parent is
//! not (two free buddies are one free parent). A node that is neither free nor beneath a free one
//! is allocated, or an inner node; the sizes tell which. A nonzero word of bits is one bit in the
//! summary above it, so the first free block of an order is found by one load per level, at most
//! five. One more word has a bit for each order.
//!
//! An operation changes each word at most once, and never rereads what it has changed in an order.
//! So it reads the memory and not its own records, unless it shares a transaction with earlier
//! ones.

use super::error::CorruptTree;
use super::shape::{Level, MOST_LEVELS, Places, Shape};
use crate::recovery::{Redo, RedoError};
use outlive_memory::{Memory, Offset, Ordering, Word};

/// The reason why a change could not be made.
#[derive(Debug)]
pub(super) enum Broken {
    Corrupt(CorruptTree),
    Log(RedoError),
}

impl From<RedoError> for Broken {
    fn from(error: RedoError) -> Self {
        Self::Log(error)
    }
}

fn corrupt(at: Offset, what: &'static str) -> Broken {
    Broken::Corrupt(CorruptTree { at, what })
}

/// A change of the tree in progress.
pub(super) struct Change<'r, 'm, M: Memory> {
    memory: M,
    places: Places,
    shape: &'r Shape,
    redo: &'r mut Redo<'m, M>,
    /// Whether the transaction already has records, which then hide the memory.
    behind: bool,
    /// One bit for each order with a free block after the change.
    orders: u64,
}

impl<'r, 'm, M: Memory> Change<'r, 'm, M> {
    pub(super) fn new(
        memory: M,
        places: Places,
        shape: &'r Shape,
        redo: &'r mut Redo<'m, M>,
    ) -> Self {
        let mut change = Self {
            memory,
            places,
            shape,
            behind: !redo.is_empty(),
            redo,
            orders: 0,
        };
        change.orders = change.load(places.orders());
        change
    }

    /// Returns the order of the smallest free block of at least `order`, if there is one.
    pub(super) fn fitting(&self, order: u32) -> Option<u32> {
        let fit = self.orders >> order;
        (fit != 0).then(|| order + fit.trailing_zeros())
    }

    /// Returns the order of the largest free block.
    pub(super) fn largest(&self) -> Option<u32> {
        self.orders.checked_ilog2()
    }

    /// Returns the size byte of `unit`: the order of the block that starts there, plus one, or 0.
    pub(super) fn size(&self, unit: u64) -> u8 {
        self.load(self.places.size(self.shape, unit))
    }

    /// Takes a block of `order` out of the first free one of order `from`, which is at least
    /// `order`, and returns the unit at which it starts.
    pub(super) fn take(mut self, order: u32, from: u32) -> Result<u64, Broken> {
        if from >= self.shape.orders() {
            let what = "a free block is recorded for an order that does not exist";
            return Err(corrupt(self.places.orders(), what));
        }
        let mut block = self.first(from)?;
        self.clear(from, block)?;
        // The unused halves are those on the right: blocks stay near the start of the region.
        for half in (order..from).rev() {
            block <<= 1;
            self.set(half, block | 1)?;
        }
        let unit = block << order;
        let at = self.places.size(self.shape, unit);
        if self.load::<u8>(at) != 0 {
            return Err(corrupt(
                at,
                "the size byte of a free block says that it is allocated",
            ));
        }
        self.redo.store(at, order as u8 + 1)?;
        self.finish(|free| free.checked_sub(1 << order))?;
        Ok(unit)
    }

    /// Frees the block of `order` at `unit` and joins it with its free buddies.
    pub(super) fn give(mut self, unit: u64, order: u32) -> Result<(), Broken> {
        let at = self.places.size(self.shape, unit);
        self.redo.store(at, 0u8)?;
        let (mut block, mut at) = (unit >> order, order);
        while at + 1 < self.shape.orders() && self.is_free(at, block ^ 1) {
            self.clear(at, block ^ 1)?;
            block >>= 1;
            at += 1;
        }
        self.set(at, block)?;
        let units = self.shape.units();
        self.finish(|free| free.checked_add(1 << order).filter(|free| *free <= units))
    }

    #[inline(always)]
    fn load<W: Word>(&self, at: Offset) -> W {
        if self.behind {
            self.redo.load(at)
        } else {
            // Relaxed: the lock orders it.
            self.memory.load(at, Ordering::Relaxed)
        }
    }

    /// Returns whether the block `index` of `order` exists and is free as a whole.
    fn is_free(&self, order: u32, index: u64) -> bool {
        let blocks = self.shape.blocks(order);
        index < blocks.bits && {
            let word: u64 = self.load(self.places.word(blocks.first + index / 64));
            word & 1 << (index % 64) != 0
        }
    }

    /// Returns the first free block of `order`, which is said to have one.
    fn first(&self, order: u32) -> Result<u64, Broken> {
        let mut levels = [Level { first: 0, bits: 0 }; MOST_LEVELS];
        let mut count = 0;
        for (level, slot) in self.shape.levels(order).zip(&mut levels) {
            *slot = level;
            count += 1;
        }
        let mut index = 0;
        for level in levels[..count].iter().rev() {
            let at = self.places.word(level.first + index);
            let word: u64 = self.load(at);
            if word == 0 {
                return Err(corrupt(
                    at,
                    "the word is zero, although its summary bit is set",
                ));
            }
            index = index * 64 + u64::from(word.trailing_zeros());
            if index >= level.bits {
                return Err(corrupt(at, "a bit beyond the last block is set"));
            }
        }
        Ok(index)
    }

    /// Marks the block `index` of `order` as free. A summary above it changes only if the word
    /// below it was zero.
    fn set(&mut self, order: u32, mut index: u64) -> Result<(), Broken> {
        let mut level = Some(self.shape.blocks(order));
        let mut block = true;
        while let Some(here) = level {
            let (at, bit) = (self.places.word(here.first + index / 64), 1 << (index % 64));
            let word: u64 = self.load(at);
            if word & bit != 0 {
                let what = if block {
                    "the block is free already"
                } else {
                    "a summary bit is set, although the word below it was zero"
                };
                return Err(corrupt(at, what));
            }
            self.redo.store(at, word | bit)?;
            if word != 0 {
                return Ok(());
            }
            (index, level, block) = (index / 64, here.above(), false);
        }
        self.orders |= 1 << order;
        Ok(())
    }

    /// Marks the block `index` of `order` as not free. A summary above it changes only if the word
    /// below it becomes zero.
    fn clear(&mut self, order: u32, mut index: u64) -> Result<(), Broken> {
        let mut level = Some(self.shape.blocks(order));
        while let Some(here) = level {
            let (at, bit) = (self.places.word(here.first + index / 64), 1 << (index % 64));
            let word: u64 = self.load(at);
            if word & bit == 0 {
                return Err(corrupt(
                    at,
                    "a bit is clear, although a block or word below it is free",
                ));
            }
            self.redo.store(at, word & !bit)?;
            if word != bit {
                return Ok(());
            }
            (index, level) = (index / 64, here.above());
        }
        self.orders &= !(1 << order);
        Ok(())
    }

    fn finish(self, count: impl FnOnce(u64) -> Option<u64>) -> Result<(), Broken> {
        let (orders, at) = (self.places.orders(), self.places.free_units());
        if self.orders != self.load(orders) {
            self.redo.store(orders, self.orders)?;
        }
        let what = "the number of free units is impossible";
        let free = count(self.load(at)).ok_or_else(|| corrupt(at, what))?;
        self.redo.store(at, free)?;
        Ok(())
    }
}
