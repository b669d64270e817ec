//! Ports: the inputs and the outputs of a task.
//!
//! ```text
//!  0  numbers of inputs and of outputs
//!  8  task | 16  life of the task | 24  number of quiet moments after which the ports can be freed
//! 32  for each input:  a node (cell.rs)
//!     for each output: cell | block, private
//! ```
//!
//! # Why a name is bound once and completely
//!
//! An output is a private block on the ports of the task that wrote it. The task's commit binds it,
//! after the task's status has become COMMITTING, by a compare-and-swap of the cell's value from 0
//! to the block. So it is invisible before the commit, and of two tasks that write one name the
//! first has it. A worker that continues a dead one's commit finds the block in the cell (bound: it
//! is the cell's), or another there (it is freed), or none (it binds). An attempt that dies before
//! its commit leaves its blocks on the ports, and the next attempt frees them before it writes its
//! own.
//!
//! A worker that continues the commit notifies the waiting tasks again. So the ports name the block
//! as long as they exist, even after it has become the cell's. (A sweep found the result of
//! clearing it too early: a reader that was ready, and in no deque.) When the block has become the
//! cell's, a bit beside it says so. After the end of the task the cell is not read because of its
//! ports, and the data can be [removed](super::remove).
//!
//! # When ports are freed
//!
//! A block of ports belongs to its task from its allocation on. Another word of the task says that
//! it is written, since a new block is uninitialised. Ports are freed when, after their task was
//! seen to be over, judges have noted two *quiet moments*, in which all workers waited and no
//! worker held a task. A thread that walks a list is in a commit, and the second moment came after
//! the first was noted. (A release of the barrier proves no such moment: the reason may be a
//! commit.) Ports of a task that was never run, because its job failed, stay while they hang on an
//! unbound cell. Those of a root are then added to a list of the pool and never freed: a word or
//! two for each such job, whose record is not freed either.

use super::{Cell, Data};
use outlive::heap::LocalHeap;
use outlive::heap::buddy::{AllocateError, FreeError};
use outlive::memory::{Memory, Native, Offset, Ordering};

outlive::memory::crash_points! {
    /// The crash points of writing and binding a task's outputs.
    pub enum BindPoint for "tasks.bind" {
        /// The block is allocated, and is on the task's ports.
        Allocated,
        /// The data is in the block.
        Written,
        /// The cell is bound; the waiting tasks are not yet notified.
        Bound,
        /// The list of waiting tasks is closed.
        Closed,
        /// The waiting tasks are ready, and in no deque yet.
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
/// In the word of an output's block: the block is the cell's.
const BOUND: u64 = 1;

impl<M: Memory> Ports<M> {
    /// Returns the size in bytes of the ports of a task with `inputs` inputs and `outputs` outputs.
    pub const fn bytes(inputs: usize, outputs: usize) -> u64 {
        PORT + inputs as u64 * INPUT + outputs as u64 * OUTPUT
    }

    /// Returns the ports at `at`.
    pub fn at(memory: M, at: Offset) -> Self {
        Self { memory, at }
    }

    /// Writes the ports of `task` into the block at `at`, which no other thread sees yet. A cell of
    /// 0 is set later.
    pub fn write(memory: M, at: Offset, task: u64, inputs: &[Offset], outputs: &[Offset]) -> Self {
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
        // Relaxed, as are the cells: written before the task was published.
        let both: u64 = self.memory.load(self.at, Ordering::Relaxed);
        ((both & 0xFFFF_FFFF) as usize, (both >> 32) as usize)
    }

    fn node(self, index: usize) -> Offset {
        self.at + (PORT + index as u64 * INPUT)
    }

    fn port(self, inputs: usize, index: usize) -> Offset {
        self.at + (PORT + inputs as u64 * INPUT + index as u64 * OUTPUT)
    }

    /// Returns the cells of the inputs.
    pub fn inputs(self) -> impl Iterator<Item = Cell<M>> {
        let memory = self.memory;
        (0..self.numbers().0).map(move |index| {
            let cell: u64 = memory.load(self.node(index), Ordering::Relaxed);
            Cell::at(memory, Offset::from_raw(cell))
        })
    }

    /// Returns the outputs.
    pub fn outputs(self) -> impl Iterator<Item = Output<M>> {
        let (inputs, outputs) = self.numbers();
        let memory = self.memory;
        (0..outputs).map(move |index| Output {
            memory,
            at: self.port(inputs, index),
        })
    }

    /// Returns the task's offset, and its life.
    pub fn task(self) -> (u64, u64) {
        // Relaxed: written before the node that led here was added.
        let load = |at| self.memory.load::<u64>(self.at + at, Ordering::Relaxed);
        (load(8), load(LIFE))
    }

    /// Stores the life of the task. Called before the task is made to wait.
    pub fn set_life(self, life: u64) {
        self.memory.store(self.at + LIFE, life, Ordering::Relaxed);
    }

    /// Returns whether these ports, whose task is over, can be freed when `quiets` quiet moments
    /// are noted: immediately if no node was added, otherwise two moments after the first call at
    /// the earliest. Only one caller at a time may call this for the same ports.
    pub fn can_go(self, quiets: u64) -> bool {
        let memory = self.memory;
        if self.listed().next().is_none() {
            return true;
        }
        let seen: u64 = memory.load(self.at + SEEN, Ordering::Relaxed);
        if seen == 0 {
            // The next moment may have been before this call, and be noted late.
            memory.store(self.at + SEEN, quiets + 2, Ordering::Relaxed);
            return false;
        }
        seen <= quiets
    }

    /// Rewrites the ports of a task that is not published yet, for other cells. The number of
    /// cells must be the same as before.
    pub fn rewrite(self, task: u64, inputs: &[Offset], outputs: &[Offset]) -> Self {
        let (_, life) = self.task();
        Self::write(self.memory, self.at, task, inputs, outputs).set_life(life);
        self
    }

    /// [Keeps](Cell::keep) the data of all cells. Returns `false` if the data of one has been
    /// removed. Called by the thread that has just written the ports.
    pub fn keep(self) -> bool {
        let outputs = self.outputs().filter_map(Output::cell);
        self.inputs().chain(outputs).all(Cell::keep)
    }

    /// Returns whether the ports lead to `cell`. The ports may have been freed by another thread.
    /// So the result is valid only if the task has the same status afterwards and is not over.
    pub fn may_lead_to(self, cell: Offset) -> bool {
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

    /// Returns the cells whose lists nodes may have been added to.
    fn listed(self) -> impl Iterator<Item = Cell<M>> {
        // Relaxed: written while the task was not over.
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

    /// Returns whether the ports may be in the list of an unbound cell.
    pub fn hang(self) -> bool {
        self.listed().any(|cell| !cell.is_bound())
    }

    /// Adds the ports to the list of abandoned ports at `head`, unless they are in it. Only one
    /// caller at a time may call this for the same ports.
    pub fn abandon(self, head: Offset) {
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

    /// Returns whether the ports are in the list at `head`.
    pub fn is_abandoned(self, head: Offset) -> bool {
        Self::abandoned(self.memory, head).any(|at| at == self.at)
    }

    /// Returns the blocks in the list at `head`.
    pub fn abandoned(memory: M, head: Offset) -> impl Iterator<Item = Offset> {
        // Acquire: the links.
        let first: u64 = memory.load(head, Ordering::Acquire);
        let some = |word: u64| (word != 0).then(|| Offset::from_raw(word));
        core::iter::successors(some(first), move |at| {
            some(memory.load(*at + SEEN, Ordering::Relaxed))
        })
    }

    /// Frees all ports in the list at `head`. Called by the last user of the pool.
    pub fn free_abandoned(heap: &LocalHeap<'_, M>, head: Offset) -> Result<(), FreeError> {
        let memory = heap.memory();
        while let Some(at) = Self::abandoned(memory, head).next() {
            // One step frees the first block and stores the next one as the head.
            heap.free_from(head, memory.load(at + SEEN, Ordering::Relaxed))?;
        }
        Ok(())
    }

    /// Returns whether all inputs are bound.
    pub fn are_complete(self) -> bool {
        self.inputs().all(Cell::is_bound)
    }

    /// Returns whether all inputs are bound, for ports that another thread may have freed, as with
    /// [`may_lead_to`](Self::may_lead_to). The result is valid only if the caller then changes the
    /// task from the same status that it had before. `stands` returns whether it still has that
    /// status.
    pub fn seem_complete(self, stands: impl Fn() -> bool) -> bool {
        let memory = self.memory;
        let inside = |at: Offset, bytes| Offset::checked(at.raw(), bytes, 8, memory.size()).is_ok();
        if !inside(self.at, PORT) {
            return false;
        }
        let (inputs, _) = self.numbers();
        inside(self.at, PORT + inputs as u64 * INPUT)
            && (0..inputs).all(|index| {
                let cell = memory.load::<u64>(self.node(index), Ordering::Relaxed);
                // Acquire: if the word is of a later life of the block, so is the status that
                // `stands` reads.
                memory.fence(Ordering::Acquire);
                let cell = Offset::from_raw(cell);
                stands() && inside(cell, 16) && Cell::at(memory, cell).is_bound()
            })
    }

    /// Makes the task, which is WAITING, wait for all unbound inputs. Called by the worker that
    /// commits the task's parent, or continues that commit.
    pub fn wait(self) {
        for (index, cell) in self.inputs().enumerate() {
            if !cell.is_bound() {
                cell.put(self.node(index));
            }
        }
        // SeqCst: the nodes are added before their maker reads the cells. It pairs with the fence
        // of a binder, see `cell.rs`.
        self.memory.fence(Ordering::SeqCst);
    }

    /// Frees the outputs of an attempt that did not reach its commit.
    pub fn clear(self, heap: &LocalHeap<'_, M>) -> Result<(), FreeError> {
        self.outputs().try_for_each(|output| output.clear(heap))
    }

    /// Binds the task's outputs, and calls `tell` with the ports of every task that waited for one.
    /// Called by the worker that commits the task, or continues that commit.
    pub fn bind<E: From<FreeError>>(
        self,
        heap: &LocalHeap<'_, M>,
        mut tell: impl FnMut(Self) -> Result<(), E>,
    ) -> Result<(), E> {
        self.outputs()
            .try_for_each(|output| output.bind(heap, &mut tell))
    }

    /// Returns the private blocks of the outputs, and that of the ports.
    pub fn blocks(self) -> impl Iterator<Item = Offset> {
        let private = self.outputs().filter(|output| !output.is_bound());
        private.filter_map(Output::block).chain([self.at])
    }
}

/// An output of a task.
#[derive(Clone, Copy, Debug)]
pub struct Output<M: Memory> {
    memory: M,
    at: Offset,
}

impl<M: Memory> Output<M> {
    /// Returns the output's cell, if it has one.
    pub fn cell(self) -> Option<Cell<M>> {
        let cell: u64 = self.memory.load(self.at, Ordering::Relaxed);
        (cell != 0).then(|| Cell::at(self.memory, Offset::from_raw(cell)))
    }

    /// Sets the output's cell, which is the same for every attempt.
    pub fn set_cell(self, cell: Cell<M>) {
        self.memory
            .store(self.at, cell.offset().raw(), Ordering::Relaxed);
    }

    /// Returns the output's block.
    pub fn block(self) -> Option<Offset> {
        // Relaxed: its runner's own; a successor learns of it by the raised generation.
        let block = self.word() & !BOUND;
        (block != 0).then(|| Offset::from_raw(block))
    }

    fn word(self) -> u64 {
        self.memory.load(self.at + 8, Ordering::Relaxed)
    }

    /// Allocates a private block for `len` bytes.
    pub fn allocate(self, heap: &LocalHeap<'_, M>, len: u64) -> Result<Data<M>, AllocateError> {
        let at = heap.allocate_into(Data::<M>::block_bytes(len), self.at + 8)?;
        self.memory.crash_point(BindPoint::Allocated);
        Ok(Data::begin(heap, at, len))
    }

    /// Writes the output: `bytes`, into a private block.
    pub fn write(self, heap: &LocalHeap<'_, M>, bytes: &[u8]) -> Result<(), AllocateError> {
        let data = self.allocate(heap, bytes.len() as u64)?;
        self.memory.copy_in(data.start(), bytes);
        self.memory.crash_point(BindPoint::Written);
        Ok(())
    }

    /// Returns whether the block is the cell's.
    fn is_bound(self) -> bool {
        if self.word() & BOUND != 0 {
            return true;
        }
        let value = self.cell().and_then(Cell::value);
        self.block().is_some() && value.map(Data::block) == self.block()
    }

    /// Clears the block, and frees it unless it is the cell's.
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
            // Another task wrote the name first.
            return Ok(self.clear(heap)?);
        }
        // Relaxed: for a thread that continues the commit, or finds it complete.
        self.memory
            .store(self.at + 8, block.raw() | BOUND, Ordering::Relaxed);
        cell.tell(tell)?;
        // The block stays on the port. The notified tasks are in no deque yet, and a worker that
        // continues the commit notifies them again.
        self.memory.crash_point(BindPoint::Told);
        Ok(())
    }
}
