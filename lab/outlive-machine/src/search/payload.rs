//! Models of a line's contents.

use std::fmt::Debug;

/// The contents of a line, as a check sees them.
pub trait Payload: Copy + Eq + Ord + Debug {
    /// The initial contents of memory.
    const INITIAL: Self;

    /// Returns the copy after the store with this number. Numbers rise with each store.
    fn written(self, number: u64) -> Self;

    /// Returns the contents after a store to another copy of the line. Real values do not change.
    fn overtaken(self) -> Self {
        self
    }

    /// Returns the word that the store with this number writes; logs keep the latest entry of each.
    fn word(_number: u64) -> u64 {
        0
    }

    /// Whether [`overtaken`](Payload::overtaken) changes anything.
    const ABSTRACT: bool;
}

/// Whether contents are those of the last store: the only property that matters.
///
/// The controllers never look at contents, so any run with real values is a run with these, and
/// vice versa. With these a machine has finitely many states, for any number of stores.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Freshness {
    /// Contents from before the last store.
    Old,
    /// The contents of the last store.
    Last,
}

impl Payload for Freshness {
    const INITIAL: Freshness = Freshness::Last;
    const ABSTRACT: bool = true;

    fn written(self, _: u64) -> Freshness {
        Freshness::Last
    }

    fn overtaken(self) -> Freshness {
        Freshness::Old
    }
}

/// A line of eight words. A store changes one of them, so a store into an old copy loses the stores
/// of other nodes to the other words.
impl Payload for [u64; 8] {
    const INITIAL: [u64; 8] = [0; 8];
    const ABSTRACT: bool = false;

    fn written(mut self, number: u64) -> [u64; 8] {
        self[(number % 8) as usize] = number;
        self
    }

    fn word(number: u64) -> u64 {
        number % 8
    }
}

/// A line of one word, which holds the number of its last store.
impl Payload for u64 {
    const INITIAL: u64 = 0;
    const ABSTRACT: bool = false;

    fn written(self, number: u64) -> u64 {
        number
    }
}
