//! The entries of logs.

use std::fmt;

use crate::program::Word;
use crate::protocol::{Epoch, NodeId};

/// The origin of a store: a core of a compute node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Requester {
    /// The compute node.
    pub node: NodeId,
    /// Its core, from 0 to 63.
    pub core: u8,
}

impl fmt::Display for Requester {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} core {}", self.node, self.core)
    }
}

/// The number of a commit among all commits of its node, from 1. A node commits the stores of all
/// its cores one after the other, so this orders them, in every log alike. Several stores that were
/// coalesced are one commit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Commit(pub u32);

/// An entry of a log: one validated store to one word.
///
/// Node, commit and word name an update: two entries that agree in them are copies of one update.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LogEntry {
    /// The core that stored.
    pub requester: Requester,
    /// The store's place in the order of its node's commits.
    pub commit: Commit,
    /// The epoch at which the node owned the line.
    pub epoch: Epoch,
    /// The word, below [`WORDS`](Self::WORDS).
    pub word: Word,
    /// The stored value.
    pub value: u64,
}

impl LogEntry {
    /// The number of words that a log can address: an entry has 6 bytes for the number of its word,
    /// enough for 2 PiB.
    pub const WORDS: u64 = 1 << 48;
    /// The number of cores that a log can distinguish in each node.
    pub const CORES: u8 = 64;
}

/// An entry in the memory of the simulating host: 24 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Packed {
    /// From the lowest bit: word (48), core (6), node (5), stray (highest).
    place: u64,
    value: u64,
    epoch: u32,
    commit: u32,
}

const CORE: u32 = 48;
const NODE: u32 = 54;
const STRAY: u64 = 1 << 63;

impl Packed {
    /// Packs an entry. The unit has checked that the word and the core are in range.
    pub(super) fn new(entry: &LogEntry, stray: bool) -> Self {
        debug_assert!(entry.word.0 < LogEntry::WORDS && entry.requester.core < LogEntry::CORES);
        let mut place = entry.word.0
            | u64::from(entry.requester.core) << CORE
            | (entry.requester.node.index() as u64) << NODE;
        if stray {
            place |= STRAY;
        }
        Self {
            place,
            value: entry.value,
            epoch: entry.epoch.0,
            commit: entry.commit.0,
        }
    }

    pub(super) fn entry(&self) -> LogEntry {
        LogEntry {
            requester: Requester {
                node: NodeId::new((self.place >> NODE) as usize & 0x1f),
                core: (self.place >> CORE) as u8 & 0x3f,
            },
            commit: Commit(self.commit),
            epoch: Epoch(self.epoch),
            word: Word(self.place & (LogEntry::WORDS - 1)),
            value: self.value,
        }
    }

    /// Returns whether no other unit can be relied on to have the entry.
    pub(super) fn is_stray(&self) -> bool {
        self.place & STRAY != 0
    }

    pub(super) fn mark_stray(&mut self) {
        self.place |= STRAY;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_packed_is_what_was(node in 0..32usize, core in 0..64u8, commit: u32, epoch: u32, word in 0..LogEntry::WORDS, value: u64, stray: bool) {
            let requester = Requester { node: NodeId::new(node), core };
            let entry = LogEntry { requester, commit: Commit(commit), epoch: Epoch(epoch), word: Word(word), value };
            let mut packed = Packed::new(&entry, stray);
            prop_assert_eq!((packed.entry(), packed.is_stray()), (entry, stray));
            packed.mark_stray();
            prop_assert_eq!((packed.entry(), packed.is_stray()), (entry, true));
            prop_assert_eq!(size_of::<Packed>(), 24);
        }
    }
}
