//! What a dead instance leaves behind, and how exactly one other finishes it.
//!
//! Every instance id has a log at a known place (LUPIN §3.5). While an instance lives it notes there
//! which locks it holds or is about to take, the changes that it is about to make under them, and what
//! it was asked to do. When it is dead, one survivor (or the id's next incarnation) *claims* the log,
//! completes what it says, releases the locks and settles the log for the next incarnation.
//!
//! # The log of one id
//!
//! ```text
//!  0x000  owner            the instance that the contents belong to
//!  0x040  claim            who may write here now: the owner, its recoverer, or nobody
//!  0x080  operation 0   \  the running operation and the one before it;
//!  0x100  operation 1   /  sequence numbers say which is which
//!  0x180  inherited        the last operation of the previous incarnation, with its result
//!  0x200  locks            32 words: offset and kind of each lock held or being taken
//!  0x300  redo             sequence number, commit word, busy flag
//!  0x400  redo records     192 pairs: target with size, value
//!  0x1000 queue nodes      32 lines, one per lock entry: used by queue locks
//!  0x1800 room             2 KiB for the rooms above: 1 KiB for the heap, 1 KiB for the program
//!  0x2000 the next id's log
//! ```
//!
//! What is written together shares a line; what different instances write never does.
//!
//! # Why it is right
//!
//! *One writer.* The claim word names the only instance that may write to the log or apply it. It moves
//! by compare-and-swap alone, and only away from an instance that is dead: from the dead owner to a
//! recoverer, from a dead recoverer to the next. An instance is dead when its generation has been raised,
//! and that happens only after it can no longer write (contract 1). So a recoverer that is merely slow
//! is never overtaken, and one that was overtaken cannot come late with a plain store. Nothing that was
//! read before the claim is used after it, so it does no harm that a recoverer which cannot finish (it
//! lacks a handler) gives the claim back to the dead.
//!
//! *Nobody else is in the way.* A lock that stands in a dead instance's log stays locked until the holder
//! of the claim releases it, so what the redo records change is changed by nobody else meanwhile. That
//! is why plain stores suffice for them.
//!
//! *Any number of times.* Recovery goes claim, redo, rooms settled, operation, locks, rooms released,
//! inheritance, settle. Each step
//! leaves the log such that doing it again has the same effect: redo records are absolute values and
//! are retired only after all were applied; handlers of operations are required to be restartable; a
//! lock is released by a compare-and-swap from the dead instance, and its entry is cleared after it. If
//! the recoverer dies, the next one begins at the first step.
//!
//! *That order.* Redo and rooms before the handler, for the handler is to find a structure without half-done
//! changes. The handler before the locks, for after them the structure is others' to change, and whether
//! the operation took effect could no longer be told. The claim is settled before the state of the id
//! moves from dead to recovered: the next incarnation, which waits for that, finds a log that is nobody's.
//!
//! Under [`WriteBack`](outlive_memory::PersistenceDomain::WriteBack) a word of a log is written back
//! before what it announces is done, so the log of a dead host's instance is never behind its deeds; see
//! [`OwnLog::list`] and [`Redo`] for where.

mod handler;
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
