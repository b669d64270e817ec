//! Ports: the inputs and the outputs of a task.
//!
//! ```text
//!  0  numbers of inputs and of outputs
//!  8  the task | 16  which life of it | 24  mark of who looks whether they can go
//! 32  for each input:  a node (cell.rs)
//!     for each output: cell | block, private
//! ```
//!
//! # Why a name is bound once, and whole
//!
//! An output is a private block that hangs on the ports of the task that wrote it. The task's commit binds it, after the
//! task's status has gone to COMMITTING: a compare-and-swap of the cell's value from 0 to the block. So before the
//! commit nobody sees it, and of two that write one name the first has it. Who goes on with a dead one's commit finds
//! the block in the cell (bound: it is the cell's), or another there (it is freed), or none (it binds).
//! A dead attempt that had not come to its commit leaves its blocks on the ports, and the next attempt
//! frees them before it writes its own.
//!
//! Whoever goes on with the commit tells those who wait again; so the ports name the block as long as they are
//! there, also after it became the cell's. (A sweep found what came of striking it out too soon: a reader that was ready, and in
//! no deque.) When the block has become the cell's, the port says so beside it: from the end of the task on nobody
//! looks at the cell for its sake, and the data can be [removed](super::remove).
//!
//! # When they go
//!
//! A block of ports hangs on its task from its allocation on; that it is written is said by another word of the task, for a
//! new block holds anything. Ports are freed when, after their task was seen to be over, judges have noted two
//! *quiet moments*, in which all workers waited and nobody held a task: whoever walks a list is in a commit, and the second
//! moment came after the first was noted. (A release of the barrier says nothing of that: it may be released because somebody commits.)
//! Those of a task that was never run, because its job
//! failed, stay while they hang on a cell that is not bound; those of a root go into a list of the pool then, for good: a word or
//! two for each of such jobs, whose records stay as well.

use super::{Cell, Data};
use outlive::heap::LocalHeap;
use outlive::heap::buddy::{AllocateError, FreeError};
use outlive::memory::{Memory, Native, Offset, Ordering};

outlive::memory::crash_points! {
    /// Where the writing and the binding of a task's outputs may be cut short.
    pub enum BindPoint for "tasks.bind" {
        /// The block is allocated and hangs on the task's ports.
        Allocated,
        /// The data is in the block.
        Written,
        /// The cell is bound; those who wait for it have not been told.
        Bound,
        /// The list of those who wait is closed.
        Closed,
        /// They are ready, and in no deque yet.
        Told,
    }
}

/// The inputs and outputs of a task.
#[derive(Clone, Copy, Debug)]
pub struct Ports<M: Memory = Native> {
    memory: M,
    at: Offset,
}

const LIFE: u64 = 16;
const SEEN: u64 = 24;
const PORT: u64 = 32;
const INPUT: u64 = 24;
const OUTPUT: u64 = 16;
/// In the word of an output's block: it is the cell's.
const BOUND: u64 = 1;

impl<M: Memory> Ports<M> {
    /// How many bytes the ports of a task with so many inputs and outputs take.
    pub(crate) const fn bytes(inputs: usize, outputs: usize) -> u64 {
        PORT + inputs as u64 * INPUT + outputs as u64 * OUTPUT
    }

    /// The ports at `at`.
    pub(crate) fn at(memory: M, at: Offset) -> Self {
        Self { memory, at }
    }

    /// Writes the ports of `task` into the block at `at`, before anybody else sees it. A cell of 0 is to be had later.
    pub(crate) fn write(
        memory: M,
        at: Offset,
        task: u64,
        inputs: &[Offset],
        outputs: &[Offset],
    ) -> Self {
        let store = |at: Offset, word: u64| memory.store(at, word, Ordering::Relaxed);
        store(at, inputs.len() as u64 | (outputs.len() as u64) << 32);
        store(at + 8, task);
        store(at + LIFE, 0);
        store(at + SEEN, 0);
        let ports = Self { memory, at };
        for (index, cell) in inputs.iter().enumerate() {
            let node = ports.node(index);
            store(node, cell.raw());
            store(node + 8, 0);
            store(node + 16, at.raw());
        }
        for (index, cell) in outputs.iter().enumerate() {
            let port = ports.port(inputs.len(), index);
            store(port, cell.raw());
            store(port + 8, 0);
        }
        ports
    }

    fn numbers(self) -> (usize, usize) {
        // Relaxed, as are the cells: written before the task was anybody else's.
        let both: u64 = self.memory.load(self.at, Ordering::Relaxed);
        ((both & 0xFFFF_FFFF) as usize, (both >> 32) as usize)
    }

    fn node(self, index: usize) -> Offset {
        self.at + (PORT + index as u64 * INPUT)
    }

    fn port(self, inputs: usize, index: usize) -> Offset {
        self.at + (PORT + inputs as u64 * INPUT + index as u64 * OUTPUT)
    }

    /// The cells of the inputs.
    pub(crate) fn inputs(self) -> impl Iterator<Item = Cell<M>> {
        let memory = self.memory;
        (0..self.numbers().0).map(move |index| {
            let cell: u64 = memory.load(self.node(index), Ordering::Relaxed);
            Cell::at(memory, Offset::from_raw(cell))
        })
    }

    /// The outputs.
    pub(crate) fn outputs(self) -> impl Iterator<Item = Output<M>> {
        let (inputs, outputs) = self.numbers();
        let memory = self.memory;
        (0..outputs).map(move |index| Output {
            memory,
            at: self.port(inputs, index),
        })
    }

    /// The task, and which life of it.
    pub(crate) fn task(self) -> (u64, u64) {
        // Relaxed: written before the node was put in by which this was found.
        let load = |at| self.memory.load::<u64>(self.at + at, Ordering::Relaxed);
        (load(8), load(LIFE))
    }

    /// Says which life of the task it is. For whoever is about to make it wait.
    pub(crate) fn set_life(self, life: u64) {
        self.memory.store(self.at + LIFE, life, Ordering::Relaxed);
    }

    /// Whether these ports, whose task is over, can be freed when so many quiet moments have been noted: asked by one at
    /// a time, it says so at the earliest when it is asked again after two more.
    pub(crate) fn can_go(self, quiets: u64) -> bool {
        let memory = self.memory;
        if self.listed().next().is_none() {
            return true;
        }
        let seen: u64 = memory.load(self.at + SEEN, Ordering::Relaxed);
        if seen == 0 {
            // The next one may have been before this, and be noted late.
            memory.store(self.at + SEEN, quiets + 2, Ordering::Relaxed);
            return false;
        }
        seen <= quiets
    }

    /// The same, written anew for other cells: as many, before the task is anybody else's.
    pub(crate) fn rewrite(self, task: u64, inputs: &[Offset], outputs: &[Offset]) -> Self {
        let (_, life) = self.task();
        Self::write(self.memory, self.at, task, inputs, outputs).set_life(life);
        self
    }

    /// For whoever has just written these ports, as [`Cell::keep`]: whether all cells stay.
    pub(crate) fn keep(self) -> bool {
        let outputs = self.outputs().filter_map(Output::cell);
        self.inputs().chain(outputs).all(Cell::keep)
    }

    /// Whether they lead to `cell`, for one who may meet ports that are free by then: what he is told counts if their
    /// task is the same afterwards, and not over.
    pub(crate) fn may_lead_to(self, cell: Offset) -> bool {
        let memory = self.memory;
        let inside = |bytes| Offset::checked(self.at.raw(), bytes, 8, memory.size()).is_ok();
        if !inside(PORT) {
            return false;
        }
        let (inputs, outputs) = self.numbers();
        if !inside(PORT + inputs as u64 * INPUT + outputs as u64 * OUTPUT) {
            return false;
        }
        let leads = |at: Offset| memory.load::<u64>(at, Ordering::Relaxed) == cell.raw();
        (0..inputs).any(|index| leads(self.node(index)))
            || (0..outputs).any(|index| leads(self.port(inputs, index)))
    }

    /// The cells that nodes may have been put into.
    fn listed(self) -> impl Iterator<Item = Cell<M>> {
        // Relaxed: all this was written while the task was not over.
        let tried = move |index: usize| {
            self.memory
                .load::<u64>(self.node(index) + 8, Ordering::Relaxed)
                != 0
        };
        { self.inputs() }
            .enumerate()
            .filter(move |(index, _)| tried(*index))
            .map(|(_, cell)| cell)
    }

    /// Whether they may be in the list of a cell that is not bound.
    pub(crate) fn hang(self) -> bool {
        self.listed().any(|cell| !cell.is_bound())
    }

    /// Puts them into the list at `head`, of those that stay; once, however often it is called. One at a time does so for
    /// these ports.
    pub(crate) fn abandon(self, head: Offset) {
        if self.is_abandoned(head) {
            return;
        }
        let memory = self.memory;
        let mut first: u64 = memory.load(head, Ordering::Acquire);
        loop {
            memory.store(self.at + SEEN, first, Ordering::Relaxed);
            // Release: the link. Acquire: those of the others.
            let order = (Ordering::AcqRel, Ordering::Acquire);
            match memory.compare_exchange(head, first, self.at.raw(), order.0, order.1) {
                Ok(_) => return,
                Err(now) => first = now,
            }
            memory.spin_hint();
        }
    }

    /// Whether they are in the list at `head`.
    pub(crate) fn is_abandoned(self, head: Offset) -> bool {
        Self::abandoned(self.memory, head).any(|at| at == self.at)
    }

    /// The blocks in the list at `head`.
    pub(crate) fn abandoned(memory: M, head: Offset) -> impl Iterator<Item = Offset> {
        // Acquire: the links.
        let first: u64 = memory.load(head, Ordering::Acquire);
        let some = |word: u64| (word != 0).then(|| Offset::from_raw(word));
        core::iter::successors(some(first), move |at| {
            some(memory.load(*at + SEEN, Ordering::Relaxed))
        })
    }

    /// Frees all in the list at `head`. For the last who uses the pool.
    pub(crate) fn free_abandoned(heap: &LocalHeap<'_, M>, head: Offset) -> Result<(), FreeError> {
        let memory = heap.memory();
        while let Some(at) = Self::abandoned(memory, head).next() {
            // The first one is freed and the next one put there, in one step.
            heap.free_from(head, memory.load(at + SEEN, Ordering::Relaxed))?;
        }
        Ok(())
    }

    /// Whether all inputs are there.
    pub(crate) fn are_complete(self) -> bool {
        self.inputs().all(Cell::is_bound)
    }

    /// The same for one who may meet ports that are free by then, as [`may_lead_to`](Self::may_lead_to): what it says counts if
    /// the task is moved on from the very status that it had before. `stands` says whether it has that still.
    pub(crate) fn seem_complete(self, stands: impl Fn() -> bool) -> bool {
        let memory = self.memory;
        let inside = |at: Offset, bytes| Offset::checked(at.raw(), bytes, 8, memory.size()).is_ok();
        if !inside(self.at, PORT) {
            return false;
        }
        let (inputs, _) = self.numbers();
        inside(self.at, PORT + inputs as u64 * INPUT)
            && (0..inputs).all(|index| {
                let cell = memory.load::<u64>(self.node(index), Ordering::Relaxed);
                // Acquire: if the word is of a later life of the block, so is the status that is seen now.
                memory.fence(Ordering::Acquire);
                let cell = Offset::from_raw(cell);
                stands() && inside(cell, 16) && Cell::at(memory, cell).is_bound()
            })
    }

    /// Has the task, which is WAITING, wait for all inputs that are not there. For whoever commits its parent, and
    /// again for who goes on with that.
    pub(crate) fn wait(self) {
        for (index, cell) in self.inputs().enumerate() {
            if !cell.is_bound() {
                cell.put(self.node(index));
            }
        }
        // SeqCst: the nodes are in before their maker looks at the cells; against the fence of who binds, see `cell.rs`.
        self.memory.fence(Ordering::SeqCst);
    }

    /// Frees what an attempt has written that did not come to its commit.
    pub(crate) fn clear(self, heap: &LocalHeap<'_, M>) -> Result<(), FreeError> {
        self.outputs().try_for_each(|output| output.clear(heap))
    }

    /// Binds what the task has written, and calls `tell` with the ports of every task that waited for some of it. For whoever
    /// commits the task, and again for who goes on with that.
    pub(crate) fn bind<E: From<FreeError>>(
        self,
        heap: &LocalHeap<'_, M>,
        mut tell: impl FnMut(Self) -> Result<(), E>,
    ) -> Result<(), E> {
        self.outputs()
            .try_for_each(|output| output.bind(heap, &mut tell))
    }

    /// The blocks that hang on it.
    pub(crate) fn blocks(self) -> impl Iterator<Item = Offset> {
        let private = self.outputs().filter(|output| !output.is_bound());
        private.filter_map(Output::block).chain([self.at])
    }
}

/// An output of a task.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output<M: Memory> {
    memory: M,
    at: Offset,
}

impl<M: Memory> Output<M> {
    /// Its cell, if it has one.
    pub fn cell(self) -> Option<Cell<M>> {
        let cell: u64 = self.memory.load(self.at, Ordering::Relaxed);
        (cell != 0).then(|| Cell::at(self.memory, Offset::from_raw(cell)))
    }

    /// Gives it a cell. The same for every attempt.
    pub fn set_cell(self, cell: Cell<M>) {
        self.memory
            .store(self.at, cell.offset().raw(), Ordering::Relaxed);
    }

    /// The private block.
    pub fn block(self) -> Option<Offset> {
        // Relaxed: its runner's own; who takes over learns of it through the raised generation.
        let block = self.word() & !BOUND;
        (block != 0).then(|| Offset::from_raw(block))
    }

    fn word(self) -> u64 {
        self.memory.load(self.at + 8, Ordering::Relaxed)
    }

    /// A private block for `len` bytes.
    pub fn allocate(self, heap: &LocalHeap<'_, M>, len: u64) -> Result<Data<M>, AllocateError> {
        let at = heap.allocate_into(Data::<M>::block_bytes(len), self.at + 8)?;
        self.memory.crash_point(BindPoint::Allocated);
        Ok(Data::begin(heap, at, len))
    }

    /// Writes `bytes` into a private block.
    pub fn write(self, heap: &LocalHeap<'_, M>, bytes: &[u8]) -> Result<(), AllocateError> {
        let data = self.allocate(heap, bytes.len() as u64)?;
        self.memory.copy_in(data.start(), bytes);
        self.memory.crash_point(BindPoint::Written);
        Ok(())
    }

    /// Whether the block is the cell's.
    fn is_bound(self) -> bool {
        if self.word() & BOUND != 0 {
            return true;
        }
        let value = self.cell().and_then(Cell::value);
        self.block().is_some() && value.map(Data::block) == self.block()
    }

    /// Forgets the block, if there is one: frees it, unless it is the cell's.
    pub fn clear(self, heap: &LocalHeap<'_, M>) -> Result<(), FreeError> {
        if self.is_bound() {
            self.memory.store(self.at + 8, 0u64, Ordering::Relaxed);
        } else if self.block().is_some() {
            heap.free_from(self.at + 8, 0)?;
        }
        Ok(())
    }

    fn bind<E: From<FreeError>>(
        self,
        heap: &LocalHeap<'_, M>,
        tell: impl FnMut(Ports<M>) -> Result<(), E>,
    ) -> Result<(), E> {
        let (Some(cell), Some(block)) = (self.cell(), self.block()) else {
            return Ok(());
        };
        if !cell.bind(block) {
            // Another wrote the name first.
            return Ok(self.clear(heap)?);
        }
        // Relaxed: for whoever goes on with the commit, or comes by when it is through.
        self.memory
            .store(self.at + 8, block.raw() | BOUND, Ordering::Relaxed);
        cell.tell(tell)?;
        // The block stays on the port: those who were told are in no deque yet, and whoever goes on with the commit tells
        // them again.
        self.memory.crash_point(BindPoint::Told);
        Ok(())
    }
}
