//! ReCXL's logging: the logging units of the compute nodes, and the logs in the memory nodes.
//!
//! Parts as those in [`parts`](crate::parts): plain state without events, which the machine asks
//! when a message has arrived; they answer with the consequences and their times. All are `Clone`
//! and depend on nothing but their inputs. In steady state, logging allocates nothing; a dump does.
//!
//! * [`ReplicaGroups`]: the nodes that log a line, and the node that saves it. [`Numbering`]: the
//!   counters of a node's commits and VALs.
//! * [`LoggingUnit`]: logs REPLs in its SRAM, validates them by VALs, moves them to its DRAM log in
//!   order, dumps that log, and searches for the latest versions of lines.
//! * [`DumpBarrier`]: in a memory node; leads the rounds in which all units dump and clear.
//! * [`Archive`]: in each memory node; keeps the dumps of the units.
//! * [`LatestWords`]: the contents that a recovery derives from all logs.
//!
//! # Calls of the machine
//!
//! | when | it calls | and then |
//! | --- | --- | --- |
//! | a REPL arrives | [`LoggingUnit::log`] | REPL_ACK leaves at [`Logged::ack`] |
//! | a store commits | [`Numbering::commit`], and [`timestamp`](Numbering::timestamp) for each replica | a VAL to each |
//! | a VAL arrives | [`LoggingUnit::validate`] | if [`full`](Validated::full), [`DumpBarrier::ask`] |
//! | each dump period | [`DumpBarrier::begin`] | [`Begin`] to the units |
//! | a `Begin` arrives | [`LoggingUnit::begin`] | [pieces](Share::pieces) to an archive, or [`Saved`] to the barrier |
//! | a piece arrives | [`Archive::receive`] | with the last one, [`Stored`] to the unit |
//! | a `Stored` arrives | [`LoggingUnit::stored`] | `Saved` to the barrier |
//! | a `Saved` arrives | [`DumpBarrier::saved`] | with the last one, [`Clear`] to the units |
//! | a `Clear` arrives | [`LoggingUnit::clear`] | [`Cleared`] to the barrier: [`DumpBarrier::cleared`] |
//! | a dump is whole, and the archive has grown | [`Archive::truncate`], with what directories have [told](Standing) | |
//!
//! # Calls of a recovery
//!
//! [`replication`](crate::protocol::replication) describes the order of a recovery, its waits, and
//! why it loses nothing; this table has its calls in this module.
//!
//! | when | it calls |
//! | --- | --- |
//! | the fabric has drained | [`Archive::lose`] and [`DumpBarrier::lose`] for the dead, which may bring the round under way to its end; no other begins before the last |
//! | at a node's restart, before InitRecov | [`LoggingUnit::forget`] for *every* node, the living too, since what has not committed starts over with new REPLs |
//! | a directory repairs lines of the dead | [`LoggingUnit::fetch`] of all living units (the line's group suffices) and [`Archive::fetch`] of all archives, all offered to [`LatestWords`] |
//! | in the last round, under the old groups | the calls of any round |
//! | all have cleared, before any core goes on | [`LoggingUnit::regroup`] |
//!
//! With the last round, all commits of the living nodes are in an archive, and the logs hold
//! nothing but entries that a dead node has validated in some of them. If another node dies, steps
//! may be re-executed.
//!
//! # Questions that the paper leaves open
//!
//! * **The REPL that a VAL validates** is named by a sequence of its core, and **the later of two
//!   updates** is decided by the number of the commit among those of its node. Timestamps count the
//!   VALs from one node to one unit; they say when a unit may move an entry, are stripped then, and
//!   could not be compared between units anyway. So an entry has 24 bytes: requester 2, commit 4
//!   (until the VAL: the sequence), epoch 4, word 6, value 8. A timestamp is kept only where a VAL
//!   came early.
//! * **A full SRAM** lets entries go to DRAM. **A full DRAM log** asks for a dump; entries that
//!   arrive before it is cleared are in the spill area behind it (in the same DRAM, at the same
//!   cost). A dump reads
//!   [`dump_entries_per_cycle`](crate::description::Replication::dump_entries_per_cycle), and as
//!   many entries can arrive in a cycle as the unit is wide: entries that are logged during a dump
//!   accumulate there. Refusing a REPL could stop the machine, and refusing a VAL would fill the
//!   SRAM with committed entries.
//! * **The receivers of FetchLatestVers** are all living units and all memory nodes at once; the
//!   paper asks the memory nodes only if no replica has the line. Epoch and commit tell the latest
//!   answer, so more answers are harmless, and nothing waits twice.
//! * **Unvalidated entries in a recovery** are dropped as a whole: a REPL's entries are validated
//!   together. If its node lives, the store has not committed, and starts over.
//! * **The meaning of "its whole log"**, and why a death during a dump loses nothing: see
//!   [`DumpBarrier`].
//! * **The order between two nodes' updates of a word** is that of the epochs at which they owned
//!   the line, which the line's directory counts
//!   ([`Directory::epoch`](crate::protocol::Directory::epoch)). A recovery never has to compare
//!   two: memory is current for all commits before the epoch of the present owner, and no other
//!   node has written since.
//! * **Truncation of the logs in the memory nodes**: an entry may be dropped when its line's
//!   directory no longer has its node and epoch as the line's owner, or when a later commit of the
//!   node to the word is there too; at any time, and by answers of any age. See
//!   [`Archive::truncate`].
//! * **The recovery to which a message belongs** need not be named, because none begins before all
//!   earlier messages have arrived.

mod archive;
mod barrier;
mod buffer;
mod dump;
mod entry;
mod error;
mod form;
mod groups;
mod log;
mod message;
mod needs;
mod port;
mod share;
mod unit;
mod versions;

pub use crate::protocol::Epoch;
pub use archive::{Archive, Standing, Truncated};
pub use barrier::{Advance, DumpBarrier};
pub use dump::{Begin, Begun, Clear, Cleared, Piece, Saved, Stored};
pub use entry::{Commit, LogEntry, Requester};
pub use error::{FormError, LoggingError};
pub use form::{ENTRY_BYTES, Unpacked, pack, unpack};
pub use groups::ReplicaGroups;
pub use log::Through;
pub use message::{Numbering, Repl, ReplAck, Val};
pub use share::Share;
pub use unit::{Logged, LoggingCounts, LoggingUnit, Validated};
pub use versions::{LatestWords, LineVersions};
