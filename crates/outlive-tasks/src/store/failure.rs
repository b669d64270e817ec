//! Errors of a pool.

use crate::EngineError;
use outlive::heap::buddy::{AllocateError, FreeError};
use outlive::memory::Offset;
use outlive::recovery::RecoverError;
use outlive::segment::RootError;
use outlive::structures::{CreateError, DestroyError, OpenError};
use outlive::sync::BarrierError;

/// An error of an operation on a worker pool.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// The memory at an offset does not hold a pool.
    #[error("the memory at {at} does not hold a worker pool: {why}")]
    NoPool {
        /// The offset.
        at: Offset,
        /// The reason.
        why: &'static str,
    },
    /// No pool has this name.
    #[error("the pod has no worker pool `{name}`; create it first")]
    Unknown {
        /// The name.
        name: String,
    },
    /// A pool of this name exists.
    #[error("the pod has a worker pool `{name}` already; open it, or destroy it first")]
    Exists {
        /// The name.
        name: String,
    },
    /// The pool was made by a program with other tasks.
    #[error(
        "this program's tasks differ from those of the pool `{name}`: {difference}; run the same \
         program everywhere"
    )]
    OtherTasks {
        /// The pool.
        name: String,
        /// The difference.
        difference: String,
    },
    /// The pool has no such task.
    #[error("the pool has no task `{name}`; create the pool with that task")]
    NoTask {
        /// The task.
        name: String,
    },
    /// Members work in the pool.
    #[error("{workers} workers of the pool `{name}` are still running; stop them first")]
    InUse {
        /// The pool.
        name: String,
        /// The number of workers.
        workers: u32,
    },
    /// The name is bound.
    #[error("the name `{name}` has data already; remove the data, or use another name")]
    Bound {
        /// The name.
        name: String,
    },
    /// The data cannot be removed now.
    #[error("the data of {name} cannot be removed: {by}")]
    DataInUse {
        /// The name.
        name: String,
        /// Its user, and when to retry.
        by: String,
    },
    /// The job cannot be removed now.
    #[error("the job `{name}` cannot be removed: {by}")]
    JobInUse {
        /// The name.
        name: String,
        /// Its user, and when to retry.
        by: String,
    },
    /// A word has an impossible value.
    #[error("at {at}: {what}; the segment is damaged: run `outlive pod check`")]
    Damaged {
        /// The offset.
        at: Offset,
        /// A description.
        what: &'static str,
    },
    /// This worker could not do a task for a reason of its own
    /// ([`TaskError::unable`](crate::TaskError::unable)). It has left the pool, and leaves the task
    /// to other workers.
    #[error(
        "this worker cannot execute task {task}: {why}; it has left the pool, and the task stays \
         there for other workers"
    )]
    Unable {
        /// The task.
        task: String,
        /// The reason.
        why: String,
    },
    /// The pool cannot have the requested number of workers.
    #[error("the pool `{name}` cannot have {asked} workers; the range is {least} to {most}")]
    NoRoom {
        /// The pool.
        name: String,
        /// The requested number.
        asked: u32,
        /// The minimum.
        least: u32,
        /// The maximum.
        most: u32,
    },
    /// The pool needs no more workers.
    #[error("the pool `{name}` needs no more workers: its work is finished or was abandoned")]
    Over {
        /// The pool.
        name: String,
    },
    /// All staging slots are taken.
    #[error("too many threads put data or remove it at the same time; try again")]
    NoDesk,
    /// A job could not be submitted.
    #[error(transparent)]
    Submit(#[from] crate::SubmitError),
    /// The heap is full.
    #[error(transparent)]
    Full(#[from] AllocateError),
    /// A block could not be freed.
    #[error(transparent)]
    Free(#[from] FreeError),
    /// A map could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A map could not be created.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// A map could not be destroyed.
    #[error(transparent)]
    Destroy(#[from] DestroyError),
    /// An error of the engine.
    #[error(transparent)]
    Engine(EngineError),
    /// An error of the barrier.
    #[error(transparent)]
    Barrier(#[from] BarrierError),
    /// The log of a dead member could not be recovered.
    #[error(transparent)]
    Recover(#[from] RecoverError),
    /// An error of the table of roots.
    #[error(transparent)]
    Root(#[from] RootError),
}

impl PoolError {
    /// Returns the number of bytes of the failed allocation, if the heap has no such block.
    pub fn wanted(&self) -> Option<u64> {
        match self {
            Self::Full(error)
            | Self::Create(CreateError::Heap(error))
            | Self::Submit(crate::SubmitError::Heap(error))
            | Self::Engine(EngineError::Allocate(error)) => error.asked(),
            _ => None,
        }
    }

    /// Returns whether all slots are taken, by workers or by dead ones whose deaths are not
    /// finalised.
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
