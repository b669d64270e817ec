//! Logical memory pools: one pool of memory out of the memory of every server.
//!
//! A *server* is a process that lends a part of its memory to the pool. A *client* allocates memory
//! on any server, and reads and writes it by loads and stores, without processor time of the
//! server. Any of them may die at any instruction: a dead client's memory is freed, and an access
//! to the memory of a dead server uses another replica or returns a typed error
//! ([`PoolError::Lost`]), never wrong data. (E. Amaro, S. Wang, A. Panda and M. K. Aguilera,
//! *Logical Memory Pools*, HotNets 2023.)
//!
//! Built so far: servers, logical addresses, allocation with placement, guards, typed vectors,
//! counters, leased objects, slices that move between servers while they are used, and replicas.
//!
//! Begin with [`Pool`], or with [`ObjectStore`] for objects of any size with names. DESIGN.md
//! beside this crate has the invariants, the crash points, and the memory ordering of every shared
//! word.
//!
//! The modules, from the bottom up; each uses only those before it, but clients return the types of
//! `data` and `objects`: `layout`, `coherent`, `catalogue`, `pool`, `data`, `objects`.

mod catalogue;
mod coherent;
mod data;
mod error;
mod layout;
mod objects;
mod pool;

pub use coherent::{Census, Phase, ServerEntry, ServerId};
pub use data::{Counter, PoolVec};
pub use error::PoolError;
pub use layout::{Address, Sizes};
pub use objects::{ObjectState, ObjectStatus, ObjectStore, SealedObject, UnsealedObject};
pub use pool::{
    Client, Drained, Guard, MoveBudget, Placement, PlannedMove, Pool, PoolOptions, PoolStatus,
    Reader, Rebalanced, Rebalancer, Rebuilt, Redundancy, Server, ServerStatus, WriteGuard,
};

/// The tables and the algorithms on them, for proofs.
#[doc(hidden)]
pub mod internals {
    pub use crate::catalogue::find::{self, Found};
    pub use crate::catalogue::manifest::{self, Birth, Manifest};
    pub use crate::coherent::{
        AllocatePoint, Coherent, FreePoint, Home, Homes, Line, MovePoint, MoveReason, NotAllocated,
        NotMoved, Pace, Place, Recovery, ReplicaPoint, Run, SealPoint, ServerFiles, ServerPoint,
        ToWrite, Translated, Unfinished, WriteSet,
    };
    pub use crate::layout::Use;
}
