//! A task's descriptor: 128 bytes of shared memory.
//!
//! ```text
//!  0x00  status      the state and the runner (see the module `status`)
//!  0x08  function    number 32 | length of the arguments 20 | home slot 12
//!  0x10  next        the next child of the same parent; on a free list, the next free one
//!  0x18  job         the job of the task: a word of the layer above
//!  0x20  children    the head of its children | the attempt that was committed
//!  0x28  inputs      the names that the task reads: a word of the layer above
//!  0x30  outputs     the names that it writes: a word of the layer above
//!  0x38  block       the heap block of arguments that are longer than 64 bytes
//!  0x40  arguments   up to 64 bytes
//! ```
//!
//! A descriptor's memory stays a descriptor for as long as its pool lives: stale entries lead to
//! it, and their readers load its status. Descriptors of slots are in
//! [chunks](crate::engine::supply), which are never freed. Those of other owners (the root of a
//! job) must be kept as well.
//!
//! All words but the status are written by relaxed stores, by the only holder and before the store
//! that makes the task [ready](State::Ready). The release of that store and the acquire of the
//! compare-and-swap that runs the task transfer them. `children` is written before the status turns
//! to [`Committing`](State::Committing), and read by a worker that takes over the commit.
//!
//! The home is the slot with the descriptor's chunk. Its owner alone gives the descriptor new
//! lives.

use crate::EngineError;
use crate::engine::status::{State, Status};
use outlive::heap::LocalHeap;
use outlive::memory::{Memory, Native, Offset, Ordering};

/// The longest arguments that are stored in the descriptor, in bytes.
pub const INLINE_ARGUMENTS: usize = 64;
/// The longest arguments of a task, in bytes.
pub const MOST_ARGUMENTS: usize = (1 << 20) - 1;

const FUNCTION: u64 = 0x08;
const NEXT: u64 = 0x10;
const JOB: u64 = 0x18;
const CHILDREN: u64 = 0x20;
const INPUTS: u64 = 0x28;
const OUTPUTS: u64 = 0x30;
const BLOCK: u64 = 0x38;
const ARGUMENTS: u64 = 0x40;

const HOME: u32 = 52;
/// The home of a descriptor that is in no slot's chunk.
pub(crate) const NO_HOME: u32 = 0xFFF;

/// The specification of a task.
///
/// ```
/// use outlive_tasks::Spec;
/// let spec = Spec { function: 3, job: 0, inputs: 0, outputs: 0, arguments: &[1, 2, 3] };
/// assert_eq!(Spec::new(3, &[1, 2, 3]), spec);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec<'a> {
    /// The number of the task's function.
    pub function: u32,
    /// The word of the task's job.
    pub job: u64,
    /// The names that the task reads: a word of the layer above.
    pub inputs: u64,
    /// The names that the task writes: a word of the layer above.
    pub outputs: u64,
    /// The arguments.
    pub arguments: &'a [u8],
}

impl<'a> Spec<'a> {
    /// Returns the specification of a task that has no job, no inputs and no outputs.
    pub fn new(function: u32, arguments: &'a [u8]) -> Self {
        Self {
            function,
            job: 0,
            inputs: 0,
            outputs: 0,
            arguments,
        }
    }
}

/// A task's arguments, copied out of shared memory.
#[derive(Clone, Debug)]
pub struct Arguments(Copied);

#[derive(Clone, Debug)]
enum Copied {
    Inline([u8; INLINE_ARGUMENTS], usize),
    Long(Vec<u8>),
}

impl core::ops::Deref for Arguments {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Copied::Inline(bytes, len) => &bytes[..*len],
            Copied::Long(bytes) => bytes,
        }
    }
}

/// A handle on a descriptor.
#[derive(Clone, Copy, Debug)]
pub struct Task<M: Memory = Native> {
    memory: M,
    at: Offset,
}

impl<M: Memory> PartialEq for Task<M> {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}
impl<M: Memory> Eq for Task<M> {}

impl<M: Memory> Task<M> {
    /// The size and the alignment of a descriptor in bytes.
    pub const BYTES: u64 = 128;

    /// Returns the descriptor at `at`: zeroed memory at first, aligned to [`BYTES`](Self::BYTES).
    #[inline(always)]
    pub fn new(memory: M, at: Offset) -> Self {
        Self { memory, at }
    }

    /// Returns the descriptor to which `word`, loaded from shared memory at `from`, refers.
    ///
    /// # Errors
    /// [`EngineError::Damaged`] if no descriptor can be there.
    #[inline(always)]
    pub fn checked(memory: M, from: Offset, word: u64) -> Result<Self, EngineError> {
        match Offset::checked(word, Self::BYTES, Self::BYTES, memory.size()) {
            Ok(at) if !at.is_null() => Ok(Self { memory, at }),
            _ => Err(damaged(from, word, "task")),
        }
    }

    /// Returns the task's offset.
    #[inline(always)]
    pub fn offset(self) -> Offset {
        self.at
    }

    /// Returns the memory that contains the task.
    #[inline(always)]
    pub fn memory(self) -> M {
        self.memory
    }

    #[inline(always)]
    fn word(self, at: u64) -> u64 {
        // Relaxed: see the top of the file.
        self.memory.load(self.at + at, Ordering::Relaxed)
    }

    #[inline(always)]
    fn set(self, at: u64, value: u64) {
        self.memory.store(self.at + at, value, Ordering::Relaxed);
    }

    /// Returns the status. The caller then sees all that was written before it.
    ///
    /// # Errors
    /// [`EngineError::Damaged`] if the word is not a status.
    #[inline(always)]
    pub fn status(self) -> Result<Status, EngineError> {
        // Acquire: the writes of its writer before it.
        let word = self.memory.load(self.at, Ordering::Acquire);
        Status::from_word(word).ok_or_else(|| damaged(self.at, word, "status of a task"))
    }

    /// Writes the status. The caller is the only thread that may.
    #[inline(always)]
    pub(crate) fn set_status(self, status: Status) {
        // Release: the writes before it, for a thread that reads it.
        self.memory
            .store(self.at, status.to_word(), Ordering::Release);
    }

    /// Replaces the status `from` by `to` if it is unchanged: for states that several threads
    /// leave.
    #[inline(always)]
    #[doc(hidden)]
    pub fn exchange_status(self, from: Status, to: Status) -> bool {
        // AcqRel: acquire, for the writes before `from`; release, for the note in the running slot
        // and the claim of the slot, on which a reader of the new status relies.
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        self.memory
            .compare_exchange(self.at, from.to_word(), to.to_word(), order.0, order.1)
            .is_ok()
    }

    /// Returns the number of the task's function.
    #[inline(always)]
    pub fn function(self) -> u32 {
        self.word(FUNCTION) as u32
    }

    /// Returns the word of the task's job.
    #[inline(always)]
    pub fn job(self) -> u64 {
        self.word(JOB)
    }

    /// Returns the offset of the word of the task's job.
    #[doc(hidden)]
    pub fn job_at(self) -> Offset {
        self.at + JOB
    }

    /// Returns the word of the task's inputs.
    #[inline(always)]
    pub fn inputs(self) -> u64 {
        self.word(INPUTS)
    }

    /// Returns the offset of the word of the task's inputs: a cell of the task's holder.
    pub fn inputs_at(self) -> Offset {
        self.at + INPUTS
    }

    /// Returns the word of the task's outputs.
    #[inline(always)]
    pub fn outputs(self) -> u64 {
        self.word(OUTPUTS)
    }

    /// Returns the offset of the word of the task's outputs: a cell of the task's holder.
    pub fn outputs_at(self) -> Offset {
        self.at + OUTPUTS
    }

    /// Returns the task's arguments. The caller holds the task.
    ///
    /// # Errors
    /// [`EngineError::Damaged`] if the words that describe them are invalid.
    pub fn arguments(self) -> Result<Arguments, EngineError> {
        let len = self.arguments_len();
        if len <= INLINE_ARGUMENTS {
            let mut bytes = [0; INLINE_ARGUMENTS];
            self.memory.copy_out(self.at + ARGUMENTS, &mut bytes[..len]);
            return Ok(Arguments(Copied::Inline(bytes, len)));
        }
        let (at, word) = (self.at + BLOCK, self.word(BLOCK));
        let from = Offset::checked(word, len as u64, 8, self.memory.size());
        let from = from.map_err(|_| damaged(at, word, "block of arguments"))?;
        let mut bytes = vec![0; len];
        self.memory.copy_out(from, &mut bytes);
        Ok(Arguments(Copied::Long(bytes)))
    }

    #[inline(always)]
    fn arguments_len(self) -> usize {
        (self.word(FUNCTION) >> 32) as usize & MOST_ARGUMENTS
    }

    /// Returns the number of its home slot.
    #[inline(always)]
    pub(crate) fn home(self) -> u32 {
        (self.word(FUNCTION) >> HOME) as u32
    }

    /// Returns the next child of the task's parent, or the next free descriptor: an unchecked word.
    #[inline(always)]
    #[doc(hidden)]
    pub fn next(self) -> u64 {
        self.word(NEXT)
    }

    pub(crate) fn next_at(self) -> Offset {
        self.at + NEXT
    }

    #[inline(always)]
    pub(crate) fn set_next(self, next: u64) {
        self.set(NEXT, next);
    }

    /// Returns the head of the task's children, an unchecked word, and the attempt that was
    /// committed.
    #[inline(always)]
    #[doc(hidden)]
    pub fn children(self) -> (u64, u8) {
        let word = self.word(CHILDREN);
        (word >> 8 << 7, word as u8)
    }

    #[inline(always)]
    pub(crate) fn set_children(self, head: u64, attempt: u8) {
        // A descriptor's offset has seven bits to spare.
        self.set(CHILDREN, head >> 7 << 8 | u64::from(attempt));
    }

    #[doc(hidden)]
    pub fn children_at(self) -> Offset {
        self.at + CHILDREN
    }

    /// Returns the offset of the cell that owns the block of its long arguments.
    #[inline(always)]
    pub(crate) fn block_at(self) -> Offset {
        self.at + BLOCK
    }

    #[inline(always)]
    pub(crate) fn has_block(self) -> bool {
        self.word(BLOCK) != 0
    }

    /// Writes all words but the status and `next`.
    #[inline(always)]
    pub(crate) fn describe(
        self,
        heap: &LocalHeap<'_, M>,
        spec: &Spec<'_>,
        home: u32,
    ) -> Result<(), EngineError> {
        let len = spec.arguments.len();
        let what = u64::from(spec.function) | (len as u64) << 32 | u64::from(home) << HOME;
        self.set(FUNCTION, what);
        self.set(JOB, spec.job);
        self.set(CHILDREN, 0);
        self.set(INPUTS, spec.inputs);
        self.set(OUTPUTS, spec.outputs);
        if len <= INLINE_ARGUMENTS {
            self.memory.copy_in(self.at + ARGUMENTS, spec.arguments);
            return Ok(());
        }
        self.describe_long(heap, spec.arguments)
    }

    #[cold]
    #[inline(never)]
    fn describe_long(self, heap: &LocalHeap<'_, M>, arguments: &[u8]) -> Result<(), EngineError> {
        let len = arguments.len();
        if len > MOST_ARGUMENTS {
            return Err(EngineError::TooLong { len });
        }
        let block = heap.allocate_into(len as u64, self.block_at())?;
        self.memory.copy_in(block, arguments);
        Ok(())
    }

    /// Frees the block of long arguments, if there is one. Only the thread that may start another
    /// life of the descriptor calls this: the owner of the slot to which the descriptor belongs, or
    /// the thread that gives back a root. A commit that is not complete may still need the
    /// arguments.
    ///
    /// # Errors
    /// If it cannot be freed.
    ///
    /// # Crash
    /// The block is free, or in its cell.
    #[inline(always)]
    pub fn free_block(self, heap: &LocalHeap<'_, M>) -> Result<(), EngineError> {
        if self.has_block() {
            heap.free_from(self.block_at(), 0)?;
        }
        Ok(())
    }

    /// Prepares a task that is in no slot's chunk and on no chain: the root of a job. It begins a
    /// new life in `state`: [`State::Waiting`] or [`State::Ready`]. No other thread prepares it.
    ///
    /// # Errors
    /// If its last life is not over, or the arguments are too long or do not fit into the heap.
    ///
    /// # Crash
    /// The task is in `state`, or in a state in which it is not run. A block of its arguments is in
    /// its cell, and is freed when the task is prepared again.
    pub fn prepare_root(
        self,
        heap: &LocalHeap<'_, M>,
        spec: &Spec<'_>,
        state: State,
    ) -> Result<(), EngineError> {
        debug_assert!(matches!(state, State::Waiting | State::Ready));
        let last = self.status()?;
        // A `New` root was not prepared completely.
        if !last.state().is_over() && last.state() != State::New {
            let task = self.at;
            let slot = last.runner();
            return Err(EngineError::Busy { slot, task });
        }
        let life = last.next_life(State::New);
        self.set_status(life);
        self.free_block(heap)?;
        self.describe(heap, spec, NO_HOME)?;
        self.set_status(life.with(state));
        Ok(())
    }

    /// Makes a root that waits in its life `sequence` ready, so that a worker can
    /// [start](crate::Engine::start) it. Returns whether this call did so: of several calls, one
    /// does.
    ///
    /// # Errors
    /// If its status is damaged.
    pub fn open_root(self, sequence: u64) -> Result<bool, EngineError> {
        let status = self.status()?;
        let is_waiting = status.state() == State::Waiting && status.sequence() == sequence;
        Ok(is_waiting && self.exchange_status(status, status.with(State::Ready)))
    }

    /// Marks a [new](State::New) task as waiting for inputs, before it is registered with them. The
    /// caller holds its parent, and is in [`Hooks::child`](crate::Hooks::child).
    ///
    /// # Errors
    /// If its status is damaged.
    pub fn wait_for_inputs(self) -> Result<(), EngineError> {
        let status = self.status()?;
        if status.state() == State::New {
            self.set_status(status.with(State::Waiting));
        }
        Ok(())
    }
}

#[cold]
#[inline(never)]
pub(crate) fn damaged(at: Offset, word: u64, what: &'static str) -> EngineError {
    EngineError::Damaged { at, word, what }
}
