//! Recovery of a dead member's heap state: its step and its pending-allocation cells.

use super::slab::step::{self, owner_of};
use super::slab::{Kind, SLAB, Slab};
use super::{Heap, LocalHeap, reclaim, scratch};
use crate::recovery::{RecoverError, RecoverRoom, Recovering};
use outlive_memory::{Memory, Offset, Ordering};

outlive_memory::crash_points! {
    /// The crash points of the recovery of a dead instance's scratch area.
    pub enum HeapRecoverPoint for "heap.recover" {
        /// The effects of the step are settled; the step is still recorded.
        StepDone,
        /// There is no step.
        StepSettled,
        /// A pending-allocation cell is empty.
        HandEmptied,
        /// Other members are notified that there are slabs without an owner.
        Orphaned,
    }
}

/// The handler for the scratch areas of logs, for one heap.
pub(super) struct RoomOf<M: Memory>(pub(super) Heap<M>);

impl<M: Memory> RecoverRoom<M> for RoomOf<M> {
    fn settle(&self, dead: &Recovering<'_, M>) -> Result<(), RecoverError> {
        self.settle_step(dead)
    }

    fn release(&self, dead: &Recovering<'_, M>) -> Result<(), RecoverError> {
        let (heap, memory) = (self.0, self.0.memory);
        let way = LocalHeap::of_the_dead(heap, dead);
        for number in 0..scratch::PENDING_CELLS {
            let pending = way.pending_cell(number);
            // Relaxed: only the recovering thread uses it.
            if memory.load::<u64>(pending, Ordering::Relaxed) == 0 {
                continue;
            }
            if way.free_from(pending, 0).is_err() {
                // The value in the cell is not a block.
                memory.store(pending, 0u64, Ordering::Relaxed);
                memory.persist(pending, 8);
            }
            memory.crash_point(HeapRecoverPoint::HandEmptied);
        }
        reclaim::release(dead, heap);
        if memory.load::<u64>(scratch::tenant(dead.log()), Ordering::Relaxed) != 0 {
            // Relaxed: a hint; the table of generations says whether the owner has departed.
            memory.fetch_add(heap.orphans(), 1u64, Ordering::Relaxed);
        }
        memory.crash_point(HeapRecoverPoint::Orphaned);
        Ok(())
    }
}

impl<M: Memory> RoomOf<M> {
    /// Completes or undoes the step. All of it can be re-executed; the step is cleared last.
    fn settle_step(&self, dead: &Recovering<'_, M>) -> Result<(), RecoverError> {
        let (heap, memory) = (self.0, self.0.memory);
        let at = scratch::step(dead.log());
        let damaged = |what: &str| {
            RecoverError::Handler(format!(
                "the step of {} at {at} is damaged: {what}; run `outlive pod check`",
                dead.owner()
            ))
        };
        let noted = step::read(memory, at).map_err(|_| damaged("its kind is unknown"))?;
        let Some(step) = noted else {
            return Ok(());
        };
        if !memory.has_word::<u64>(step.cell) {
            return Err(damaged("its cell is not a word of this memory"));
        }
        let from = heap.table.within(step.block);
        let from = from.ok_or_else(|| damaged("its block is not in the region"))?;
        if step.kind != Kind::Allocate {
            // Release: as in the owner's store.
            memory.store(step.cell, step.instead, Ordering::Release);
            memory.persist(step.cell, 8);
        }
        if step.kind == Kind::Owe {
            heap.note_owed(from);
        } else {
            let slab = heap.table.slab_of(from);
            let class = heap.table.class_of(slab);
            let class = class.ok_or_else(|| damaged("its slab has no class"))?;
            // This may be one past the last block, which only damage lets an instance free: its bit
            // is a bit like others.
            let index = class.block_of(from % SLAB);
            self.settle_bit(dead, step, slab, index);
        }
        memory.crash_point(HeapRecoverPoint::StepDone);
        step::Place::new(memory, at).end(memory);
        memory.crash_point(HeapRecoverPoint::StepSettled);
        Ok(())
    }

    fn settle_bit(&self, dead: &Recovering<'_, M>, step: step::Step, slab: Slab, index: u64) {
        let (table, memory) = (&self.0.table, self.0.memory);
        let bit = 1u64 << (index % 64);
        if step.kind == Kind::FreeRemote {
            // Release: as in the owner's store. If it was set already, the collector has skipped
            // it.
            memory.fetch_or(table.remote(slab, index / 64), bit, Ordering::Release);
            memory.persist(table.remote(slab, index / 64), 8);
            return;
        }
        if owner_of(table, slab) != Some(dead.owner()) {
            // No instance takes the slab while the step names it; only damage leads here.
            return;
        }
        let at: Offset = table.local(slab, index / 64);
        // Relaxed: the dead instance's own word, so the recovering thread is its only writer.
        let local: u64 = memory.load(at, Ordering::Relaxed);
        let published = step.kind == Kind::Allocate
            && memory.load::<u64>(step.cell, Ordering::Relaxed) == step.block.raw();
        let settled = if published { local | bit } else { local & !bit };
        // Release: before the step is cleared.
        memory.store(at, settled, Ordering::Release);
        memory.persist(at, 8);
    }
}
