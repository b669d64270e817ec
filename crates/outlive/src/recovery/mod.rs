//! The logs of instances, and how exactly one other instance completes the work of a dead one.
//!
//! Every instance id has a log at a fixed offset (LUPIN §3.5). A live instance records there the
//! locks that it holds or is about to take, the changes that it is about to make under them, and
//! its current operation. When it is dead, one survivor (or the id's next incarnation) *claims* the
//! log, completes the recorded work, releases the locks and settles the log for the next
//! incarnation.
//!
//! # The log of one id
//!
//! ```text
//!  0x000  owner            the instance that the contents belong to
//!  0x040  claim            the instance that may write to the log: its owner, a recoverer, or none
//!  0x080  operation 0   \  the running operation and the one before it;
//!  0x100  operation 1   /  sequence numbers say which is which
//!  0x180  inherited        the last operation of the previous incarnation, with its result
//!  0x200  locks            32 words: offset and kind of each lock held or being taken
//!  0x300  redo             sequence number, commit word, busy flag
//!  0x400  redo records     192 pairs: target with size, value
//!  0x1000 queue nodes      32 lines, one per lock entry: used by queue locks
//!  0x1800 scratch area     2 KiB for the layers above: 1 KiB for the heap, 1 KiB for the program
//!  0x2000 the next id's log
//! ```
//!
//! Words that are written together share a cache line; words of different writers never do.
//!
//! # Correctness
//!
//! *One writer.* The claim word names the only instance that may write to the log or apply it. It
//! moves by compare-and-swap alone, and only away from an instance that is dead: from the dead
//! owner to a recoverer, from a dead recoverer to the next. An instance is dead when its generation
//! has been raised, and that happens only after it can no longer write (contract 1). So a recoverer
//! that is merely slow is never overtaken, and one that was overtaken cannot execute a late plain
//! store. A recoverer that cannot finish (it lacks a handler) may give the claim back to the dead
//! instance, because no value that was read before the claim is used after it.
//!
//! *No interference.* A lock in a dead instance's log stays locked until the holder of the claim
//! releases it, so until then no other instance changes the words that the redo records change.
//! Plain stores therefore suffice for them.
//!
//! *Idempotence.* The steps of recovery are: claim, redo, scratch areas settled, operation, locks,
//! scratch areas released, inheritance, settle. Each step leaves the log such that re-executing it
//! has the same effect: redo records are absolute values and are retired only after all were
//! applied; handlers of operations are required to be restartable; a lock is released by a
//! compare-and-swap from the dead instance, and its entry is cleared after it. If the recoverer
//! dies, the next one begins at the first step.
//!
//! *Order.* Redo and scratch areas precede the handler, because the handler must find the structure
//! without half-done changes. The handler precedes the locks, because once they are released other
//! members may change the structure, and the handler could no longer tell whether the operation
//! took effect. The claim is settled before the state of the id moves from dead to recovered: the
//! next incarnation, which waits for that state, finds a log without a claimant.
//!
//! Under [`WriteBack`](outlive_memory::PersistenceDomain::WriteBack) a word of a log is written
//! back before the step that it records, so the log of a dead host's instance never lags behind the
//! instance's actions; see [`OwnLog::list`] and [`Redo`] for where.

mod handler;
pub(crate) mod kinds;
mod layout;
mod log;
mod operation;
mod recover;
mod redo;

pub use handler::{RecoverLock, RecoverOperation, RecoverRoom, Recovering};
pub use layout::Logs;
pub use log::{CloseError, Listed, Log, LogClosePoint, LogOpenPoint, OwnLog, TooManyLocks};
pub use log::{LockEntry, LockKind};
pub use operation::{
    BadOperation, Operation, OperationKind, OperationPoint, Progress, RunningOperation,
};
pub use recover::{RecoverError, RecoverPoint, Recovered, Recoverers};
pub use redo::{Redo, RedoError, RedoPoint};
