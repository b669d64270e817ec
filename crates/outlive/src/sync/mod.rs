//! Locks and a barrier that outlive their owners.
//!
//! * [`BareTatas`]: the lock word holds the owner's instance. The next owner takes the lock from a
//!   dead owner and learns that owner's instance. For data that can be repaired by inspection.
//! * [`Tatas`]: the same lock, recorded in the owner's [log](crate::recovery) before it is taken. A
//!   dead owner's redo log is replayed and its operation settled before the lock passes on.
//! * [`QueueLock`]: first come, first served, among live members.
//! * [`RecoverableMutex`]: a value and its lock. A new owner never sees a half-done update, neither
//!   after a death nor after a panic.
//! * [`GroupBarrier`]: members of a group meet. They join, leave and die while others wait; the
//!   waiting members are then notified so that they can help.
//!
//! A dead owner's lock becomes available as soon as the owner's generation is raised: there is no
//! time-out and no daemon. A waiter waits for a lock held by a live instance as [`Waiting`] says,
//! and only a waiter makes system calls.
//!
//! A panic releases a lock, as in std. It discards the uncommitted change of a [`RecoverableMutex`]
//! and of a redo transaction. An owner that changes data in place under one of the other three
//! locks announces that by [`Poison::on_panic`]; the next owner can then detect the panic.
//!
//! A lock word that names an id this pod does not have is an error, not a reason to wait forever.
//!
//! A lock is used with members of its own pod. A member of another pod is not detected: its
//! instance would be written into the word, and its log, in the other pod, would list the lock.
//! Nothing in a lock or a memory tells pods apart, since one pod may be mapped twice, and the check
//! would be needed at every acquisition.

mod barrier;
mod mutex;
mod poison;
mod queue;
mod tatas;
mod wait;

pub use barrier::{
    Arrival, BarrierError, BarrierFinding, BarrierPoint, BarrierReport, GroupBarrier, Moment,
    Outcome, Seat, Ticket, View, Withdrawal,
};
pub(crate) use mutex::parts_of;
pub use mutex::{Abandoned, MutexGuard, MutexPoint, RecoverableMutex, Repair};
pub use poison::{Poison, PoisonOnPanic, PoisonPoint};
pub use queue::{QueueGuard, QueueLock, QueuePoint};
pub use tatas::{
    BareTatas, BareTatasGuard, Tatas, TatasGuard, TatasLockPoint, TatasUnlockPoint, audit_own_locks,
};
pub use wait::Waiting;

use crate::membership::{Generations, Instance};
use crate::recovery::{LockKind, Logs, RecoverError, Recoverers, TooManyLocks};
use outlive_memory::{Memory, Offset};

/// Returns the recovery handlers for the locks of this module; the layers above add theirs.
///
/// ```
/// # use outlive::{memory::{Native, Offset, PersistenceDomain}, recovery::Logs, sync};
/// # let memory = Native::leaked(1 << 16, PersistenceDomain::Flushed);
/// let recoverers = sync::recoverers(Logs::new(memory, Offset::new(4096), 4));
/// ```
pub fn recoverers<M: Memory>(logs: Logs<M>) -> Recoverers<M> {
    Recoverers::bare(logs)
        .lock(LockKind::TATAS, tatas::ReleaseTatas)
        .lock(LockKind::BARE, tatas::LeaveToTheNext)
        .lock(LockKind::QUEUE, queue::LeaveQueue { logs })
}

/// The reason why a lock could not be acquired. The caller then neither holds it nor lists it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// The caller already holds the lock; it would wait for itself forever.
    #[error(
        "{instance} already holds the lock at {lock}; these locks are not recursive: release it \
         first"
    )]
    AlreadyHeld {
        /// The caller.
        instance: Instance,
        /// The lock.
        lock: Offset,
    },
    /// The lock names an owner that this pod cannot have.
    #[error(
        "the lock at {lock} holds {word:#x}, which names no instance of this pod; the segment is damaged: run `outlive pod check`"
    )]
    ForeignOwner {
        /// The lock.
        lock: Offset,
        /// The value of the lock word.
        word: u64,
    },
    /// The caller's log has no free entry for one more lock.
    #[error(transparent)]
    TooManyLocks(#[from] TooManyLocks),
    /// The owner is dead and could not be recovered.
    #[error("the owner of the lock at {lock} is dead and could not be recovered: {source}")]
    Unrecovered {
        /// The lock.
        lock: Offset,
        /// The reason.
        source: RecoverError,
    },
}

/// Returns the owner that a lock word names.
fn owner<M: Memory>(
    generations: Generations<M>,
    lock: Offset,
    word: u64,
) -> Result<Instance, LockError> {
    Instance::from_word(word)
        .filter(|owner| owner.id < generations.capacity())
        .ok_or(LockError::ForeignOwner { lock, word })
}
