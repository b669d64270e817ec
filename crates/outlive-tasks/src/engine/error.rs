//! The errors of the engine.

use outlive::heap::buddy::{AllocateError, FreeError};
use outlive::memory::Offset;
use outlive::recovery::RecoverError;

/// The reason why an operation of the engine failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// A block could not be allocated.
    #[error(transparent)]
    Allocate(#[from] AllocateError),
    /// A block could not be freed.
    #[error(transparent)]
    Free(#[from] FreeError),
    /// The state that a dead worker left could not be recovered.
    #[error(transparent)]
    Recover(#[from] RecoverError),
    /// A word in shared memory is invalid.
    #[error(
        "the word {word:#x} at {at} is not a valid {what}; the segment is damaged: run `outlive \
         pod check`"
    )]
    Damaged {
        /// The offset of the word.
        at: Offset,
        /// The word.
        word: u64,
        /// The kind of object that it should refer to or be.
        what: &'static str,
    },
    /// The memory at an offset does not hold worker slots.
    #[error("the memory at {at} does not hold worker slots: {why}")]
    NoSlots {
        /// The offset.
        at: Offset,
        /// The reason.
        why: &'static str,
    },
    /// Every slot has a live worker.
    #[error(
        "all {capacity} worker slots are taken by live workers; stop one, or create the pool with \
         more"
    )]
    NoSlot {
        /// The number of slots.
        capacity: u32,
    },
    /// No slot is available for a guest (an additional worker, which the pool did not request): the
    /// others belong to live workers.
    #[error(
        "no worker slot is free for an additional worker: of {capacity}, {kept} are reserved for \
         the successors of dead workers"
    )]
    NoGuestSlot {
        /// The number of slots.
        capacity: u32,
        /// The number of slots in which a worker died that was not a guest.
        kept: u32,
    },
    /// The arguments are too long for a task.
    #[error(
        "the arguments have {len} bytes; the maximum is {}: pass more as named data",
        crate::engine::descriptor::MOST_ARGUMENTS
    )]
    TooLong {
        /// Their length in bytes.
        len: usize,
    },
    /// The worker holds a task.
    #[error("the worker of slot {slot} has not finished the task at {task}; finish it first")]
    Busy {
        /// The number of its slot.
        slot: u32,
        /// The offset of the task's descriptor.
        task: Offset,
    },
}
