//! A heap in a pod of four, and blocks that are linked, unlinked and retired in it.

use super::pod;

#[path = "../../../../../lab/outlive-proofs/src/reclaim/fixture.rs"]
mod fixture;

pub use fixture::*;
