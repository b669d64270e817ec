//! Memory servers and compute servers: how they join a store, leave it and die.
//!
//! A [`Store`] is a pod whose payload holds the *configuration*: which memory servers exist, which
//! compute servers have rights to them, and the epoch, which rises with each change. A
//! [`MemoryServer`] is a process with a segment of its own, its failure domain. Beyond setting up
//! and removing the segment it uses no processor time. A [`ComputeServer`] has a *process id* of 16
//! bits, which its latches will name, and [connections](ComputeServer::connect) to memory servers.
//!
//! ```text
//! PATH                 the pod: membership, logs | payload: the configuration
//! PATH.TAG.memory-0.1  the segment of memory server 0, first incarnation: one area, the region
//! ```
//!
//! # Deaths
//!
//! The core's membership decides who is dead: a generation is raised only after the process can no
//! longer write. Each entry of the configuration names its owner, the instance of a process. A
//! survivor that recovers the owner's log claims the entries that name it, by a compare-and-swap
//! from the dead owner to itself, and finishes them. If that survivor dies, its own recoverer
//! claims them in turn. A member that joins does the same for entries whose owner is gone and has a
//! recovered log, in case the recoverer knew nothing of stores (as `outlive pod check --repair`).
//!
//! * *Memory server*: its state leaves *live* (from then on no batch completes with success), its
//!   region is overwritten with [`POISON`](crate::verbs::POISON) if the store was created so, its
//!   state becomes *dead* and the epoch rises (the report), its file is removed.
//! * *Compute server*: its process id is marked as failed. The id is not given out again.
//!
//! # Revocation
//!
//! [`ComputeServer::revoke`] is active-link termination: after it returns, no operation of the
//! revoked server takes effect on any memory server. On mapped memory the right to operate is the
//! mapping, so the process is fenced, that is, killed; a thread that calls into the store there
//! does not receive an error but dies. On a backend with real connections the error is
//! [`VerbError::Revoked`](crate::verbs::VerbError::Revoked).
//!
//! # Memory ordering
//!
//! The words of the configuration are changed by claims (compare-and-swap, AcqRel) and by the owner
//! of the claimed entry (Release), and read with Acquire. A reader of a server's *live* state
//! therefore sees its region, and a member that claims an entry sees the last stores of the member
//! that it was taken from.
//!
//! Tests: tests/servers.rs; proofs: lab/outlive-proofs/src/store.

mod compute_server;
mod configuration;
mod error;
mod memory_server;
mod recover;
mod store;

pub use compute_server::{ComputeServer, MappedServer, ProcessId};
pub use configuration::{
    BadConfiguration, ComputeEntry, Configuration, JoinPoint, MemoryEntry, Phase, RecoverPoint,
    Segments,
};
pub use error::StoreError;
pub use memory_server::MemoryServer;
pub use store::{Store, StoreOptions, StoreStatus};
