//! What stands for a line's contents.

use std::fmt::Debug;

/// Contents of a line, as a judge sees them.
pub trait Payload: Copy + Eq + Ord + Debug {
    /// What memory holds in the beginning.
    const INITIAL: Self;

    /// What the store with this number makes of a copy. Numbers rise with each store.
    fn written(self, number: u64) -> Self;

    /// What all other contents of the line are once somebody has stored. Real values stay what they are.
    fn overtaken(self) -> Self {
        self
    }

    /// Which word the store with this number writes; logs keep the latest of each.
    fn word(_number: u64) -> u64 {
        0
    }

    /// Whether [`overtaken`](Payload::overtaken) changes anything.
    const ABSTRACT: bool;
}

/// All that can matter of contents: whether they are what the last store has left.
///
/// The controllers never look at contents, so any run with real values is a run with these, and the other way round;
/// and a machine with these has finitely many states however many stores there are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Freshness {
    /// Somebody has stored since.
    Old,
    /// What the last store has left.
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

/// A line of eight words. A store changes one of them, so that a store into an old copy loses what others wrote
/// beside it.
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

/// A line of one word, which is the number of its last store.
impl Payload for u64 {
    const INITIAL: u64 = 0;
    const ABSTRACT: bool = false;

    fn written(self, number: u64) -> u64 {
        number
    }
}
