//! Leased objects: bytes by name, immutable once sealed, in the memory of servers, with leases that
//! the death of a client gives back. No process serves them.
//!
//! A leased object is a named object of the pod's heap, so its name and its leases are those of
//! [`outlive::objects`]; its bytes are an allocation of the pool. The two are bound together by the
//! seal: one compare-and-swap, which changes the owner of the memory from the creator to the
//! object.
//!
//! * **Create**: memory is allocated for the creator, then the named object is created with its
//!   address. If the creator dies, its memory is freed, and a member that finds the name unlinks
//!   it.
//! * **Get**: the name is opened, which leases the object; then the owner word says whether it is
//!   sealed. The memory of a sealed object is freed only when the named object is destroyed, which
//!   the lease prevents.
//! * **Release**: the lease is given up. If that has destroyed the object, the caller frees the
//!   memory. If it dies before, `collect` of any member does, and so does an allocation that finds
//!   too little memory. The last lease may also be that of a member that looked the name up, and
//!   found it removed when it had leased the object; then the memory is freed in the same way.
//! * **Evict**: the evictor marks the object, unless it is pinned. If it has no other users, the
//!   evictor unlinks it. A user that comes at the same moment has its lease; then the memory is
//!   freed when that ends. The mark excludes a pin at the same time.
//!
//! Tests: tests/objects.rs, tests/objects_killed.rs; proofs: lab/outlive-proofs/src/memory_pool.

mod evict;
mod lease;
mod open_stores;
mod store;

pub use lease::{SealedObject, UnsealedObject};
pub use store::{ObjectState, ObjectStatus, ObjectStore};
