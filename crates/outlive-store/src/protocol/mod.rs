//! The transaction protocol `pandora` (*Tandem* thesis, sections 4.2.3 and 4.3): strictly
//! serializable transactions on tables, by one-sided verbs only.
//!
//! A [`Worker`] belongs to one thread of a compute server. Its [`Coordinator`]s execute one
//! transaction at a time each, and overlap their verbs with those of the others.
//!
//! # Steps of a transaction
//!
//! 1. *Execution.* A read is one batch of four READs: latch and version, value, latch, version. The
//!    value is accepted if both pairs are equal and the latch is free or stray. (A single READ does
//!    not suffice, because its words are read in any order.) A write latches the object by a CAS of
//!    the [transaction's id](crate::tables::TransactionId), and reads it in the same batch. New
//!    values remain in the compute server.
//! 2. *Validation*, after all latches are held: the latches and versions of the objects that were
//!    only read are read again. Each version must be equal, and each latch free or stray.
//! 3. *Logging.* One WRITE to each of the f + 1 log servers holds the addresses, versions and old
//!    values of all objects that are written.
//! 4. *Commit*, after all log copies are complete: to each replica of each object, a WRITE of the
//!    value and then one of the version. After their completion, the transaction is committed.
//! 5. *Unlatching*: a WRITE of 0 to each latch on the primaries.
//!
//! Before step 3 an attempt changes no remote word but latches. Every failure up to then ends in an
//! abort, which releases the latches that the attempt holds, and no other.
//!
//! # Deaths of compute servers
//!
//! [`recover_logs`] decides on each logged transaction of a dead compute server: if all its writes
//! are on all live replicas, they remain, else they are undone. Then the process id is marked as
//! failed. A latch that remains has no log entry and protects no change, so it is *stray*: readers
//! ignore it, and writers steal it by a CAS from exactly this word (implicit latch logging).
//!
//! # Strict serializability
//!
//! A committed transaction takes effect at the beginning of its validation. At that time it holds
//! the latches of all objects that it writes, and each object that it only read has the version
//! that was read: versions rise, and the validation sees the same one later. Conflicting
//! transactions are therefore ordered as their effects on each object are. A transaction that reads
//! one object and writes none takes effect at the first READ of the version, and is not validated.
//!
//! # Losses of memory servers
//!
//! The *epoch* is the number of memory servers that were lost, and of steps of restorations. The
//! primary of an object is its first complete replica that is not lost in the epoch. A server that
//! is lost takes its latches with it, so a new primary is used only after the epoch is *settled*:
//!
//! * A commit is [registered](Member::enter_commit) in the epoch of its attempt, and ends as an
//!   abort if that is over. The registration ends with the attempt.
//! * Before a worker begins an attempt in a new epoch, it waits until no commit of an earlier one
//!   is registered. A commit under way completes on the replicas that are left, or, if its log was
//!   not complete, removes its entry and ends as an abort.
//! * The registration of a dead compute server ends after the recovery of its logs.
//! * Lost log servers are replaced at the beginning of an epoch, or later, when memory servers have
//!   joined. Their entries are lost with them.
//!
//! An attempt that has not begun its commit delays nothing, however long its body runs.
//!
//! # Broken connections
//!
//! After a connection has broken, a worker connects again. An attempt that has not logged ends and
//! is retried, and a commit or a recovery under way posts its verbs again: see the table at the
//! head of the module `connections`. On mapped memory connections do not break.
//!
//! # Restorations
//!
//! A replica [joins](crate::tables::Place::step) with one step of a restoration, and is complete
//! from the next one on. In between it receives all writes, and each object is
//! [copied](copy_partition) to it under its latch. It cannot be the primary. A recovery reads and
//! undoes the replicas that were in use in the epoch of the logged transaction.

mod addresses;
mod chains;
mod check;
mod commit;
mod connections;
mod coordinator;
mod copying;
mod counts;
mod error;
mod fanout;
mod index;
mod log;
mod logging;
mod outcome;
mod policy;
mod records;
mod recovery;
mod recycle;
#[cfg(test)]
mod small_view;
mod snapshot;
mod transaction;
mod variant;
mod view;
mod words;
mod worker;

pub use check::{Checked, Incomplete, check};
pub use coordinator::{Committed, Coordinator, Retry};
pub use copying::{Copied, copy_partition, reach};
pub use counts::Counts;
pub use error::{Abort, Conflict, RecoverLogsError, TransactionError};
pub use log::{Decision, LogArea, LogEntry, LoggedObject};
pub use outcome::{LastCommit, Outcome};
#[cfg(feature = "proofs")]
pub use policy::Flaw;
pub use policy::Policy;
#[cfg(feature = "proofs")]
pub use recovery::recover_logs_in_groups;
pub use recovery::{Recovered, SLOTS_PER_GROUP, recover_logs, slots_in_use};
pub use recycle::release_stray;
pub use snapshot::Rows;
pub use transaction::Transaction;
pub use variant::Protocol;
pub use view::{Member, NoSlot, Slot, View};
pub use worker::{Table, Worker};
