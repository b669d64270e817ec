//! Named data: what tasks write for one another.
//!
//! A name leads to a *cell*, which is unbound or bound to a block, for good. A cell that nobody has written yet is a
//! future: tasks that read it wait in a list that hangs on the cell, and hold no worker.
//!
//! ```text
//! cell (in the map of names)   see cell.rs
//! block                        0  three words of the heap's reclamation | length in bytes | data
//! ports of a task (a block)    see ports.rs
//! ```
//!
//! `cell.rs` has the argument why nobody waits for what is there, `ports.rs` why a name is bound once, and whole, `remove.rs`
//! how data is removed that nobody will read any more.

mod cell;
mod ports;
mod remove;

pub(crate) use cell::Tag;
pub use cell::{AwaitPoint, Cell};
pub(crate) use ports::Output;
pub use ports::{BindPoint, Ports};
pub use remove::RemovePoint;
pub(crate) use remove::settle;

use outlive::heap::buddy::AllocateError;
use outlive::heap::{LocalHeap, Pinned, RETIRED_HEADER};
use outlive::memory::{Memory, Native, Offset, Ordering};
use outlive::structures::{CreateError, DestroyError, Map, OpenError, Report};

/// Where the length of data stands.
const LEN: u64 = RETIRED_HEADER;
const DATA_HEADER: u64 = LEN + 8;

/// What a name is bound to: bytes that do not change any more, or an [array](crate::Array) that tasks fill.
#[derive(Clone, Copy, Debug)]
pub struct Data<M: Memory = Native> {
    memory: M,
    at: Offset,
}

impl<M: Memory> Data<M> {
    /// How many bytes of the heap data of `len` bytes takes.
    pub(crate) const fn block_bytes(len: u64) -> u64 {
        DATA_HEADER + len
    }

    /// The data in the block at `at`.
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

    /// Where its block is.
    pub fn block(self) -> Offset {
        self.at
    }

    /// Where its first byte is.
    pub fn start(self) -> Offset {
        self.at + DATA_HEADER
    }

    /// How many bytes it has.
    pub fn len(self) -> u64 {
        // Relaxed: written before it was bound.
        let len: u64 = self.memory.load(self.at + LEN, Ordering::Relaxed);
        // A length that damage made up is cut at the memory's end.
        let room = self.memory.size().saturating_sub(self.start().raw());
        len.min(room)
    }

    /// Whether it has none.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// A copy of it.
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
    /// Makes names, and has the word at `cell`, which is 0, lead to them.
    ///
    /// # Errors
    /// If there is no room, or the word leads to something.
    pub(crate) fn create(
        heap: &LocalHeap<'_, M>,
        cell: Offset,
        small: bool,
    ) -> Result<Self, CreateError> {
        let memory = heap.memory();
        let map = if small {
            Map::create_roomy(heap, cell)?
        } else {
            Map::create(heap, cell)?
        };
        Ok(Self { map, memory })
    }

    /// The names whose map is at `at`.
    pub(crate) fn open(memory: M, at: Offset) -> Result<Self, OpenError> {
        Map::open(memory, at).map(|map| Self { map, memory })
    }

    /// The cell of `name`, which is made if there is none. Lock-free.
    ///
    /// # Errors
    /// If there is no room.
    ///
    /// # Crash
    /// There is an unbound cell, or there is none.
    ///
    /// Whoever keeps it does so under a pin until it stands where removers look, and then
    /// asks whether it was in time.
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

    /// What `name` is bound to, for as long as `pin` is there.
    pub(crate) fn read(
        &self,
        heap: &LocalHeap<'_, M>,
        pin: &Pinned<'_, M>,
        name: &[u8],
    ) -> Option<Data<M>> {
        self.find(heap, name)?.read(pin)
    }

    /// Removes the entry of `name` if its data is removed: whoever has removed that, or meets it. Lock-free.
    pub(crate) fn drop_gone(&self, heap: &LocalHeap<'_, M>, name: &[u8]) {
        // That it is gone does not change any more.
        self.map
            .remove_if(heap, name, |[value, _]| cell::is_gone(value));
    }

    /// Removes the entry of `name`, which nobody else can come by.
    pub(crate) fn drop_entry(&self, heap: &LocalHeap<'_, M>, name: &[u8]) {
        self.map.remove(heap, name);
    }

    /// The cell of `name`, if there is one. Lock-free.
    pub fn find(&self, heap: &LocalHeap<'_, M>, name: &[u8]) -> Option<Cell<M>> {
        let at = self.map.place(heap, name)?;
        Some(Cell::at(self.memory, at))
    }

    /// The name of the cell at `at`: a walk over all names, for messages.
    pub fn name_of(&self, heap: &LocalHeap<'_, M>, at: Offset) -> Option<Vec<u8>> {
        let names = self.map.iter(heap).map(|(name, _)| name);
        { names }.find(|name| self.map.place(heap, name) == Some(at))
    }

    /// All names, and what they are bound to.
    pub fn all(&self, heap: &LocalHeap<'_, M>) -> Vec<(Vec<u8>, Option<Data<M>>)> {
        let data = |value: u64| {
            let block = cell::block_of(value);
            (!block.is_null()).then(|| Data::in_block(self.memory, block))
        };
        let all = self.map.iter(heap);
        all.map(|(name, [value, _])| (name, data(value))).collect()
    }

    /// Walks the map and says what is wrong.
    pub(crate) fn check(&self) -> Report {
        self.map.check()
    }

    /// The blocks that names are bound to, and those of the map.
    pub(crate) fn blocks(&self, heap: &LocalHeap<'_, M>) -> Vec<Offset> {
        let hanging = self.map.iter(heap).map(|(_, [value, _])| value);
        // That of data which is being removed, too.
        let hanging = hanging.map(cell::hanging);
        let mut blocks: Vec<Offset> = hanging.filter(|block| !block.is_null()).collect();
        blocks.extend(self.map.blocks());
        blocks
    }

    /// Frees what all names are bound to, and the map. For the last who uses the pool; `cell` leads to the map.
    pub(crate) fn destroy(self, heap: &LocalHeap<'_, M>, cell: Offset) -> Result<(), DestroyError> {
        let names = self.map.iter(heap).map(|(name, _)| name);
        for name in { names }.collect::<Vec<_>>() {
            if let Some(one) = self.find(heap, &name)
                && one.is_bound()
            {
                // What cannot be freed is damage, which the check reports.
                let _ = heap.free_from(one.offset(), 0);
            }
        }
        self.map.destroy(heap, cell).map(drop)
    }
}
