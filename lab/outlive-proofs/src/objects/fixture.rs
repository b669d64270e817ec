//! A pod with a heap, and in it a directory with named objects.

#![allow(dead_code)] // each proof and test uses its part of this

use super::pod::{HeapPod, SIZE, region_behind};
use outlive::heap::{Heap, LocalHeap};
use outlive::memory::{Memory, Offset, Ordering};
use outlive::objects::{self, Directory, Objects};
use outlive::structures::{self, Map};

const STATE: Offset = Offset::new(SIZE);
/// The size of the heap's region in bytes: 28 slabs of 32 KiB.
pub const REGION: u64 = 28 * (32 << 10);

pub type Words<M> = Map<u64, u64, M>;

/// Returns the size of the memory.
pub fn bytes<M: Memory>() -> u64 {
    region_behind::<M>(REGION).1.next_multiple_of(4096)
}

pub type World<M> = HeapPod<M>;

/// Opens the pod, with recoverers that know its heap, structures and objects.
pub fn pod<M: Memory>(memory: M) -> World<M> {
    structured(memory).with(objects::recoverers)
}

/// Opens the pod, with recoverers that know no objects.
pub fn structured<M: Memory>(memory: M) -> World<M> {
    HeapPod::open(memory, STATE).with(structures::recoverers)
}

/// Creates the heap, and returns its pod.
pub fn create<M: Memory>(memory: M) -> World<M> {
    let (at, _) = region_behind::<M>(REGION);
    Heap::create(memory, STATE, at, REGION).expect("a heap");
    pod(memory)
}

/// Returns the objects as the owner of `heap` sees them.
pub fn objects<'h, M: Memory>(heap: &'h LocalHeap<'h, M>) -> Objects<'h, M> {
    Objects::of(heap, Directory::open_or_create(heap).expect("a directory"))
}

/// The object that exists, the one that is created, and the new name of one that is renamed.
pub const KEPT: &str = "kept";
pub const MADE: &str = "made";
pub const MOVED: &str = "moved";

/// The place of the contents in the block of an object.
pub const CONTENTS: u64 = 608;

/// Returns the map of names.
pub fn names<M: Memory>(heap: Heap<M>) -> Map<str, u64, M> {
    let memory = heap.memory();
    let load = |at: Offset| Offset::from_raw(memory.load(at, Ordering::Acquire));
    Map::open(memory, load(load(heap.root()))).expect("a map")
}

/// Returns the first block of leases of `id`.
pub fn leases<M: Memory>(heap: Heap<M>, id: u32) -> Offset {
    let load = |at: Offset| Offset::from_raw(heap.memory().load(at, Ordering::Acquire));
    load(load(heap.root()) + 64 + u64::from(id) * 8)
}

/// Renames `KEPT` to `MOVED`, then restores the old entry, as if the renamer had died just before
/// it removed the entry.
pub fn leave_stale<M: Memory>(heap: &LocalHeap<'_, M>) {
    let at = names(heap.heap()).get(heap, KEPT).expect("an object");
    objects(heap).rename(KEPT, MOVED).expect("another name");
    (names(heap.heap()).insert(heap, KEPT, &at)).expect("an entry");
}
