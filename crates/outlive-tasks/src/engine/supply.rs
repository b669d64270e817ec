//! The allocation of descriptors, from chunks of the pod's heap that a slot never frees.
//!
//! ```text
//!  slot:   chunks -> chunk -> chunk          fresh: a chunk that is not linked yet
//!  chunk:  next, 120 unused bytes | descriptor | descriptor | …
//! ```
//!
//! Whether a descriptor is free is decided by its status: if its last life [is
//! over](crate::State::is_over), the owner of its slot may give it another one. A free list, linked
//! through the descriptors' own words, is private to that owner. A descriptor goes there
//! immediately if the owner itself completes the task. Those of tasks that thieves completed are
//! found by a scan of the chunks, one after the other, when the list is empty. If a scan of a few
//! chunks finds little, a new chunk is allocated. So a scan costs a few loads for each descriptor
//! it frees, and there are about twice as many descriptors as were ever in use at the same time.
//!
//! # Nothing leaks
//!
//! A chunk is allocated into the cell `fresh`, initialised, linked at the head of the list by one
//! store, and cleared from the cell. The slot's next owner finds the list and the cell. It also
//! finds the [new](crate::State::New) descriptors of a task that the last owner did not commit. It
//! frees them, and the blocks of their arguments, which were allocated into them.
//!
//! | death | state left | the next owner |
//! | --- | --- | --- |
//! | chunk allocated | a chunk in `fresh` | initialises and links it |
//! | chunk linked | the chunk is still in `fresh`, too | clears `fresh` |
//! | descriptor taken off the free list | a descriptor whose life is over | finds it |
//! | descriptor new, with or without a block | an orphan | frees it |

use crate::EngineError;
use crate::engine::descriptor::{Task, damaged};
use crate::engine::slot::{Slot, check_block};
use crate::engine::status::State;
use outlive::heap::LocalHeap;
use outlive::heap::buddy::AllocateError;
use outlive::memory::{Memory, Native, Offset, Ordering};

outlive::memory::crash_points! {
    /// Crash points of the creation of a chunk.
    pub enum ChunkPoint for "tasks.chunk" {
        /// The chunk is in its cell.
        Allocated,
        /// Its descriptors are free; it is not linked.
        Made,
        /// The chunk is in the list, and in the cell.
        Linked,
        /// The chunk is in the list only.
        Done,
    }
}

outlive::memory::crash_points! {
    /// Crash points of taking over a dead owner's chunks.
    pub enum AdoptPoint for "tasks.adopt" {
        /// The block of an orphan's arguments is free.
        Unblocked,
        /// An orphan is free.
        Freed,
    }
}

/// The size of a chunk's header in bytes.
const HEAD: u64 = 128;
/// The number of chunks that are scanned before a new one is allocated.
const LOOKS: u32 = 2;

/// The descriptors of one slot, as its owner manages them.
#[derive(Debug)]
pub struct Supply<M: Memory = Native> {
    memory: M,
    slot: Slot<M>,
    chunk: u64,
    /// The head of the free list, or 0.
    free: u64,
    /// The chunk to scan next; 0 for the first one.
    cursor: u64,
    /// Whether a descriptor was refused because it still had inputs.
    refused: bool,
}

impl<M: Memory> Supply<M> {
    /// Returns a supply without any chunk of `slot`.
    pub(crate) fn none(slot: Slot<M>, memory: M, chunk: u64) -> Self {
        Self {
            memory,
            slot,
            chunk,
            free: 0,
            cursor: 0,
            refused: false,
        }
    }

    /// Takes over the chunks of `slot`, of size `chunk`, as its new owner. Frees the children that
    /// the last owner's last task would have spawned: it has been committed or will be re-executed,
    /// and no worker is committing it.
    ///
    /// # Errors
    /// If the list is damaged.
    ///
    /// # Crash
    /// The next owner continues.
    pub fn adopt(slot: Slot<M>, heap: &LocalHeap<'_, M>, chunk: u64) -> Result<Self, EngineError> {
        let memory = heap.memory();
        let mut supply = Self::none(slot, memory, chunk);
        // Relaxed: acquired with the claim.
        match memory.load::<u64>(slot.fresh_at(), Ordering::Relaxed) {
            0 => {}
            fresh if fresh == slot.chunks() => supply.strike_out(),
            _ => drop(supply.link_fresh()?),
        }
        let mut at = slot.chunks();
        while at != 0 {
            let chunk = supply.checked(at)?;
            for task in supply.descriptors(chunk) {
                let status = task.status()?;
                if status.state() == State::New {
                    task.free_block(heap)?;
                    memory.crash_point(AdoptPoint::Unblocked);
                    task.set_status(status.with(State::Free));
                    memory.crash_point(AdoptPoint::Freed);
                }
            }
            at = supply.next_chunk(chunk);
        }
        Ok(supply)
    }

    fn checked(&self, word: u64) -> Result<Offset, EngineError> {
        check_block(
            self.memory,
            self.slot.chunks_at(),
            word,
            self.chunk,
            "chunk of descriptors",
        )
    }

    fn next_chunk(&self, chunk: Offset) -> u64 {
        // Relaxed: written before the chunk was linked.
        self.memory.load(chunk, Ordering::Relaxed)
    }

    fn count(&self) -> u64 {
        (self.chunk - HEAD) / Task::<M>::BYTES
    }

    fn descriptors(&self, chunk: Offset) -> impl Iterator<Item = Task<M>> + use<M> {
        let memory = self.memory;
        (0..self.count())
            .map(move |index| Task::new(memory, chunk + (HEAD + index * Task::<M>::BYTES)))
    }

    /// Returns a descriptor whose life is over, to begin another one.
    ///
    /// # Errors
    /// If the heap has no block for more of them.
    ///
    /// # Crash
    /// The next owner finds the descriptor.
    #[inline(always)]
    pub fn take(&mut self, heap: &LocalHeap<'_, M>) -> Result<Task<M>, EngineError> {
        if self.free == 0 {
            self.refill(heap)?;
        }
        let task = Task::checked(self.memory, self.slot.chunks_at(), self.free)?;
        self.free = task.next();
        Ok(task)
    }

    /// Puts a descriptor of this slot on the free list. The life of the descriptor is over, and it
    /// is on no chain. Returns `false` if it still has [inputs](Task::inputs): the layer that keeps
    /// names removes them when no thread can reach them any more.
    #[inline(always)]
    pub fn put(&mut self, task: Task<M>) -> bool {
        if task.inputs() != 0 {
            self.refused = true;
            return false;
        }
        task.set_next(self.free);
        self.free = task.offset().raw();
        true
    }

    /// Returns whether a descriptor was refused since the last call, including one that got its
    /// inputs from a thief.
    pub fn take_refused(&mut self) -> bool {
        core::mem::take(&mut self.refused)
    }

    #[cold]
    #[inline(never)]
    fn refill(&mut self, heap: &LocalHeap<'_, M>) -> Result<(), EngineError> {
        if self.look(heap, LOOKS)? * 4 >= self.count() {
            return Ok(());
        }
        match self.add_chunk(heap) {
            Err(EngineError::Allocate(
                AllocateError::HeapFull { .. } | AllocateError::Full { .. },
            )) if self.free != 0 || self.look(heap, u32::MAX)? != 0 => Ok(()),
            done => done,
        }
    }

    /// Puts the free descriptors of the next `most` chunks, each once, on the free list, which is
    /// empty. Returns their number.
    fn look(&mut self, heap: &LocalHeap<'_, M>, most: u32) -> Result<u64, EngineError> {
        let mut found = 0;
        let first = match self.cursor {
            0 => self.slot.chunks(),
            cursor => cursor,
        };
        let mut at = first;
        for _ in 0..most {
            if at == 0 {
                break;
            }
            let chunk = self.checked(at)?;
            for task in self.descriptors(chunk) {
                if task.status()?.state().is_over() {
                    // A task that a thief completed still has its block.
                    task.free_block(heap)?;
                    if !self.put(task) {
                        continue;
                    }
                    found += 1;
                }
            }
            at = match self.next_chunk(chunk) {
                0 => self.slot.chunks(),
                next => next,
            };
            self.cursor = at;
            if at == first {
                break;
            }
        }
        Ok(found)
    }

    fn add_chunk(&mut self, heap: &LocalHeap<'_, M>) -> Result<(), EngineError> {
        heap.allocate_into(self.chunk, self.slot.fresh_at())?;
        self.memory.crash_point(ChunkPoint::Allocated);
        let fresh = self.link_fresh()?;
        // In reverse, so that they are handed out in order.
        for index in (0..self.count()).rev() {
            self.put(Task::new(
                self.memory,
                fresh + (HEAD + index * Task::<M>::BYTES),
            ));
        }
        Ok(())
    }

    /// Initialises the chunk in the cell `fresh`, and links it into the list.
    fn link_fresh(&mut self) -> Result<Offset, EngineError> {
        let (memory, slot) = (self.memory, self.slot);
        let word: u64 = memory.load(slot.fresh_at(), Ordering::Relaxed);
        let fresh = self.checked(word)?;
        if !fresh.raw().is_multiple_of(Task::<M>::BYTES) {
            return Err(damaged(slot.fresh_at(), word, "chunk of descriptors"));
        }
        for at in (0..self.chunk).step_by(8) {
            // Relaxed: the chunk is not linked yet.
            memory.store(fresh + at, 0u64, Ordering::Relaxed);
        }
        memory.store(fresh, slot.chunks(), Ordering::Relaxed);
        memory.crash_point(ChunkPoint::Made);
        // Release: the contents of the chunk.
        memory.store(slot.chunks_at(), word, Ordering::Release);
        memory.crash_point(ChunkPoint::Linked);
        self.strike_out();
        memory.crash_point(ChunkPoint::Done);
        Ok(fresh)
    }

    fn strike_out(&self) {
        // Release: after the link.
        self.memory
            .store(self.slot.fresh_at(), 0u64, Ordering::Release);
    }
}

/// Returns the chunks in the list of `slot`.
fn chunks_of<M: Memory>(memory: M, slot: Slot<M>, bytes: u64) -> Result<Vec<Offset>, EngineError> {
    let mut chunks = Vec::new();
    let mut at = slot.chunks();
    while at != 0 {
        let (from, what) = (slot.chunks_at(), "chunk of descriptors");
        let chunk = check_block(memory, from, at, bytes, what)?;
        if chunks.len() as u64 > memory.size() / bytes {
            return Err(damaged(from, at, "chunk of descriptors in a ring"));
        }
        chunks.push(chunk);
        at = memory.load(chunk, Ordering::Relaxed);
    }
    Ok(chunks)
}

/// Returns the descriptors of `slot`.
pub(crate) fn tasks_of<M: Memory>(
    memory: M,
    slot: Slot<M>,
    bytes: u64,
) -> Result<Vec<Task<M>>, EngineError> {
    let chunks = chunks_of(memory, slot, bytes)?;
    let within = |chunk| (HEAD..bytes).step_by(128).map(move |from| chunk + from);
    let tasks = chunks.into_iter().flat_map(within);
    Ok(tasks.map(|at| Task::new(memory, at)).collect())
}

/// Returns the chunks of `slot`, and the blocks of its descriptors, for checks of the heap.
pub(crate) fn blocks_of<M: Memory>(
    memory: M,
    slot: Slot<M>,
    bytes: u64,
) -> Result<Vec<Offset>, EngineError> {
    let mut blocks = chunks_of(memory, slot, bytes)?;
    let load = |at| memory.load::<u64>(at, Ordering::Acquire);
    let fresh = load(slot.fresh_at());
    if fresh != 0 && fresh != slot.chunks() {
        blocks.push(Offset::from_raw(fresh));
    }
    let held = tasks_of(memory, slot, bytes)?;
    let held = held.into_iter().map(|task| load(task.block_at()));
    blocks.extend(held.filter(|block| *block != 0).map(Offset::from_raw));
    Ok(blocks)
}

/// Frees the blocks that [`blocks_of`] returns. The slot is no longer in use.
pub(crate) fn dismantle<M: Memory>(
    heap: &LocalHeap<'_, M>,
    slot: Slot<M>,
    bytes: u64,
) -> Result<(), EngineError> {
    let memory = heap.memory();
    for task in tasks_of(memory, slot, bytes)? {
        task.free_block(heap)?;
    }
    let load = |at| memory.load::<u64>(at, Ordering::Relaxed);
    match load(slot.fresh_at()) {
        0 => {}
        fresh if fresh == slot.chunks() => memory.store(slot.fresh_at(), 0u64, Ordering::Release),
        _ => drop(heap.free_from(slot.fresh_at(), 0)?),
    }
    for chunk in chunks_of(memory, slot, bytes)? {
        // One step frees the chunk at the head and replaces it by the next one.
        heap.free_from(slot.chunks_at(), load(chunk))?;
    }
    Ok(())
}

/// Calls `look` with every descriptor of `slot`.
pub(crate) fn each<M: Memory, E: From<EngineError>>(
    memory: M,
    slot: Slot<M>,
    chunk: u64,
    mut look: impl FnMut(Task<M>) -> Result<(), E>,
) -> Result<(), E> {
    let mut at = slot.chunks();
    let mut most = memory.size() / chunk;
    while at != 0 {
        if most == 0 {
            return Err(damaged(slot.chunks_at(), at, "chunk of descriptors in a ring").into());
        }
        most -= 1;
        at = each_of(memory, slot, at, chunk, &mut look)?;
    }
    Ok(())
}

/// Calls `look` with every descriptor of one chunk of `slot`, which `word` refers to. Returns the
/// word of the next chunk, or 0. Chunks are never freed, so a walk may stop anywhere and continue
/// later; chunks that are added before it continues are in front of the first one.
pub(crate) fn each_of<M: Memory, E: From<EngineError>>(
    memory: M,
    slot: Slot<M>,
    word: u64,
    chunk: u64,
    look: &mut impl FnMut(Task<M>) -> Result<(), E>,
) -> Result<u64, E> {
    let here = check_block(
        memory,
        slot.chunks_at(),
        word,
        chunk,
        "chunk of descriptors",
    )?;
    for from in (HEAD..chunk).step_by(Task::<M>::BYTES as usize) {
        look(Task::new(memory, here + from))?;
    }
    Ok(memory.load(here, Ordering::Acquire))
}
