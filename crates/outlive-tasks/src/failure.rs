//! What can go wrong with a pool.

use crate::EngineError;
use outlive::heap::buddy::{AllocateError, FreeError};
use outlive::memory::Offset;
use outlive::recovery::RecoverError;
use outlive::segment::RootError;
use outlive::structures::{CreateError, DestroyError, OpenError};
use outlive::sync::BarrierError;

/// Why something could not be done with a worker pool.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// There is no pool there.
    #[error("there is no worker pool at {at}: {why}")]
    NoPool {
        /// Where it was looked for.
        at: Offset,
        /// What is wrong.
        why: &'static str,
    },
    /// There is no pool of that name.
    #[error("the pod has no worker pool `{name}`; create it first")]
    Unknown {
        /// The name.
        name: String,
    },
    /// There is one of that name.
    #[error("the pod has a worker pool `{name}` already; open it, or destroy it first")]
    Exists {
        /// The name.
        name: String,
    },
    /// The pool was made by a program with other tasks.
    #[error(
        "this program's tasks are not those of the pool `{name}`: {difference}; run the same program everywhere"
    )]
    OtherTasks {
        /// The pool.
        name: String,
        /// What differs.
        difference: String,
    },
    /// A task is not one of the pool's.
    #[error("the task `{name}` is none of this pool's")]
    NoTask {
        /// The task.
        name: String,
    },
    /// Members use it.
    #[error("{workers} workers of the pool `{name}` are at work; stop them first")]
    InUse {
        /// The pool.
        name: String,
        /// How many.
        workers: u32,
    },
    /// The name is bound.
    #[error("the name `{name}` has its data already")]
    Bound {
        /// The name.
        name: String,
    },
    /// The data is not to be removed now.
    #[error("the data of {name} cannot be removed: {by}")]
    DataInUse {
        /// The name.
        name: String,
        /// Who uses it, and what to wait for.
        by: String,
    },
    /// The job is not to be removed now.
    #[error("the job `{name}` cannot be removed: {by}")]
    JobInUse {
        /// The name.
        name: String,
        /// Who uses it, and what to wait for.
        by: String,
    },
    /// A word is impossible.
    #[error("at {at}: {what}; the segment is damaged: run `outlive pod check`")]
    Damaged {
        /// Where.
        at: Offset,
        /// What.
        what: &'static str,
    },
    /// This worker could not do a task for a reason of its own ([`TaskError::unable`](crate::TaskError::unable)). It has
    /// left the pool, in good order, and the task to others.
    #[error("this worker cannot do task {task}: {why}; it has left, and leaves the task to others")]
    Unable {
        /// The task.
        task: String,
        /// Why not.
        why: String,
    },
    /// So many workers were asked for as it cannot have.
    #[error("{asked} workers of the pool `{name}` cannot be: it can have {least} to {most}")]
    NoRoom {
        /// The pool.
        name: String,
        /// How many were asked for.
        asked: u32,
        /// The fewest.
        least: u32,
        /// The most.
        most: u32,
    },
    /// It wants no workers any more.
    #[error(
        "the pool `{name}` wants no workers any more: what it was made for is done, or was given up"
    )]
    Over {
        /// The pool.
        name: String,
    },
    /// All desks are taken.
    #[error("too many bring data at once; try again")]
    NoDesk,
    /// A job could not be submitted.
    #[error(transparent)]
    Submit(#[from] crate::SubmitError),
    /// The heap has no room.
    #[error(transparent)]
    Full(#[from] AllocateError),
    /// A block could not be freed.
    #[error(transparent)]
    Free(#[from] FreeError),
    /// A map could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A map could not be made.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// A map could not be destroyed.
    #[error(transparent)]
    Destroy(#[from] DestroyError),
    /// What the engine says.
    #[error(transparent)]
    Engine(EngineError),
    /// What the barrier says.
    #[error(transparent)]
    Barrier(#[from] BarrierError),
    /// What a dead one left could not be recovered.
    #[error(transparent)]
    Recover(#[from] RecoverError),
    /// What the table of roots says.
    #[error(transparent)]
    Root(#[from] RootError),
}

impl PoolError {
    /// How many bytes were asked for in vain, if the heap has no such block.
    pub fn wanted(&self) -> Option<u64> {
        match self {
            Self::Full(error)
            | Self::Create(CreateError::Heap(error))
            | Self::Submit(crate::SubmitError::Heap(error))
            | Self::Engine(EngineError::Allocate(error)) => error.asked(),
            _ => None,
        }
    }

    /// Whether all places for workers are taken: by workers, or by dead ones whom nobody has buried yet.
    pub fn is_no_place(&self) -> bool {
        use EngineError::{NoGuestSlot, NoSlot};
        matches!(self, Self::Engine(NoSlot { .. } | NoGuestSlot { .. }))
    }
}

impl From<EngineError> for PoolError {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Allocate(error) => Self::Full(error),
            EngineError::Free(error) => Self::Free(error),
            EngineError::Recover(error) => Self::Recover(error),
            error => Self::Engine(error),
        }
    }
}
