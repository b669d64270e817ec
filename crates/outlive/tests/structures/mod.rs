//! A pod with a heap, and in it a map and a list that are led to by two words.

use super::pod;
use outlive::memory::{Native, PersistenceDomain};

#[path = "../../../../lab/outlive-prove/src/fixtures/structures.rs"]
mod fixture;

pub use fixture::*;

/// A pod in which nobody has joined, with a heap of so many bytes.
#[allow(dead_code)] // not every test wants native memory
pub fn world(region: u64) -> World<Native> {
    let memory = Native::leaked(bytes_for::<Native>(region), PersistenceDomain::Flushed);
    create(memory, region)
}
