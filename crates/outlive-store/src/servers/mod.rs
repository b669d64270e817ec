//! Memory servers and compute servers: how they join a store, leave it and die.
//!
//! A [`Store`] is a pod. Its payload holds the *configuration*: the memory servers, the changes of
//! the replicas (losses and restorations), the compute servers that have rights to them, and the
//! tables. A [`MemoryServer`] is a process of the pod with a segment of its own, which is its
//! failure domain. Verbs on the segment use no processor time of that process. A [`ComputeServer`]
//! has a *process id* of 16 bits, which its latch words contain, and
//! [connections](ComputeServer::connect) to memory servers.
//!
//! ```text
//! PATH                 the pod: membership, logs | payload: the configuration
//! PATH.TAG.memory-0.1  the segment of memory server 0, first incarnation: one area, the region
//! ```
//!
//! # Deaths
//!
//! The core's membership decides on deaths: a generation is raised only after the process can no
//! longer write. Each entry of the configuration names its owner, the instance of a process. The
//! survivor that recovers a dead owner's log recovers the owner's entries. It first claims each
//! memory server's entry, by a compare-and-swap from the dead owner to itself. If that survivor
//! dies, the member that recovers it claims the entry in turn.
//!
//! A member that joins recovers the entries of departed owners that have recovered logs, because a
//! program without handlers for stores, such as `outlive pod check --repair`, may have recovered
//! these logs.
//!
//! * *Memory server*: its state leaves *live*, after which no batch completes with success. Its
//!   region is overwritten with [`POISON`](crate::verbs::POISON) if the store poisons. Its state
//!   becomes *dead*, and it is added to the list of changes, which begins a new epoch. Its file is
//!   removed. The number is not assigned again. Its replicas are missing until a compute server
//!   [restores](ComputeServer::restore) them in other memory servers.
//! * *Compute server*: its logs are [recovered](crate::protocol::recover_logs), under a claim of
//!   its log area. Then its process id is marked as failed. When 95% of the ids are in use or have
//!   failed, a compute server that joins first releases the stray latches of all tables, and makes
//!   the failed ids available again.
//!
//! [`Detector`]s report deaths with their evidence, and suspicions, which end in fences.
//!
//! # Revocation
//!
//! [`ComputeServer::revoke`] is active-link termination: after it returns, no operation of the
//! revoked server takes effect on any memory server. On mapped memory the right to operate is the
//! mapping, so the process is fenced, that is, killed: its threads receive no error, but die. On a
//! backend with real connections the error is
//! [`VerbError::Revoked`](crate::verbs::VerbError::Revoked).
//!
//! # Memory ordering
//!
//! The words of the configuration are changed by claims (compare-and-swap, AcqRel) and by the owner
//! of the claimed entry (Release), and read with Acquire. A reader of a server's *live* state
//! therefore sees the server's region, and a member that claims an entry sees the stores of the
//! previous owner.
//!
//! Tests: tests/servers; proofs: lab/outlive-proofs/src/store.

mod catalogue;
mod claims;
mod compute_server;
mod configuration;
mod detector;
mod entries;
mod epochs;
mod error;
mod log_areas;
mod mappings;
#[cfg(feature = "measurements")]
mod measured;
mod members;
mod memory_server;
mod places;
mod process_ids;
mod recover;
mod restoration;
mod restore;
mod rights;
mod sizes;
mod stop;
mod store;

pub use catalogue::{CreateTablePoint, TableEntry, TableError};
pub use compute_server::{ComputeServer, ProcessId};
pub use configuration::{BadConfiguration, Configuration, JoinPoint, RecoverPoint, Segments};
pub use detector::{CoreDetector, Detector, Evidence, Finding};
pub use entries::{ComputeEntry, MemoryEntry, Phase, Recovery};
pub use error::StoreError;
pub use log_areas::LogPoint;
#[cfg(feature = "measurements")]
pub use measured::LogRecovery;
pub use members::{Behind, Connector, Direct, Members};
pub use memory_server::MemoryServer;
pub use process_ids::RecyclePoint;
pub use restoration::{Missing, RestorePoint};
pub use restore::{RestoreError, Restored, restore};
pub use rights::MappedServer;
pub use sizes::Sizes;
pub use stop::{StopPoint, Stopped};
pub use store::{Store, StoreOptions, StoreStatus};
