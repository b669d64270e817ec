//! One-sided verbs: the only operations of the transaction protocols on memory servers.
//!
//! A compute server posts [`Batch`]es of READ, WRITE, compare-and-swap (CAS) and fetch-and-add
//! (FAA) to a memory server over a [`Connection`], and awaits their completion. The memory server's
//! processors take no part. The shape is that of RDMA: registered [regions](Region) with remote
//! keys, posting, and completion queues that are polled. No protocol assumes that a remote offset
//! can be dereferenced.
//!
//! ```
//! use outlive::memory::{Native, Offset, PersistenceDomain};
//! use outlive_store::verbs::{
//!     Batch, Connection, Liveness, Mapped, Region, RemoteOffset, ServerId, block_on,
//! };
//!
//! # let memory = Native::leaked(8192, PersistenceDomain::Flushed);
//! # let region = Region { key: 1, bytes: 4096 };
//! # let liveness = Liveness { memory, at: Offset::new(64), live: 0 };
//! // A program receives the connection from `ComputeServer::connect`.
//! let server = Mapped::new(memory, ServerId(0), Offset::new(4096), region, liveness);
//! let (latch, value) = (RemoteOffset::new(0), RemoteOffset::new(8));
//! let mut batch = Batch::new();
//! let was = batch.compare_swap(latch, 0, 7);
//! let read = batch.read(value, 2);
//! let done = block_on(server.post(batch)).finished()?;
//! assert_eq!(done.value(was), 0);
//! assert_eq!(done.words(read), [0, 0]);
//! # Ok::<(), outlive_store::verbs::VerbError>(())
//! ```
//!
//! # Order and atomicity
//!
//! The rules are those of a reliable RDMA connection. Every backend obeys them, and the simulated
//! network of the proofs uses every freedom that they leave:
//!
//! * The verbs of one connection take effect in posting order, within a batch and across batches,
//!   with two exceptions: a WRITE may pass earlier READs, CAS and FAA, and a CAS or FAA may pass
//!   earlier READs. A [fenced](Batch::fence) verb passes no verb, and no verb passes it.
//! * READ and WRITE are atomic for each aligned 8 bytes only; the words of one verb are accessed in
//!   any order. CAS and FAA are atomic, also towards WRITE.
//! * There is no order between connections. A completed verb is visible to each verb that is posted
//!   after its completion, on any connection.
//!
//! # Lost answers
//!
//! A verb executes at most once per connection: loss and duplication of packets lie below the verb.
//! A connection that breaks leaves each of its outstanding verbs
//! [unknown](VerbError::Broken): executed or not, and a WRITE for each of its words. A new
//! connection to the same server opens only after the server has drained the old one, so an unknown
//! verb takes effect before the first verb of the new connection or never. The poster then
//! determines the outcome by the kind of the verb:
//!
//! * *READ*: it is posted again.
//! * *CAS from the free word to the poster's latch word*: no two CAS of a store write the same
//!   value, so a READ of the word decides. If the word has the poster's value, the CAS took effect.
//!   If not, it did not, or the recovery of the poster restored the word; in that case the poster
//!   has no rights any more. (The [protocols](crate::protocol) do not read the word. They give the
//!   latch up by a CAS from the poster's latch word, which is right in both cases.)
//! * *CAS from the poster's latch word to the free word*: if a READ shows the poster's value, the
//!   CAS did not take effect; else it did.
//! * *CAS from a stray latch word to the poster's* (it steals the latch): as from the free word.
//! * *CAS from the latch word of a failed server to the free word* (a recovery, or the scan that
//!   recycles process ids): it is posted again. The word never returns to a value of an attempt
//!   that has ended, so the second one has no effect if the first had.
//! * *WRITE under a latch that the poster holds* (values, versions, log entries): it is posted
//!   again, with the same effect.
//! * *WRITE that releases a latch*: it must not be posted again, because another server may hold
//!   the latch by then. It is replaced by a CAS from the poster's latch word.
//! * *FAA*: the outcome cannot be determined. FAA is used only where a double effect is harmless.
//!
//! # The death of a memory server
//!
//! A dead server's memory is lost. Where its bytes can still be reached (mapped memory), a survivor
//! ends the server's [liveness](Liveness) before the bytes change and before the death is reported.
//! Each batch reads the liveness word after its last verb and completes with
//! [`VerbError::ServerDied`] if the server is not live, so no caller receives bytes of a dead
//! server as a result.
//!
//! # Backends
//!
//! [`Mapped`]: the server's segment is mapped, and verbs are loads, stores and native atomics,
//! which execute when they are posted. [`Emulated`]: mapped memory behind a link with a round-trip
//! time, jitter and a bandwidth. The laboratory has a simulated network with delays, loss and
//! crashes at every verb. All of them pass one conformance suite.
//!
//! Tests: lab/outlive-proofs/tests/verbs.rs; proofs: lab/outlive-proofs/src/store.

mod batch;
mod connection;
mod emulated;
mod mapped;
mod polling;

pub use batch::{Batch, RemoteOffset, Slot, Verb, VerbKind};
pub use connection::{Completed, Connection, Region, ServerId, VerbError};
pub use emulated::{Emulated, Link, Posts};
pub use mapped::{Liveness, Mapped, POISON};
pub use polling::{block_on, join_all};
