//! Checks the lists of retired blocks.

use super::retired::blocks_by_cell;
use super::{BIRTH, Heap};
use crate::membership::InstanceId;
use crate::recovery::{Log, Logs};
use core::fmt;
use outlive_memory::{Memory, Offset, Ordering};
use std::collections::BTreeSet;

/// A fault in the list of blocks that an id has retired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadRetired {
    /// The id that the list belongs to.
    pub id: InstanceId,
    /// The offset of the word that leads there.
    pub at: Offset,
    /// The value of the word.
    pub word: u64,
    /// The reason why the entry is invalid.
    pub why: &'static str,
}

impl fmt::Display for BadRetired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, at, word, why } = self;
        write!(
            f,
            "the list of retired blocks of id {id} leads from {at} to {word:#x}, {why}"
        )
    }
}

impl<M: Memory> Heap<M> {
    /// Iterates over the blocks that the owner of `log` has retired, or left to its successors, and
    /// that are not freed yet. A live owner may have changed its list since it was read.
    pub fn retired(self, log: Log<M>) -> impl Iterator<Item = Offset> {
        blocks_by_cell(self.memory(), log).map_while(|(_, found)| found.ok())
    }

    /// Returns the faults in the lists of retired blocks. The heap must be quiescent: concurrent
    /// changes may look like faults.
    pub fn check_retired(self, logs: Logs<M>) -> Vec<BadRetired> {
        let (memory, mut wrong, mut seen) = (self.memory(), Vec::new(), BTreeSet::new());
        for id in 0..logs.capacity() {
            for (at, found) in blocks_by_cell(memory, logs.of(id)) {
                let (word, why) = match found {
                    Err(word) => (word, "which cannot be a block"),
                    Ok(block) if !seen.insert(block) => (block.raw(), "which is already in a list"),
                    Ok(block) if !self.is_allocated(block) => {
                        (block.raw(), "where no block is allocated")
                    }
                    // An era in the future: the block would never be freed, or too early.
                    Ok(block)
                        if memory.load::<u64>(block + BIRTH, Ordering::Relaxed)
                            > self.present_era() =>
                    {
                        (
                            block.raw(),
                            "whose era of birth is later than the present one",
                        )
                    }
                    Ok(_) => continue,
                };
                wrong.push(BadRetired { id, at, word, why });
                break;
            }
        }
        wrong
    }

    /// Returns whether an allocated block starts there.
    fn is_allocated(&self, block: Offset) -> bool {
        use crate::heap::slab::SLAB;
        let (memory, table) = (self.memory(), &self.table);
        let Some(from) = table.within(block) else {
            return false;
        };
        let slab = table.slab_of(from);
        if memory.load::<u64>(table.owner(slab), Ordering::Relaxed) == 0 {
            return self.buddy().allocated_at(block).is_some();
        }
        table.class_of(slab).is_some_and(|class| {
            let index = class.block_of(from % SLAB);
            let (word, bit) = (index / 64, 1u64 << (index % 64));
            let bits = |at| memory.load::<u64>(at, Ordering::Relaxed);
            index < u64::from(class.count)
                && index * u64::from(class.size) == from % SLAB
                && bits(table.local(slab, word)) & !bits(table.remote(slab, word)) & bit != 0
        })
    }
}
