//! A pod with a heap, and in it a map and a list that two words lead to.

use super::pod;
use outlive::memory::{Native, PersistenceDomain};

#[path = "../../../../../lab/outlive-proofs/src/structures/fixture.rs"]
mod fixture;

pub use fixture::*;

/// A pod without members, with a heap of `region` bytes.
#[allow(dead_code)] // not every test wants native memory
pub fn world(region: u64) -> World<Native> {
    let memory = Native::leaked(bytes_for::<Native>(region), PersistenceDomain::Flushed);
    create(memory, region)
}
