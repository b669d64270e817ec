//! Recovery handlers, which the modules above provide for their operations, their locks and the
//! scratch area of a log, and [`Recovering`], the handlers' view of a dead instance's log.

use super::operation::{BadOperation, Operation, RunningOperation};
use super::recover::RecoverError;
use super::{LockEntry, Log, Logs};
use crate::membership::{Instance, Member};
use outlive_memory::{Memory, Native, Offset};

/// Determines whether a dead instance's operation took effect, completes or undoes it, and records
/// the outcome.
///
/// It runs while the recoverer holds the claim on the dead instance's log and while the dead
/// instance's locks are still locked. It must come to the same result if it is cut short at any
/// instruction and run again by another recoverer. It takes no lock (two recoverers could wait for
/// each other forever): it works under those of the dead instance.
pub trait RecoverOperation<M: Memory>: Send + Sync {
    /// Recovers the running operation `operation` and [settles](Recovering::running) it.
    ///
    /// # Errors
    /// If that is impossible; the log is then left to another recoverer.
    fn recover(&self, dead: &Recovering<'_, M>, operation: &Operation) -> Result<(), RecoverError>;
}

/// Releases a lock for a dead instance.
pub trait RecoverLock<M: Memory>: Send + Sync {
    /// Ensures that the dead instance neither holds nor waits for the lock of `entry`. The entry
    /// may be mere intent. Restartable at any instruction; waits for no other thread.
    ///
    /// # Errors
    /// If the lock is corrupt.
    fn release(&self, dead: &Recovering<'_, M>, entry: LockEntry) -> Result<(), RecoverError>;
}

/// Settles the [scratch area](Log::room) of a dead instance's log.
///
/// Both steps run on every recovery, whether an operation was running or not, and
/// [again](super::Recoverers::revisit) for resources that could not be given up then: also in the
/// log of an instance that did not die but left in good order. The rules of [`RecoverOperation`]
/// hold for them: restartable at any instruction, and without locks.
pub trait RecoverRoom<M: Memory>: Send + Sync {
    /// Completes or undoes the step that the dead instance was executing: after the replay of its
    /// transaction, before its operation's handler runs.
    ///
    /// # Errors
    /// If that is impossible; the log is then left to another recoverer.
    fn settle(&self, dead: &Recovering<'_, M>) -> Result<(), RecoverError>;

    /// Gives up the resources that the dead instance still held, after its operation is settled and
    /// its locks are released.
    ///
    /// # Errors
    /// Returns the errors of [`settle`](Self::settle).
    fn release(&self, dead: &Recovering<'_, M>) -> Result<(), RecoverError>;
}
/// A dead instance's log as its only recoverer passes it to the handlers.
#[derive(Debug)]
pub struct Recovering<'r, M: Memory = Native> {
    pub(super) member: &'r Member<M>,
    pub(super) log: Log<M>,
    pub(super) logs: Logs<M>,
    pub(super) owner: Instance,
}

impl<'r, M: Memory> Recovering<'r, M> {
    /// Returns the recoverer.
    pub fn member(&self) -> &'r Member<M> {
        self.member
    }

    /// Returns the dead instance.
    pub fn owner(&self) -> Instance {
        self.owner
    }

    /// Returns the dead instance's log. Only the holder of this value writes to the log's
    /// [scratch area](Log::room) and nodes.
    pub fn log(&self) -> Log<M> {
        self.log
    }

    /// Returns read access to all logs of the pod.
    pub fn logs(&self) -> Logs<M> {
        self.logs
    }

    /// Returns whether the dead instance listed the lock at `lock` as held or being taken.
    pub fn lists(&self, lock: Offset) -> bool {
        self.log.locks().any(|entry| entry.lock == lock)
    }

    /// Returns the handle to settle `operation`, which the dead instance left running.
    pub fn running(&self, operation: &Operation) -> RunningOperation<'r, M> {
        RunningOperation::of_the_dead(self.log, operation.sequence)
    }

    pub(super) fn unsettled(&self) -> Result<Option<Operation>, BadOperation> {
        let last = self.log.operation()?;
        Ok(last.filter(|last| last.instance == self.owner && !last.is_done()))
    }
}
