//! A small heap in a pod, the operations that are cut short in it, and the invariants afterwards.

use super::pod;

#[path = "../../../../../lab/outlive-proofs/src/heap/buddy.rs"]
mod fixture;

pub use fixture::*;
