//! ReCXL's logging: the logging units of the compute nodes, and the logs in the memory nodes.
//!
//! Parts as those in [`parts`](crate::parts): plain state without events, asked by the machine when a message has arrived;
//! they answer with what follows and when. All are `Clone` and depend on nothing but their inputs. In the steady state,
//! logging allocates nothing; a dump does.
//!
//! * [`ReplicaGroups`]: which nodes log a line, and which of them saves it. [`Numbering`]: how a node numbers its commits
//!   and VALs.
//! * [`LoggingUnit`]: logs REPLs in its SRAM, validates them by VALs, moves them to its DRAM log in order, dumps that, and
//!   looks for the latest versions of lines.
//! * [`DumpBarrier`]: in a memory node; leads the rounds in which all units dump and clear.
//! * [`Archive`]: in each memory node; keeps what the units have saved.
//! * [`LatestWords`]: what a recovery makes of all that.
//!
//! # What the machine calls
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
//! # What recovery calls
//!
//! The order of a recovery, its waits, and why it loses nothing, stand in [`replication`](crate::protocol::replication); what
//! it calls here is this.
//!
//! | when | it calls |
//! | --- | --- |
//! | the fabric has drained | [`Archive::lose`] and [`DumpBarrier::lose`] for the dead, which may bring the round under way to its end; no other begins before the last |
//! | at a node's restart, before InitRecov | [`LoggingUnit::forget`] for *every* node, the living too, since what has not committed starts over with new REPLs |
//! | a directory repairs lines of the dead | [`LoggingUnit::fetch`] of all living units (the line's group suffices) and [`Archive::fetch`] of all archives, all offered to [`LatestWords`] |
//! | in the last round, under the old groups | what it calls in any round |
//! | all have cleared, before any core goes on | [`LoggingUnit::regroup`] |
//!
//! With the last round, whatever the living have committed is in an archive, and of the logs nothing is left but what a dead node
//! has validated in some of them. Each step may be done again if another node dies.
//!
//! # What the paper leaves open
//!
//! * **Which REPL a VAL means** is told by a sequence of its core, and **which of two updates is later** by the number of
//!   the commit among those of its node. Timestamps count the VALs from one node to one unit; they say when a unit may
//!   move an entry, are stripped then, and could not be compared between units anyway. So an entry has 24 bytes: requester
//!   2, commit 4 (until the VAL: the sequence), epoch 4, word 6, value 8. A timestamp is kept only where a VAL came early.
//! * **A full SRAM** lets entries go to DRAM. **A full DRAM log** asks for a dump; what comes until it is cleared stands
//!   in the spill area behind it (in the same DRAM, at the same cost). A dump reads
//!   [`dump_entries_per_cycle`](crate::description::Replication::dump_entries_per_cycle), and as many can come in a cycle as the
//!   unit is wide: what is logged while a dump lasts piles up there. Refusing a REPL could stop the machine, and refusing a VAL would fill the SRAM with what is committed.
//! * **Whom FetchLatestVers asks**: all living units and all memory nodes at once, where the paper asks the memory nodes only if no replica
//!   has the line. Which of the answers is the latest is told by epoch and commit, so more of them do no harm, and nobody waits twice.
//! * **What is unvalidated in a recovery** is dropped whole: a REPL's entries are validated together. If its node lives, the
//!   store has not committed, and starts over.
//! * **What "its whole log" is**, and why nothing is lost whoever dies in the middle of a dump: see [`DumpBarrier`].
//! * **The order between two nodes' updates of a word** is that of the epochs at which they owned the line, which the line's
//!   directory counts ([`Directory::epoch`](crate::protocol::Directory::epoch)). A recovery never has to compare two: memory
//!   is current for all that was committed before the epoch of the present owner, and after it nobody else has written.
//! * **When the logs in the memory nodes are truncated**: an entry may go when its line's directory does not have its node and
//!   epoch as the line's owner any more, or a later commit of the node to the word is there too; at any time, and by answers of
//!   any age. See [`Archive::truncate`].
//! * **Which recovery a message belongs to** need not be said, for none begins before all that was sent before it has arrived.

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
