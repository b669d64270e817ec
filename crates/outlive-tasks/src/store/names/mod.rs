//! Named data, by which tasks pass results to other tasks.
//!
//! A name leads to a *cell*, which is unbound, or bound to a block that never changes. An unbound
//! cell is a future: tasks that read it wait in a list of the cell, and occupy no worker.
//!
//! ```text
//! cell (in the map of names)   see cell.rs
//! block                        0  three words of the heap's reclamation | length in bytes | data
//! ports of a task (a block)    see ports.rs
//! ```
//!
//! The module `cell` argues why no task waits for bound data, `ports` why a name is bound once and
//! completely, and `remove` how data without further readers is removed.

mod cell;
mod ports;
mod remove;

pub use cell::Tag;
pub use cell::{AwaitPoint, Cell};
pub(crate) use ports::Output;
pub use ports::{BindPoint, Ports};
pub use remove::RemovePoint;
pub use remove::finish_removal_of_data;
pub(crate) use remove::settle;

use outlive::heap::buddy::AllocateError;
use outlive::heap::{LocalHeap, Pinned, RETIRED_HEADER};
use outlive::memory::{Memory, Native, Offset, Ordering};
use outlive::structures::{CreateError, DestroyError, Map, OpenError, Report};

/// The offset of the data's length.
const LEN: u64 = RETIRED_HEADER;
const DATA_HEADER: u64 = LEN + 8;

/// The value of a name: bytes that do not change any more, or an [array](crate::Array) that tasks
/// fill.
#[derive(Clone, Copy, Debug)]
pub struct Data<M: Memory = Native> {
    memory: M,
    at: Offset,
}

impl<M: Memory> Data<M> {
    /// Returns the size in bytes of the block for data of `len` bytes.
    pub(crate) const fn block_bytes(len: u64) -> u64 {
        DATA_HEADER + len
    }

    /// Returns the data in the block at `at`.
    pub(crate) fn in_block(memory: M, at: Offset) -> Self {
        Self { memory, at }
    }

    /// Writes the header of a new block for `len` bytes.
    pub(crate) fn begin(heap: &LocalHeap<'_, M>, at: Offset, len: u64) -> Self {
        let memory = heap.memory();
        memory.store(at, heap.era(), Ordering::Relaxed);
        memory.store(at + 8, 0u64, Ordering::Relaxed);
        memory.store(at + LEN, len, Ordering::Relaxed);
        Self { memory, at }
    }

    /// Returns the offset of the data's block.
    pub fn block(self) -> Offset {
        self.at
    }

    /// Returns the offset of the data's first byte.
    pub fn start(self) -> Offset {
        self.at + DATA_HEADER
    }

    /// Returns the data's length in bytes.
    pub fn len(self) -> u64 {
        // Relaxed: written before it was bound.
        let len: u64 = self.memory.load(self.at + LEN, Ordering::Relaxed);
        // A damaged length is cut at the memory's end.
        let room = self.memory.size().saturating_sub(self.start().raw());
        len.min(room)
    }

    /// Returns whether the data's length is 0.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Returns a copy of the data.
    pub fn to_vec(self) -> Vec<u8> {
        let mut bytes = vec![0; self.len() as usize];
        self.memory.copy_out(self.start(), &mut bytes);
        bytes
    }
}

/// The names of a pool.
#[derive(Clone, Copy, Debug)]
pub struct Names<M: Memory = Native> {
    map: Map<[u8], [u64; 2], M>,
    memory: M,
}

impl<M: Memory> Names<M> {
    /// Makes an empty map of names, and stores its offset in the word at `cell`, which is 0 before.
    ///
    /// # Errors
    /// If the heap is full, or the word is not 0.
    pub fn create(heap: &LocalHeap<'_, M>, cell: Offset, small: bool) -> Result<Self, CreateError> {
        let memory = heap.memory();
        let map = if small {
            Map::create_roomy(heap, cell)?
        } else {
            Map::create(heap, cell)?
        };
        Ok(Self { map, memory })
    }

    /// Opens the names whose map is at `at`.
    pub fn open(memory: M, at: Offset) -> Result<Self, OpenError> {
        Map::open(memory, at).map(|map| Self { map, memory })
    }

    /// Returns the cell of `name`, which is made if it does not exist. Lock-free.
    ///
    /// # Errors
    /// If the heap is full.
    ///
    /// # Crash
    /// An unbound cell exists, or none.
    ///
    /// A caller that keeps the cell holds a pin until the cell is noted in ports or a staging slot,
    /// which removers read, and then checks with [`Cell::keep`] that it was in time.
    pub fn cell(&self, heap: &LocalHeap<'_, M>, name: &[u8]) -> Result<Cell<M>, AllocateError> {
        loop {
            let _pin = heap.pin();
            match self.find(heap, name) {
                Some(cell) if cell.is_gone() => self.drop_gone(heap, name),
                Some(cell) => return Ok(cell),
                None => drop(self.map.get_or_insert(heap, name, &[0, 0])?),
            }
        }
    }

    /// Returns the data of `name`, valid for the life of `pin`.
    pub fn read(
        &self,
        heap: &LocalHeap<'_, M>,
        pin: &Pinned<'_, M>,
        name: &[u8],
    ) -> Option<Data<M>> {
        self.find(heap, name)?.read(pin)
    }

    /// Removes the entry of `name` if its data is removed. Called by the remover, or by a thread
    /// that finds such an entry. Lock-free.
    pub fn drop_gone(&self, heap: &LocalHeap<'_, M>, name: &[u8]) {
        // A cell that is gone stays gone.
        self.map
            .remove_if(heap, name, |[value, _]| cell::is_gone(value));
    }

    /// Removes the entry of `name`, which no other thread can reach.
    pub fn drop_entry(&self, heap: &LocalHeap<'_, M>, name: &[u8]) {
        self.map.remove(heap, name);
    }

    /// Returns the cell of `name`, if it exists. Lock-free.
    pub fn find(&self, heap: &LocalHeap<'_, M>, name: &[u8]) -> Option<Cell<M>> {
        let at = self.map.place(heap, name)?;
        Some(Cell::at(self.memory, at))
    }

    /// Returns the name of the cell at `at`, by a walk over all names, for messages.
    pub fn name_of(&self, heap: &LocalHeap<'_, M>, at: Offset) -> Option<Vec<u8>> {
        let names = self.map.iter(heap).map(|(name, _)| name);
        { names }.find(|name| self.map.place(heap, name) == Some(at))
    }

    /// Returns all names with their data.
    pub fn all(&self, heap: &LocalHeap<'_, M>) -> Vec<(Vec<u8>, Option<Data<M>>)> {
        let data = |value: u64| {
            let block = cell::block_of(value);
            (!block.is_null()).then(|| Data::in_block(self.memory, block))
        };
        let all = self.map.iter(heap);
        all.map(|(name, [value, _])| (name, data(value))).collect()
    }

    /// Walks the map and reports damage.
    pub fn check(&self) -> Report {
        self.map.check()
    }

    /// Returns the blocks of all names' data, and those of the map.
    pub fn blocks(&self, heap: &LocalHeap<'_, M>) -> Vec<Offset> {
        let hanging = self.map.iter(heap).map(|(_, [value, _])| value);
        // Including the block of data that is being removed.
        let hanging = hanging.map(cell::hanging);
        let mut blocks: Vec<Offset> = hanging.filter(|block| !block.is_null()).collect();
        blocks.extend(self.map.blocks());
        blocks
    }

    /// Frees the data of all names, and the map, to which `cell` leads. Called by the last user of
    /// the pool.
    pub fn destroy(self, heap: &LocalHeap<'_, M>, cell: Offset) -> Result<(), DestroyError> {
        let names = self.map.iter(heap).map(|(name, _)| name);
        for name in { names }.collect::<Vec<_>>() {
            if let Some(one) = self.find(heap, &name)
                && one.is_bound()
            {
                // A block that cannot be freed is damage, which the check reports.
                let _ = heap.free_from(one.offset(), 0);
            }
        }
        self.map.destroy(heap, cell).map(drop)
    }
}
