//! Operation descriptors: they tell after a crash whether an operation took effect.
//!
//! A descriptor is two cache lines of sixteen words:
//!
//! ```text
//!   0  stamp: sequence number and progress     8..11  result
//!   1  instance that began it                 12..15  arguments 4 to 7
//!   2  kind                                    3      note, for the operation's own use
//!   4..7 arguments 0 to 3
//! ```
//!
//! There are two, and sequence numbers alternate between them, so the result of the last operation
//! stays readable while the next is being described. The stamp is written last, by one store: until
//! then the descriptor does not exist, and the previous one is the latest.

use super::layout::{CLAIM, OPERATION_BYTES};
use super::redo::{Redo, RedoError};
use super::{Log, Logs, OwnLog};
use crate::membership::{Instance, Member};
use core::marker::PhantomData;
use outlive_memory::{Memory, Native, Offset, Ordering};

const _: () = assert!(CLAIM < OPERATION_BYTES && Logs::<Native>::STRIDE.is_power_of_two());

const STAMP: u64 = 0;
const INSTANCE: u64 = 8;
const KIND: u64 = 16;
const NOTE: u64 = 24;
const ARGUMENTS_LOW: u64 = 32;
const RESULT: u64 = 64;
const ARGUMENTS_HIGH: u64 = 96;

#[inline(always)]
fn argument_at(at: Offset, index: usize) -> Offset {
    if index < 4 {
        at + ARGUMENTS_LOW + index as u64 * 8
    } else {
        at + ARGUMENTS_HIGH + (index as u64 - 4) * 8
    }
}

outlive_memory::crash_points! {
    /// Crash points of a detectable operation that concern its descriptor.
    pub enum OperationPoint for "log.operation" {
        /// The descriptor is written except for its stamp: the operation has not begun.
        Described,
        /// The operation has begun; a recoverer will run its handler.
        Begun,
        /// Result and stamp say that it is done.
        Finished,
    }
}

/// The kind of an operation, which selects the handler that recovers it. Any number but 0; the core
/// has those from 0x100 to 0x2FF.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationKind(u64);

impl OperationKind {
    /// Returns the kind `number`.
    ///
    /// # Panics
    /// If it is 0.
    pub const fn new(number: u64) -> Self {
        assert!(number != 0, "0 is not a kind of operation");
        Self(number)
    }

    /// Returns the number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// The progress of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Progress {
    /// The operation has begun; its handler determines whether it took effect.
    Running = 1,
    /// The operation took effect; its result is in the descriptor.
    Done = 2,
    /// The operation did not take effect, and never will.
    Undone = 3,
}

impl Progress {
    fn from_bits(bits: u64) -> Option<Self> {
        match bits {
            1 => Some(Self::Running),
            2 => Some(Self::Done),
            3 => Some(Self::Undone),
            _ => None,
        }
    }
}

#[inline(always)]
fn stamp(sequence: u64, progress: Progress) -> u64 {
    sequence << 8 | progress as u64
}

/// A descriptor as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The instance that began the operation.
    pub instance: Instance,
    /// The number among the operations of this id, from 1.
    pub sequence: u64,
    /// The kind of operation.
    pub kind: OperationKind,
    /// The progress of the operation.
    pub progress: Progress,
    /// The arguments; unused ones are 0.
    pub arguments: [u64; Self::ARGUMENTS],
    /// The last note that the operation wrote for its own recovery.
    pub note: u64,
    /// The result, once it is done.
    pub result: [u64; Self::RESULTS],
}

impl Operation {
    /// The maximum number of arguments of an operation.
    pub const ARGUMENTS: usize = 8;
    /// The number of words of a result.
    pub const RESULTS: usize = 4;

    /// Returns whether the operation is over: completed, or undone.
    pub fn is_done(&self) -> bool {
        self.progress != Progress::Running
    }
}

/// An operation descriptor is corrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the operation descriptor at {at} is corrupt: stamp {stamp:#x}, kind {kind}")]
pub struct BadOperation {
    /// The offset of the descriptor.
    pub at: Offset,
    /// The value of the descriptor's stamp.
    pub stamp: u64,
    /// The value of the descriptor's kind.
    pub kind: u64,
}

/// Reads the descriptor at `at`; `None` if no operation was ever begun there.
pub(super) fn read<M: Memory>(log: Log<M>, at: Offset) -> Result<Option<Operation>, BadOperation> {
    let memory = log.memory();
    let word = |offset: u64| memory.load::<u64>(at + offset, Ordering::Relaxed);
    // Acquire: the words of the descriptor were written before the stamp.
    let stamp: u64 = memory.load(at + STAMP, Ordering::Acquire);
    if stamp == 0 {
        return Ok(None);
    }
    let kind = word(KIND);
    let parts = (
        Progress::from_bits(stamp & 0xFF),
        Instance::from_word(word(INSTANCE)),
    );
    let (Some(progress), Some(instance)) = parts else {
        return Err(BadOperation { at, stamp, kind });
    };
    if kind == 0 {
        return Err(BadOperation { at, stamp, kind });
    }
    Ok(Some(Operation {
        instance,
        sequence: stamp >> 8,
        kind: OperationKind(kind),
        progress,
        arguments: core::array::from_fn(|i| memory.load(argument_at(at, i), Ordering::Relaxed)),
        note: word(NOTE),
        result: core::array::from_fn(|i| word(RESULT + i as u64 * 8)),
    }))
}

/// Returns the sequence number of the latest operation, 0 if there was none.
#[inline(always)]
fn latest_sequence<M: Memory>(log: Log<M>) -> u64 {
    let stamp = |parity| -> u64 {
        let at = log.operation_at(parity) + STAMP;
        log.memory().load(at, Ordering::Acquire)
    };
    (stamp(0) >> 8).max(stamp(1) >> 8)
}

pub(super) fn latest<M: Memory>(log: Log<M>) -> Result<Option<Operation>, BadOperation> {
    match latest_sequence(log) {
        0 => Ok(None),
        sequence => read(log, log.operation_at(sequence)),
    }
}

/// Copies operation `sequence` to the inherited descriptor. A crash leaves no descriptor there, or
/// the whole one; the original stays until a later incarnation begins its second operation.
pub(super) fn copy<M: Memory>(log: Log<M>, sequence: u64) {
    let (memory, from, to) = (log.memory(), log.operation_at(sequence), log.inherited_at());
    let stamp: u64 = memory.load(from + STAMP, Ordering::Acquire);
    if memory.load::<u64>(to + STAMP, Ordering::Relaxed) == stamp {
        return;
    }
    erase(log, to);
    for offset in (8..OPERATION_BYTES).step_by(8) {
        let word: u64 = memory.load(from + offset, Ordering::Relaxed);
        memory.store(to + offset, word, Ordering::Relaxed);
    }
    publish(memory, to, stamp);
}

/// Erases the descriptor at `at`.
pub(super) fn erase<M: Memory>(log: Log<M>, at: Offset) {
    let memory = log.memory();
    memory.store(at + STAMP, 0u64, Ordering::Release);
    memory.persist(at + STAMP, 8);
    // The words that are written next must not be seen under the old stamp.
    memory.fence(Ordering::Release);
}

/// Writes a stamp after all other words of the descriptor.
#[inline(always)]
fn publish<M: Memory>(memory: M, at: Offset, stamp: u64) {
    memory.persist(at, OPERATION_BYTES);
    memory.store(at + STAMP, stamp, Ordering::Release);
    memory.persist(at + STAMP, 8);
}

#[inline(always)]
pub(super) fn begin<'m, M: Memory>(
    own: OwnLog<'m, M>,
    kind: OperationKind,
    arguments: &[u64],
) -> RunningOperation<'m, M> {
    assert!(
        arguments.len() <= Operation::ARGUMENTS,
        "{} arguments; an operation has at most {}",
        arguments.len(),
        Operation::ARGUMENTS
    );
    let (log, memory) = (own.log(), own.log().memory());
    let sequence = latest_sequence(log) + 1;
    let at = log.operation_at(sequence);
    // The stamp here is that of the last operation but one. The words written under it are garbage
    // until it is replaced, but no thread reads them: the latest operation is in the other place.
    let put = |offset: u64, word: u64| memory.store(at + offset, word, Ordering::Relaxed);
    put(INSTANCE, own.instance().to_word());
    put(KIND, kind.0);
    put(NOTE, 0);
    for i in 0..Operation::ARGUMENTS {
        let argument = arguments.get(i).copied().unwrap_or(0);
        memory.store(argument_at(at, i), argument, Ordering::Relaxed);
    }
    for i in 0..Operation::RESULTS as u64 {
        put(RESULT + i * 8, 0);
    }
    memory.crash_point(OperationPoint::Described);
    publish(memory, at, stamp(sequence, Progress::Running));
    memory.crash_point(OperationPoint::Begun);
    RunningOperation {
        log,
        sequence,
        member: PhantomData,
    }
}

/// An operation that has begun and is not done, as a handle of its owner or of its recoverer.
///
/// Dropping it changes nothing: the operation stays running. (An owner that panics in the middle
/// must finish it; until then, closing its log fails.)
#[derive(Debug)]
#[must_use = "an operation runs until it is finished"]
pub struct RunningOperation<'m, M: Memory = Native> {
    log: Log<M>,
    sequence: u64,
    member: PhantomData<&'m Member<M>>,
}

impl<M: Memory> RunningOperation<'_, M> {
    /// Returns the claimant's handle on the operation that the dead instance left running.
    pub(super) fn of_the_dead(log: Log<M>, sequence: u64) -> Self {
        Self {
            log,
            sequence,
            member: PhantomData,
        }
    }

    /// Returns the number among the operations of this id.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Writes the note: one word by which the recovery handler determines the progress of the
    /// operation.
    #[inline(always)]
    pub fn note(&self, note: u64) {
        let (memory, at) = (self.log.memory(), self.at() + NOTE);
        // Release: the steps that the note records come before it.
        memory.store(at, note, Ordering::Release);
        memory.persist(at, 8);
    }

    /// Returns the current note.
    pub fn noted(&self) -> u64 {
        let at = self.at() + NOTE;
        self.log.memory().load(at, Ordering::Acquire)
    }

    /// Records that the operation took effect, with its result. Wait-free.
    ///
    /// # Panics
    /// If there are more than [`Operation::RESULTS`] words.
    #[inline(always)]
    pub fn finish(self, result: &[u64]) {
        self.settle(Progress::Done, result);
    }

    /// Records, with the reason as its result, that the operation never takes effect.
    ///
    /// # Panics
    /// Panics under the same conditions as [`finish`](Self::finish).
    #[inline(always)]
    pub fn abandon(self, reason: &[u64]) {
        self.settle(Progress::Undone, reason);
    }

    /// Makes "done, with this result" part of a redo transaction: the changes take effect and the
    /// operation is done in one atomic step, the transaction's commit.
    ///
    /// # Errors
    /// If the transaction is full.
    ///
    /// # Panics
    /// Panics under the same conditions as [`finish`](Self::finish).
    pub fn finish_by(&self, redo: &mut Redo<'_, M>, result: &[u64]) -> Result<(), RedoError> {
        check(result);
        let at = self.at();
        for (i, &word) in result.iter().enumerate() {
            redo.store(at + RESULT + i as u64 * 8, word)?;
        }
        redo.store(at + STAMP, stamp(self.sequence, Progress::Done))
    }

    #[inline(always)]
    fn at(&self) -> Offset {
        self.log.operation_at(self.sequence)
    }

    #[inline(always)]
    fn settle(self, progress: Progress, result: &[u64]) {
        check(result);
        let (memory, at) = (self.log.memory(), self.at());
        for (i, &word) in result.iter().enumerate() {
            memory.store(at + RESULT + i as u64 * 8, word, Ordering::Relaxed);
        }
        publish(memory, at, stamp(self.sequence, progress));
        memory.crash_point(OperationPoint::Finished);
    }
}

#[inline(always)]
fn check(result: &[u64]) {
    assert!(
        result.len() <= Operation::RESULTS,
        "{} words of result; an operation has at most {}",
        result.len(),
        Operation::RESULTS
    );
}
