//! A memory with a directory of objects, in which all ids have joined.

use super::pod;

#[path = "../../../../../lab/outlive-proofs/src/objects/fixture.rs"]
mod fixture;

pub use fixture::*;
use outlive::memory::{Native, PersistenceDomain};

/// Returns the memory.
pub fn world() -> World<Native> {
    let world = create(Native::leaked(
        bytes::<Native>(),
        PersistenceDomain::Flushed,
    ));
    world.join_all();
    world
}

/// Asserts that nothing is allocated except the directory and the objects in it.
#[track_caller]
pub fn assert_no_leak(world: &World<Native>) {
    let blocks = {
        let member = world.act_as(3);
        let heap = world.local(&member);
        let blocks = objects(&heap).blocks().unwrap();
        heap.reclaim();
        blocks
    };
    let retired = (0..4).flat_map(|id| world.heap.retired(world.logs.of(id)));
    world
        .demand_sound(blocks.into_iter().chain(retired))
        .unwrap();
}
