//! The step of an instance: one allocation or free of a block, recorded in its log's scratch area
//! before anything is done.

use super::WORDS;
use super::table::{Slab, Table, there};
use crate::heap::scratch;
use crate::membership::{Generations, Instance, Status};
use crate::recovery::Logs;
use outlive_memory::{Link, Memory, Offset, Ordering};

const CELL: u64 = 8;
const INSTEAD: u64 = 16;

/// The action of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(in crate::heap) enum Kind {
    /// Sets the block's bit, then writes the block into the cell.
    Allocate = 1,
    /// Replaces the block in the cell, then clears its bit: the slab is the instance's own.
    FreeOwn = 2,
    /// Replaces the block in the cell, then sets its remote bit.
    FreeRemote = 3,
    /// Replaces the block in the cell, then marks the buddy allocator's block as owed.
    Owe = 4,
}

/// A step as stored in the scratch area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::heap) struct Step {
    pub(in crate::heap) kind: Kind,
    pub(in crate::heap) block: Offset,
    pub(in crate::heap) cell: Offset,
    pub(in crate::heap) instead: u64,
}

/// The three words of a memory in which an instance records its steps.
#[derive(Clone, Copy, Debug)]
pub(in crate::heap) struct Place(Offset);

impl Place {
    /// Returns the place at `at` of `memory`, which it must be used with.
    ///
    /// # Panics
    /// If the memory does not have these words; an access would panic too.
    pub(in crate::heap) fn new<M: Memory>(memory: M, at: Offset) -> Self {
        let there = [at, at + CELL, at + INSTEAD].map(|word| memory.has_word::<u64>(word));
        assert_eq!(there, [true; 3], "a step at {at} is outside the memory");
        Self(at)
    }

    /// Returns the offset of the word that says whether there is a step.
    pub(in crate::heap) fn at(self) -> Offset {
        self.0
    }

    /// Records a step, before its first effect.
    #[inline(always)]
    pub(in crate::heap) fn begin<M: Memory>(self, memory: M, step: Step) {
        let at = self.0;
        // An offset has no tags.
        let what = step.block.raw() | Link::NULL.with_tags(step.kind as u8).to_word();
        // SAFETY: `new` has checked all three.
        let [at, cell, instead] =
            [at, at + CELL, at + INSTEAD].map(|word| unsafe { there(memory, word) });
        // Relaxed: these words count only once the word stored below says so.
        memory.store(cell, step.cell.raw(), Ordering::Relaxed);
        if step.kind != Kind::Allocate {
            memory.store(instead, step.instead, Ordering::Relaxed);
        }
        memory.persist(cell, 16);
        // Release: after the cell, and for collectors that read it.
        memory.store(at, what, Ordering::Release);
        memory.persist(at, 8);
    }

    /// Ends the step.
    #[inline(always)]
    pub(in crate::heap) fn end<M: Memory>(self, memory: M) {
        // SAFETY: `new` has checked it.
        let at = unsafe { there(memory, self.0) };
        // Release: after all effects of the step.
        memory.store(at, 0u64, Ordering::Release);
        memory.persist(at, 8);
    }
}

/// Returns the step at `at`, if there is one, or its invalid word as an error if it is damaged.
pub(in crate::heap) fn read<M: Memory>(memory: M, at: Offset) -> Result<Option<Step>, u64> {
    let word: u64 = memory.load(at, Ordering::Acquire);
    if word == 0 {
        return Ok(None);
    }
    let what = Link::from_word(word);
    let kind = match what.tags() {
        1 => Kind::Allocate,
        2 => Kind::FreeOwn,
        3 => Kind::FreeRemote,
        4 => Kind::Owe,
        _ => return Err(word),
    };
    Ok(Some(Step {
        kind,
        block: what.offset(),
        cell: Offset::from_raw(memory.load(at + CELL, Ordering::Relaxed)),
        instead: memory.load(at + INSTEAD, Ordering::Relaxed),
    }))
}

/// The steps of all ids. A collector must not hand out the blocks that they name.
#[derive(Clone, Copy, Debug)]
pub(in crate::heap) struct Steps<M: Memory> {
    pub(in crate::heap) logs: Logs<M>,
    pub(in crate::heap) generations: Generations<M>,
}

impl<M: Memory> Steps<M> {
    /// Returns the blocks that steps name now. A step that began before something that the caller
    /// has acquired is among them, unless it is over.
    ///
    /// The status of an id does not matter, only the word of its step: a thread that
    /// [revisits](crate::recovery::Recoverers::revisit) the log of an id that has left or is
    /// recovered frees the blocks which that id retired, and may die doing so. But an id that was
    /// never used has no step, and its log is not touched.
    fn blocks(self) -> impl Iterator<Item = Offset> {
        let ids = self.logs.capacity().min(self.generations.capacity());
        (0..ids).filter_map(move |id| {
            // Acquiring an effect of a step implies having acquired that its id was joined before.
            let state = self.generations.state(id);
            if state.is_ok_and(|state| state.status == Status::Free) {
                return None;
            }
            let at = scratch::step(self.logs.of(id));
            // Acquire: if the step is over, its effects are visible.
            let word: u64 = self.logs.memory().load(at, Ordering::Acquire);
            (word != 0).then(|| Link::from_word(word).offset())
        })
    }

    /// Returns whether a step names `block`.
    pub(in crate::heap) fn name(self, block: Offset) -> bool {
        self.blocks().any(|named| named == block)
    }

    /// Returns whether a step names a block of `slab`.
    pub(in crate::heap) fn name_any_of(self, table: &Table<M>, slab: Slab) -> bool {
        self.blocks()
            .filter_map(|block| table.within(block))
            .any(|from| table.slab_of(from) == slab)
    }

    /// Returns the blocks of `slab` that steps name, as bits.
    pub(in crate::heap) fn bits_of(self, table: &Table<M>, slab: Slab) -> [u64; WORDS as usize] {
        let mut bits = [0; WORDS as usize];
        let Some(class) = table.class_of(slab) else {
            return [u64::MAX; WORDS as usize];
        };
        for from in self.blocks().filter_map(|block| table.within(block)) {
            if table.slab_of(from) == slab {
                let index = class.block_of(from % super::SLAB);
                if let Some(word) = bits.get_mut((index / 64) as usize) {
                    *word |= 1 << (index % 64);
                }
            }
        }
        bits
    }
}

/// Returns the instance that the owner word of a slab names.
pub(in crate::heap) fn owner_of<M: Memory>(table: &Table<M>, slab: Slab) -> Option<Instance> {
    // Relaxed: the table of generations says, with acquire, whether the owner has departed. Every
    // thread that changes the word or relies on it holds the buddy allocator's lock.
    Instance::from_word(table.memory.load(table.owner(slab), Ordering::Relaxed))
}
