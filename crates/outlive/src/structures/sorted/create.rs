//! The creation of a structure.

use super::chain::{allocate_pending, clear_pending, free_pending};
use super::datum::Datum;
use super::error::CreateError;
use super::header::{Header, Kind, Sizes};
use super::operation::{BLOCK_CELL, CREATE, CreatePoint};
use crate::heap::LocalHeap;
use crate::recovery::OwnLog;
use outlive_memory::{Memory, Offset, Ordering};

/// The default seed of the hashes.
pub(super) const SEED: u64 = 0x6F75_746C_6976_6521;

/// Creates an empty structure and stores its place in the word at `cell`, which is 0.
pub(super) fn create<K: Datum + ?Sized, V: Datum + ?Sized, M: Memory>(
    heap: &LocalHeap<'_, M>,
    cell: Offset,
    kind: Kind,
    sizes: Sizes,
    seed: u64,
) -> Result<Header<M>, CreateError> {
    let memory = heap.memory();
    let occupied = |holds| CreateError::CellOccupied { cell, holds };
    let holds: u64 = memory.load(cell, Ordering::Acquire);
    if holds != 0 {
        return Err(occupied(holds));
    }
    let bytes = Header::<M>::bytes(sizes);
    let at = allocate_pending(heap, bytes, BLOCK_CELL)?;
    let header = Header::write::<K, V>(memory, at, kind, sizes, seed);
    memory.crash_point(CreatePoint::Filled);
    let operation = OwnLog::of(heap.member()).begin(CREATE, &[at.raw(), cell.raw()]);
    // Release: the header is written.
    let order = (Ordering::Release, Ordering::Acquire);
    match memory.compare_exchange(cell, 0, at.raw(), order.0, order.1) {
        Ok(_) => {
            memory.persist(cell, 8);
            memory.crash_point(CreatePoint::Published);
            clear_pending(heap, BLOCK_CELL);
            memory.crash_point(CreatePoint::Released);
            operation.finish(&[]);
            Ok(header)
        }
        Err(holds) => {
            operation.abandon(&[]);
            free_pending(heap, BLOCK_CELL);
            Err(occupied(holds))
        }
    }
}

/// Opens the structure that `cell` leads to, or creates it.
pub(super) fn open_or_create<K: Datum + ?Sized, V: Datum + ?Sized, M: Memory>(
    heap: &LocalHeap<'_, M>,
    cell: Offset,
    kind: Kind,
    sizes: Sizes,
    seed: u64,
) -> Result<Header<M>, CreateError> {
    let memory = heap.memory();
    loop {
        let mut holds: u64 = memory.load(cell, Ordering::Acquire);
        if holds == 0 {
            match create::<K, V, M>(heap, cell, kind, sizes, seed) {
                Err(CreateError::CellOccupied { holds: others, .. }) => holds = others,
                made => return made,
            }
        }
        let opened = Header::open::<K, V>(memory, Offset::from_raw(holds), kind);
        // Acquire: after the header was read. If the structure was destroyed meanwhile, its block
        // may already have belonged to another object.
        memory.fence(Ordering::Acquire);
        if memory.load::<u64>(cell, Ordering::Acquire) == holds {
            return Ok(opened?);
        }
        memory.spin_hint();
    }
}
