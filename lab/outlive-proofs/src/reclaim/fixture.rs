//! A heap in a pod of four ids, and blocks that are linked, unlinked and retired in it.

#![allow(dead_code)] // each proof and test uses its part of this

use super::pod::{DATA, Pod, SIZE, region_behind};
use outlive::heap::{self, Heap, LocalHeap, Pinned};
use outlive::membership::Member;
use outlive::memory::{Memory, Offset, Ordering};
use outlive::recovery::{
    Operation, OperationKind, OwnLog, RecoverError, RecoverOperation, Recovering,
};
use outlive::sync;

/// The size of the region that the heap manages, unless a test chooses another.
pub const REGION: u64 = 64 << 10;
const STATE: Offset = Offset::new(SIZE);
/// The size of a block with its header, and a word for the payload.
pub const BLOCK: u64 = 32;
const PAYLOAD: u64 = 24;

/// Returns the size of a memory for a region of that size.
pub fn bytes_for<M: Memory>(region: u64) -> u64 {
    region_behind::<M>(region).1.next_multiple_of(4096)
}

/// Opens the pod, with recoverers that know the heap.
pub fn pod<M: Memory>(memory: M) -> Pod<M> {
    let mut pod = Pod::new(memory);
    let heap = heap(memory);
    pod.recoverers = heap::recoverers_of(heap::recoverers(sync::recoverers(pod.logs)), heap)
        .operation(REMOVE, Removal);
    pod
}

/// Creates the heap, and returns its pod.
pub fn create<M: Memory>(memory: M, region: u64) -> Pod<M> {
    create_heap(memory, region);
    pod(memory)
}

pub fn create_heap<M: Memory>(memory: M, region: u64) {
    let (at, _) = region_behind::<M>(region);
    Heap::create(memory, STATE, at, region).expect("a heap");
}

/// Begins the next era, as a member does that allocates a lot.
pub fn move_on<M: Memory>(memory: M) {
    memory.fetch_add(STATE + 128, 1u64, Ordering::Relaxed);
}

pub fn heap<M: Memory>(memory: M) -> Heap<M> {
    Heap::open(memory, STATE).expect("a heap")
}

/// Returns `member`'s heap handle.
pub fn local<'m, M: Memory>(pod: &'m Pod<M>, member: &'m Member<M>) -> LocalHeap<'m, M> {
    LocalHeap::of(heap(pod.memory), member, &pod.recoverers)
}

/// Returns the word through which a block is reached.
pub fn link(index: u64) -> Offset {
    DATA + index * 8
}

/// Allocates a block with `payload` into a pending-allocation cell of its maker.
pub fn block<M: Memory>(local: &LocalHeap<'_, M>, payload: u64) -> Offset {
    let memory = local.memory();
    let block = local
        .allocate_into(BLOCK, local.pending_cell(0))
        .expect("there is free space");
    memory.store(block, local.era(), Ordering::Relaxed);
    memory.store(block + 8, 0u64, Ordering::Relaxed);
    memory.store(block + PAYLOAD, payload, Ordering::Relaxed);
    block
}

/// Links a new block at `index`.
pub fn put<M: Memory>(local: &LocalHeap<'_, M>, index: u64, payload: u64) -> Offset {
    let (memory, block) = (local.memory(), block(local, payload));
    memory.store(link(index), block.raw(), Ordering::Release);
    memory.store(local.pending_cell(0), 0u64, Ordering::Relaxed);
    block
}

/// Unlinks the block at `index` and returns it; `None` if there is none.
pub fn take<M: Memory>(memory: M, index: u64) -> Option<Offset> {
    let word: u64 = memory.exchange(link(index), 0, Ordering::AcqRel);
    (word != 0).then(|| Offset::from_raw(word))
}

const REMOVE: OperationKind = OperationKind::new(98);

/// Unlinks the block at `index` and retires it, as an operation of a structure does.
pub fn remove<M: Memory>(local: &LocalHeap<'_, M>, index: u64) {
    let (memory, pin) = (local.memory(), local.pin());
    let operation = OwnLog::of(local.member()).begin(REMOVE, &[index]);
    let word = pin.load(link(index));
    if word != 0 {
        // The block about to be removed, for the handler.
        memory.store(local.pending_cell(1), word, Ordering::Relaxed);
        take(memory, index);
        local.retire(Offset::from_raw(word));
        memory.store(local.pending_cell(1), 0u64, Ordering::Release);
    }
    operation.finish(&[]);
}

struct Removal;

impl<M: Memory> RecoverOperation<M> for Removal {
    fn recover(&self, dead: &Recovering<'_, M>, operation: &Operation) -> Result<(), RecoverError> {
        let memory = dead.member().memory();
        let local = LocalHeap::of_the_dead(heap(memory), dead);
        let pending = local.pending_cell(1);
        let word: u64 = memory.load(pending, Ordering::Relaxed);
        let linked: u64 = memory.load(link(operation.arguments[0]), Ordering::Acquire);
        let block = Offset::from_raw(word);
        if word != 0 && word != linked && !local.is_last_retired(block) {
            local.retire(block);
        }
        memory.store(pending, 0u64, Ordering::Release);
        dead.running(operation).abandon(&[]);
        Ok(())
    }
}

/// Returns the block at `index`, and its payload.
pub fn read<M: Memory>(pin: &Pinned<'_, M>, memory: M, index: u64) -> Option<(Offset, u64)> {
    let word = pin.load(link(index));
    let block = (word != 0).then(|| Offset::from_raw(word))?;
    Some((block, memory.load(block + PAYLOAD, Ordering::Relaxed)))
}

/// Returns the number of retired blocks in the log of `id`.
pub fn retired<M: Memory>(pod: &Pod<M>, id: u32) -> usize {
    heap(pod.memory).retired(pod.logs.of(id)).count()
}
