//! What can be wrong with lists of retired blocks.

use super::retired::blocks_by_cell;
use super::{BIRTH, Heap};
use crate::membership::InstanceId;
use crate::recovery::{Log, Logs};
use core::fmt;
use outlive_memory::{Memory, Offset, Ordering};
use std::collections::BTreeSet;

/// Something that is wrong with what an id has retired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadRetired {
    /// Whose list it is in.
    pub id: InstanceId,
    /// The word that leads there.
    pub at: Offset,
    /// What it holds.
    pub word: u64,
    /// Why that cannot be.
    pub why: &'static str,
}

impl fmt::Display for BadRetired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, at, word, why } = self;
        write!(
            f,
            "the retired blocks of id {id} lead from {at} to {word:#x}, {why}"
        )
    }
}

impl<M: Memory> Heap<M> {
    /// What the owner of `log` has retired, or left to its successors, and nobody has freed yet. What is
    /// seen of a live owner's may have changed since.
    pub fn retired(self, log: Log<M>) -> impl Iterator<Item = Offset> {
        blocks_by_cell(self.memory(), log).map_while(|(_, found)| found.ok())
    }

    /// What is wrong with the lists of retired blocks. For a quiescent heap; what others change meanwhile
    /// may look wrong.
    pub fn check_retired(self, logs: Logs<M>) -> Vec<BadRetired> {
        let (memory, mut wrong, mut seen) = (self.memory(), Vec::new(), BTreeSet::new());
        for id in 0..logs.capacity() {
            for (at, found) in blocks_by_cell(memory, logs.of(id)) {
                let (word, why) = match found {
                    Err(word) => (word, "which can be no block"),
                    Ok(block) if !seen.insert(block) => (block.raw(), "which was met before"),
                    Ok(block) if !self.is_allocated(block) => {
                        (block.raw(), "where no block is allocated")
                    }
                    // An era that has not come yet: the block would never be freed, or too early.
                    Ok(block)
                        if memory.load::<u64>(block + BIRTH, Ordering::Relaxed)
                            > self.present_era() =>
                    {
                        (block.raw(), "which says that it is born in a later era")
                    }
                    Ok(_) => continue,
                };
                wrong.push(BadRetired { id, at, word, why });
                break;
            }
        }
        wrong
    }

    /// Whether an allocated block starts there.
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
