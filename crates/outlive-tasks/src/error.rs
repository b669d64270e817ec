//! What can go wrong in the engine.

use outlive::heap::buddy::{AllocateError, FreeError};
use outlive::memory::Offset;
use outlive::recovery::RecoverError;

/// Why the engine could not go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// A block could not be had.
    #[error(transparent)]
    Allocate(#[from] AllocateError),
    /// A block could not be given back.
    #[error(transparent)]
    Free(#[from] FreeError),
    /// What a dead worker left could not be recovered.
    #[error(transparent)]
    Recover(#[from] RecoverError),
    /// A word that leads to something leads nowhere.
    #[error(
        "the word {word:#x} at {at} is no {what}; the segment is damaged: run `outlive pod check`"
    )]
    Damaged {
        /// Where it stands.
        at: Offset,
        /// What stands there.
        word: u64,
        /// What it should be.
        what: &'static str,
    },
    /// There are no worker slots there.
    #[error("there are no worker slots at {at}: {why}")]
    NoSlots {
        /// Where they were looked for.
        at: Offset,
        /// What is wrong.
        why: &'static str,
    },
    /// Every slot has a worker that lives.
    #[error("all {capacity} worker slots are taken by the living")]
    NoSlot {
        /// How many there are.
        capacity: u32,
    },
    /// There is no slot for one who works besides those whom the pool wants: the living have the others.
    #[error(
        "no worker slot is left for a guest: of {capacity}, {kept} are kept for the successors of workers that died"
    )]
    NoGuestSlot {
        /// How many there are.
        capacity: u32,
        /// In how many of them one of those whom the pool wants has died.
        kept: u32,
    },
    /// The arguments are longer than a task can name.
    #[error(
        "arguments of {len} bytes: the most are {}",
        crate::descriptor::MOST_ARGUMENTS
    )]
    TooLong {
        /// How long they are.
        len: usize,
    },
    /// The worker is in the middle of a task.
    #[error("the worker of slot {slot} has not finished the task at {task}")]
    Busy {
        /// Its slot.
        slot: u32,
        /// The task.
        task: Offset,
    },
}
