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
//! | now and then | [`Archive::truncate`] | |
//!
//! # What recovery calls
//!
//! When the fabric has drained: [`LoggingUnit::forget`], [`Archive::lose`] and [`DumpBarrier::lose`] for the dead, which may
//! bring the round under way to its end. For the lines that the dead own, [`LoggingUnit::fetch`] of all living units (the
//! line's group suffices) and [`Archive::fetch`] of all archives, all offered to [`LatestWords`]. Then a last round among
//! the living under the old groups, and [`LoggingUnit::regroup`]. Each step may be done again if another node dies.
//!
//! # What the paper leaves open
//!
//! * **Which REPL a VAL means** is told by a sequence of its core, and **which of two updates is later** by the number of
//!   the commit among those of its node. Timestamps count the VALs from one node to one unit; they say when a unit may
//!   move an entry, are stripped then, and could not be compared between units anyway. So an entry has 24 bytes: requester
//!   2, commit 4 (until the VAL: the sequence), epoch 4, word 6, value 8. A timestamp is kept only where a VAL came early.
//! * **A full SRAM** lets entries go to DRAM. **A full DRAM log** asks for a dump; what comes until it is cleared stands
//!   in the spill area behind it (in the same DRAM, at the same cost). A unit reads its log as fast as it can fill it,
//!   and an eighth faster, so that is never much. Refusing a REPL could stop the machine, and refusing a VAL would fill
//!   the SRAM with what is committed.
//! * **What is unvalidated when its node dies** is dropped whole: a REPL's entries are validated together. What is unvalidated
//!   of a living node stays where it is and is [moved](LoggingUnit::regroup) as a stray.
//! * **What "its whole log" is**, and why nothing is lost whoever dies in the middle of a dump: see [`DumpBarrier`].
//!
//! # What is to be reconciled with the tables of replication
//!
//! Those, which are still to come, have epochs of 24 bits that come round (both are compared for equality alone), a number
//! of 16 bits for each REPL, timestamps for each node and group instead of the number of the commit, and recoveries that end with
//! empty logs instead of a last dump and strays. One machine will need one of each.

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
mod port;
mod share;
mod unit;
mod versions;

pub use crate::protocol::Epoch;
pub use archive::{Archive, Truncated};
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
