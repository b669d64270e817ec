//! A task's descriptor: 128 bytes of shared memory.
//!
//! ```text
//!  0x00  status      who runs it (see the module `status`)
//!  0x08  function    number 32 | length of the arguments 20 | home slot 12
//!  0x10  next        the next child of the same parent; on a free list, the next free one
//!  0x18  job         its job: a word of those who keep jobs
//!  0x20  children    the head of its children | the attempt that was committed
//!  0x28  inputs      two words of those who keep names
//!  0x30  outputs
//!  0x38  block       the heap block of arguments that are longer than 64 bytes
//!  0x40  arguments   up to 64 bytes
//! ```
//!
//! A place that was a descriptor once is one for as long as its pool lives: stale entries lead there, and whoever follows
//! one reads a status. Descriptors of slots are in [chunks](crate::supply) that are never given back; those of
//! others (the root of a job) must be kept likewise.
//!
//! Everything but the status is written by relaxed stores, before the store that makes the task
//! [ready](State::Ready) and by whoever alone holds it: the release of that store and the acquire of the
//! compare-and-swap that runs it carry it over. `children` is written before the status turns to
//! [`Committing`](State::Committing), and read by whoever takes over from there.
//!
//! The home is the slot whose chunk the descriptor is in; only that slot's owner gives it another life.

use crate::EngineError;
use crate::status::{State, Status};
use outlive::heap::LocalHeap;
use outlive::memory::{Memory, Native, Offset, Ordering};

/// The longest arguments that stand in the descriptor, in bytes.
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

/// What a task is to do.
///
/// ```
/// use outlive_tasks::Spec;
/// let spec = Spec { function: 3, job: 0, inputs: 0, outputs: 0, arguments: &[1, 2, 3] };
/// assert_eq!(Spec::new(3, &[1, 2, 3]), spec);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec<'a> {
    /// The number of its function.
    pub function: u32,
    /// Its job.
    pub job: u64,
    /// What it waits for: a word of those who keep names.
    pub inputs: u64,
    /// What it makes: a word of those who keep names.
    pub outputs: u64,
    /// Its arguments.
    pub arguments: &'a [u8],
}

impl<'a> Spec<'a> {
    /// A task of no job, without inputs and outputs.
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

    /// The descriptor at `at`: zeroed memory at first, aligned to [`BYTES`](Self::BYTES).
    #[inline(always)]
    pub fn new(memory: M, at: Offset) -> Self {
        Self { memory, at }
    }

    /// The descriptor that `word`, which was loaded from shared memory at `from`, leads to.
    ///
    /// # Errors
    /// [`EngineError::Damaged`] if there cannot be one.
    #[inline(always)]
    pub fn checked(memory: M, from: Offset, word: u64) -> Result<Self, EngineError> {
        match Offset::checked(word, Self::BYTES, Self::BYTES, memory.size()) {
            Ok(at) if !at.is_null() => Ok(Self { memory, at }),
            _ => Err(damaged(from, word, "task")),
        }
    }

    /// Where it is.
    #[inline(always)]
    pub fn offset(self) -> Offset {
        self.at
    }

    /// The memory that it is in.
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

    /// Its status now, and with it what was written before.
    ///
    /// # Errors
    /// [`EngineError::Damaged`] if the word is none.
    #[inline(always)]
    pub fn status(self) -> Result<Status, EngineError> {
        // Acquire: what the one who wrote it had written before.
        let word = self.memory.load(self.at, Ordering::Acquire);
        Status::from_word(word).ok_or_else(|| damaged(self.at, word, "status of a task"))
    }

    /// Writes the status: for whoever alone may.
    #[inline(always)]
    pub(crate) fn set_status(self, status: Status) {
        // Release: what was written before, for whoever finds it so.
        self.memory
            .store(self.at, status.to_word(), Ordering::Release);
    }

    /// Moves the status from `from` to `to` if it is still `from`; for whoever is not alone.
    #[inline(always)]
    pub(crate) fn exchange_status(self, from: Status, to: Status) -> bool {
        // AcqRel: acquire, for what was written before `from`; release, for the note in the running slot and the claim
        // of the slot, on which those rest who find the new one.
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        self.memory
            .compare_exchange(self.at, from.to_word(), to.to_word(), order.0, order.1)
            .is_ok()
    }

    /// The number of its function.
    #[inline(always)]
    pub fn function(self) -> u32 {
        self.word(FUNCTION) as u32
    }

    /// Its job.
    #[inline(always)]
    pub fn job(self) -> u64 {
        self.word(JOB)
    }

    /// Where the word of its job is.
    pub(crate) fn job_at(self) -> Offset {
        self.at + JOB
    }

    /// What it waits for.
    #[inline(always)]
    pub fn inputs(self) -> u64 {
        self.word(INPUTS)
    }

    /// Where the word is that says what it waits for: a cell of whoever holds the task.
    pub fn inputs_at(self) -> Offset {
        self.at + INPUTS
    }

    /// What it makes.
    #[inline(always)]
    pub fn outputs(self) -> u64 {
        self.word(OUTPUTS)
    }

    /// Where the word is that says what it makes: a cell of whoever holds the task.
    pub fn outputs_at(self) -> Offset {
        self.at + OUTPUTS
    }

    /// Its arguments. For whoever holds it.
    ///
    /// # Errors
    /// [`EngineError::Damaged`] if its words cannot be.
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

    /// The slot whose chunk it is in.
    #[inline(always)]
    pub(crate) fn home(self) -> u32 {
        (self.word(FUNCTION) >> HOME) as u32
    }

    /// The next child of its parent, or the next free descriptor: a word to be checked.
    #[inline(always)]
    pub(crate) fn next(self) -> u64 {
        self.word(NEXT)
    }

    pub(crate) fn next_at(self) -> Offset {
        self.at + NEXT
    }

    #[inline(always)]
    pub(crate) fn set_next(self, next: u64) {
        self.set(NEXT, next);
    }

    /// The head of its children, a word to be checked, and which attempt was committed.
    #[inline(always)]
    pub(crate) fn children(self) -> (u64, u8) {
        let word = self.word(CHILDREN);
        (word >> 8 << 7, word as u8)
    }

    #[inline(always)]
    pub(crate) fn set_children(self, head: u64, attempt: u8) {
        // A descriptor's offset has seven bits to spare.
        self.set(CHILDREN, head >> 7 << 8 | u64::from(attempt));
    }

    pub(crate) fn children_at(self) -> Offset {
        self.at + CHILDREN
    }

    /// The cell that its long arguments are in.
    #[inline(always)]
    pub(crate) fn block_at(self) -> Offset {
        self.at + BLOCK
    }

    #[inline(always)]
    pub(crate) fn has_block(self) -> bool {
        self.word(BLOCK) != 0
    }

    /// Writes all but the status and the next one.
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

    /// Frees the block of long arguments, if there is one. For whoever alone may give the descriptor another life: the
    /// owner of its home, or who keeps a root. While a task commits, its arguments may be wanted again.
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

    /// Describes a task that is in no slot's chunk and on no chain: the root of a job. It begins a new life in `state`:
    /// [`State::Waiting`] or [`State::Ready`]. For whoever alone may: nobody else prepares it, and its last life is
    /// over.
    ///
    /// # Errors
    /// If its last life is not over, or the arguments are too long, or find no room.
    ///
    /// # Crash
    /// The task is in `state`, or in none that anybody would run; a block of its arguments stands in its cell, and is
    /// freed when it is prepared again.
    pub fn prepare_root(
        self,
        heap: &LocalHeap<'_, M>,
        spec: &Spec<'_>,
        state: State,
    ) -> Result<(), EngineError> {
        debug_assert!(matches!(state, State::Waiting | State::Ready));
        let last = self.status()?;
        // A `New` root is one whose preparation was cut short.
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

    /// Turns a waiting root of life `sequence` ready, for whoever comes by to [start](crate::Engine::start) it. Whether
    /// this did it: it may be done by many, and once.
    ///
    /// # Errors
    /// If its status is damaged.
    pub fn open_root(self, sequence: u64) -> Result<bool, EngineError> {
        let status = self.status()?;
        let is_waiting = status.state() == State::Waiting && status.sequence() == sequence;
        Ok(is_waiting && self.exchange_status(status, status.with(State::Ready)))
    }

    /// Takes from a task that waits in its life `sequence` any hope of its inputs: it has failed. Whether this did it. A
    /// block of its arguments is freed when the descriptor has its next life.
    ///
    /// # Errors
    /// If its status is damaged.
    pub fn give_up_waiting(self, sequence: u64) -> Result<bool, EngineError> {
        let status = self.status()?;
        let is_waiting = status.state() == State::Waiting && status.sequence() == sequence;
        Ok(is_waiting && self.exchange_status(status, status.with(State::Failed)))
    }

    /// Says that a [new](State::New) task waits for inputs, before it is registered with them: for whoever holds its
    /// parent, in [`Hooks::child`](crate::Hooks::child).
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
