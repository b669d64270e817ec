//! What the rooms above bring to a recovery: handlers for their operations, their locks and the room of a log; and
//! what those are given, a dead instance's log in the hands of its only recoverer.

use super::operation::{BadOperation, Operation, RunningOperation};
use super::recover::RecoverError;
use super::{LockEntry, Log, Logs};
use crate::membership::{Instance, Member};
use outlive_memory::{Memory, Native, Offset};

/// Finds out whether a dead instance's operation took effect, completes or undoes it, and says so.
///
/// It runs while the recoverer holds the claim on the dead instance's log and while the locks that the
/// dead held are still locked. It must come to the same end when it is cut short at any instruction and
/// run again by another. It takes no lock: it works under those that the dead holds (two recoverers
/// that waited for each other's dead would wait for ever).
pub trait RecoverOperation<M: Memory>: Send + Sync {
    /// Recovers `operation`, which is running, and [settles](Recovering::running) it.
    ///
    /// # Errors
    /// If that is impossible; the log is then left to another recoverer.
    fn recover(&self, dead: &Recovering<'_, M>, operation: &Operation) -> Result<(), RecoverError>;
}

/// Releases a lock for a dead instance.
pub trait RecoverLock<M: Memory>: Send + Sync {
    /// Sees to it that the dead instance neither holds nor waits for the lock of `entry`. The entry may
    /// be mere intent. Restartable at any instruction; waits for nobody.
    ///
    /// # Errors
    /// If the lock is corrupt.
    fn release(&self, dead: &Recovering<'_, M>, entry: LockEntry) -> Result<(), RecoverError>;
}

/// Settles what stands in the [room](Log::room) of a dead instance's log.
///
/// Both steps run on every recovery, whether an operation was running or not, and
/// [again](super::Recoverers::revisit) for what could not be given up then: also in the log of an instance that did not
/// die but left in good order. What is said of [`RecoverOperation`] holds for them: restartable at any
/// instruction, and without locks.
pub trait RecoverRoom<M: Memory>: Send + Sync {
    /// Completes or undoes the step that the dead was at: after the replay of its transaction, before its
    /// operation's handler runs.
    ///
    /// # Errors
    /// If that is impossible; the log is then left to another recoverer.
    fn settle(&self, dead: &Recovering<'_, M>) -> Result<(), RecoverError>;

    /// Gives up what the dead still held, after its operation is settled and its locks are released.
    ///
    /// # Errors
    /// As [`settle`](Self::settle).
    fn release(&self, dead: &Recovering<'_, M>) -> Result<(), RecoverError>;
}
/// A dead instance's log in the hands of its only recoverer: what handlers are given.
#[derive(Debug)]
pub struct Recovering<'r, M: Memory = Native> {
    pub(super) member: &'r Member<M>,
    pub(super) log: Log<M>,
    pub(super) logs: Logs<M>,
    pub(super) owner: Instance,
}

impl<'r, M: Memory> Recovering<'r, M> {
    /// The recoverer.
    pub fn member(&self) -> &'r Member<M> {
        self.member
    }

    /// The dead instance.
    pub fn owner(&self) -> Instance {
        self.owner
    }

    /// Its log. Only the holder of this value writes to what the log's [room](Log::room) and nodes hold.
    pub fn log(&self) -> Log<M> {
        self.log
    }

    /// The logs of everybody, to look at.
    pub fn logs(&self) -> Logs<M> {
        self.logs
    }

    /// Whether the dead listed the lock at `lock` as held or being taken.
    pub fn lists(&self, lock: Offset) -> bool {
        self.log.locks().any(|entry| entry.lock == lock)
    }

    /// The operation that the dead left running, to be settled.
    pub fn running(&self, operation: &Operation) -> RunningOperation<'r, M> {
        RunningOperation::of_the_dead(self.log, operation.sequence)
    }

    pub(super) fn unsettled(&self) -> Result<Option<Operation>, BadOperation> {
        let last = self.log.operation()?;
        Ok(last.filter(|last| last.instance == self.owner && !last.is_done()))
    }
}
