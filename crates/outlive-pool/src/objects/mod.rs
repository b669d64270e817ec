//! Leased objects: bytes by name, immutable once sealed, in the memory of servers. A survivor gives
//! back the leases of a dead client. No process serves the objects.
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
//! * **Release**: the lease is given up. If that has destroyed the object, the releasing thread
//!   frees the memory. If it dies before, `collect` of any member frees it, and so does an
//!   allocation that finds too little memory. They also free the memory if the last lease was a
//!   short one of a call that does not free memory: a listing, or a lookup that leased the object
//!   and then found its name removed.
//! * **Evict**: the evictor leases the object, and marks it, unless it is pinned. If the object has
//!   no other lease, the evictor unlinks it. A user that leases it at the same moment keeps its
//!   lease; the memory is then freed when that lease ends. The mark excludes a concurrent pin.
//!
//! Tests: tests/objects.rs, tests/processes.rs; proofs: lab/outlive-proofs/src/memory_pool.

mod evict;
mod lease;
mod open_stores;
mod store;

pub use lease::{SealedObject, UnsealedObject};
pub use store::{ObjectState, ObjectStatus, ObjectStore};
