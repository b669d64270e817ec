//! The lines that a core waits for.

use crate::line::LineAddress;

/// The tick is not known.
pub(super) const PENDING: u64 = u64::MAX;

/// A line that a core has requested from its node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Miss {
    pub line: LineAddress,
    /// Whether it is to be written.
    pub write: bool,
    /// The tick at which the miss began.
    pub since: u64,
    /// The tick at which it ends; [`PENDING`] for shared memory.
    pub until: u64,
}

/// The misses under way: as many as the L1 and the L2 have entries for.
#[derive(Clone, Debug)]
pub(super) struct Misses {
    entries: Vec<Miss>,
    most: usize,
}

impl Misses {
    pub fn new(most: usize) -> Misses {
        Misses {
            entries: Vec::with_capacity(most),
            most,
        }
    }

    pub fn find(&mut self, line: LineAddress) -> Option<&mut Miss> {
        self.entries.iter_mut().find(|miss| miss.line == line)
    }

    pub fn remove(&mut self, line: LineAddress) {
        self.entries.retain(|miss| miss.line != line);
    }

    pub fn clear(&mut self) {
        self.entries.clear();
    }

    /// Returns whether an entry is free at `tick`.
    pub fn has_room(&mut self, tick: u64) -> bool {
        if self.entries.len() == self.most {
            self.entries.retain(|miss| miss.until > tick);
        }
        self.entries.len() < self.most
    }

    pub fn push(&mut self, miss: Miss) {
        debug_assert!(self.entries.len() < self.most);
        self.entries.push(miss);
    }

    /// Returns the first tick at which a miss ends, if it is known.
    pub fn next_end(&self) -> Option<u64> {
        let ends = self.entries.iter().map(|miss| miss.until);
        ends.min().filter(|until| *until != PENDING)
    }

    /// Returns the number of misses for shared memory.
    pub fn shared(&self) -> usize {
        let shared = self.entries.iter().filter(|miss| miss.until == PENDING);
        shared.count()
    }
}
