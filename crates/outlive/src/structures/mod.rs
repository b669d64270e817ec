//! Structures in shared memory, in the heap and without locks: detectable, so that a survivor can
//! find out whether an operation of a dead member took effect, and complete it.
//!
//! * [`Map`], a hash map, and [`List`], a sorted list: one algorithm, in `sorted`.
//!
//! Keys and values are [`Datum`]s: plain data, strings or bytes, and with the feature `serde`
//! any type that serde can encode.
//!
//! Tests: `tests/structures_*.rs`; proofs: `lab/outlive-proofs/src/structures`.

mod datum;
#[cfg(feature = "serde")]
mod encoded;
mod error;
mod sorted;

pub use datum::{Datum, OrderedDatum};
#[cfg(feature = "serde")]
pub use encoded::{Encode, Encoded};
pub use error::{CreateError, InsertError, OpenError};
pub use sorted::{
    Action, AddPagePoint, Blocks, CreatePoint, DestroyError, DestroyPoint, DoublePoint, Exchange,
    Finding, InPlace, InsertPoint, Iter, List, Map, OpenBucketsPoint, Outcome, RemovePoint,
    ReplacePoint, Report, ValueRef, recoverers,
};
pub(crate) use sorted::{
    Snapshot, allocate_pending, blocks_of, check_all, dismantle, entries_of, snapshot_of,
};
