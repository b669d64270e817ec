//! The destruction of a structure: all of its memory is returned to the heap.
//!
//! The caller is the last user of the structure. The structure is taken apart from its head. Each
//! block is freed out of the word that leads to it, by one
//! [step](crate::heap::LocalHeap::free_from) of the heap's, which stores in that word the next
//! block to be freed. So the structure itself records how far its destruction has come, and a
//! member that continues it begins at the beginning:
//!
//! 1. *claim*: compare-and-swap the header's first word to a seal with the operation's stamp. From
//!    here on no member can open it as a structure. Then check once more whether an operation on it
//!    is running, and take the claim back if so;
//! 2. *note* the claim in the descriptor, before anything is freed: the destruction took effect;
//! 3. free the block of the first entry's value out of its value word, then the entry's node out of
//!    the head, which then leads to the second entry; repeat until the list is empty. A bucket is
//!    part of a page: the head passes it;
//! 4. free the pages of the directory, those of buckets first, out of the words that lead to them;
//! 5. put the header into a pending-allocation cell, too, and clear the structure's cell by a
//!    compare-and-swap; from now on a new structure can be created there. Then free the header out
//!    of the pending-allocation cell. (Not out of the structure's cell: the cell of a step belongs
//!    to its owner until the owner is recovered, and this one is open to all as soon as it is 0.
//!    The kill sweep found that out.)
//!
//! # Recovery of a dead caller
//!
//! If the cell leads to a header with the dead member's seal, and the descriptor has the note, then
//! the recovering member continues with 3. With the seal and no note it takes the claim back.
//! Otherwise, if the descriptor has the note, all was done, except for the block that may be in the
//! pending-allocation cell; without the note nothing was done. A new structure in the same cell,
//! even in the same block, is not mistaken for the old one, because it has another first word.
//!
//! # Operations of other members
//!
//! The handlers for insertions and the other operations read the structure that their operation
//! names. So a structure is not destroyed while any log names it in an operation that is not
//! settled: the error names the instance to recover. Earlier removed nodes and values that wait for
//! their readers are in the retired lists of the members that removed them.

use super::chain::free_pending;
use super::check::Finding;
use super::datum::{Datum, OrderedDatum};
use super::error::OpenError;
use super::header::{ENTRY_BYTES, Header, Kind};
use super::node::{INLINE, MARK, NEXT, OPENING, SEALED, SORT, VALUE, stamp, target};
use super::operation::{BLOCK_CELL, CREATE};
use super::{List, Map};
use crate::heap::buddy::{CorruptTree, FreeError};
use crate::heap::{Heap, LocalHeap};
use crate::membership::{Instance, InstanceId};
use crate::recovery::kinds::CoreOperation;
use crate::recovery::{
    Operation, OperationKind, OwnLog, RecoverError, RecoverOperation, Recovering,
};
use outlive_memory::{Memory, Offset, Ordering, crash_points};

/// Destroys a structure. Arguments: the structure, the cell. Note: 1 once it is claimed. The last
/// of the operations on structures: the first argument of all from [`CREATE`] on is a structure.
pub(super) const DESTROY: OperationKind = CoreOperation::DestroyStructure.kind();

/// The claim is noted.
const NOTED: u64 = 1;

crash_points! {
    /// The crash points of the destruction of a structure.
    pub enum DestroyPoint for "structure.destroy" {
        /// The structure is claimed, and the claim may be given back.
        Claimed,
        /// The claim is noted: the destruction took effect. Nothing is freed.
        Noted,
        /// The block of an entry's value is free.
        ValueFreed,
        /// An entry's node is free.
        NodeFreed,
        /// The head has passed a bucket.
        Passed,
        /// A page of the directory is free.
        PageFreed,
        /// The header is in the pending-allocation cell too.
        Taken,
        /// The cell is 0.
        Cleared,
        /// The header is free.
        HeaderFreed,
    }
}

/// The reason why a structure was not destroyed, or not completely.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DestroyError {
    /// The cell does not lead to it.
    #[error(
        "the cell at {cell} holds {holds:#x}, which does not lead to the structure at {structure}; \
         pass the cell in which it was created"
    )]
    Elsewhere {
        /// The cell.
        cell: Offset,
        /// The value of the cell.
        holds: u64,
        /// The structure.
        structure: Offset,
    },
    /// The structure no longer exists, or its header is damaged.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The structure is damaged; nothing is freed, because a damaged link could free memory in use.
    #[error(
        "the structure is damaged in {count} places, first at {first}; nothing was freed: run \
         `outlive pod check`"
    )]
    Damaged {
        /// The first finding.
        first: Finding,
        /// The number of findings.
        count: usize,
    },
    /// An operation on it is running, or its caller is dead and not recovered.
    #[error(
        "{by} has an unfinished operation on the structure; let it finish, or, if it is dead, \
         recover it"
    )]
    InUse {
        /// The instance whose operation it is.
        by: Instance,
    },
    /// The heap refused a block. The structure is destroyed; its remaining memory is lost.
    #[error("the structure was destroyed, but not all of its memory was freed: {0}")]
    Free(#[from] FreeError),
}

impl<K: Datum + ?Sized, V: Datum + ?Sized, M: Memory> Map<K, V, M> {
    /// Destroys the map that the word at `cell` leads to: all of its blocks are returned to the
    /// heap, and the cell is 0. Returns the number of blocks.
    ///
    /// The caller is the last user of the map: no handle on it is used any more, by any member.
    /// Earlier removed values are freed as usual, when they have no more readers. Waits for a live
    /// holder of the allocator's lock if a value is larger than [`Heap::LARGEST_SMALL`].
    ///
    /// # Errors
    /// See [`DestroyError`]: if the cell leads elsewhere, the map is damaged, or an operation on it
    /// is running, nothing is changed.
    ///
    /// # Crash
    /// The map is whole, or after recovery all of it is free and the cell is 0; the log says which.
    pub fn destroy(self, heap: &LocalHeap<'_, M>, cell: Offset) -> Result<u64, DestroyError> {
        destroy(heap, self.offset(), cell)
    }
}

impl<K: OrderedDatum + ?Sized, V: Datum + ?Sized, M: Memory> List<K, V, M> {
    /// Destroys the list that the word at `cell` leads to, as [`Map::destroy`] does a map.
    ///
    /// # Errors
    /// Returns the errors of [`Map::destroy`].
    ///
    /// # Crash
    /// The outcome is that of a crash in [`Map::destroy`].
    pub fn destroy(self, heap: &LocalHeap<'_, M>, cell: Offset) -> Result<u64, DestroyError> {
        destroy(heap, self.offset(), cell)
    }
}

fn destroy<M: Memory>(
    heap: &LocalHeap<'_, M>,
    at: Offset,
    cell: Offset,
) -> Result<u64, DestroyError> {
    let memory = heap.memory();
    let holds: u64 = memory.load(cell, Ordering::Acquire);
    if holds != at.raw() {
        let structure = at;
        return Err(DestroyError::Elsewhere {
            cell,
            holds,
            structure,
        });
    }
    let header = Header::read(memory, at)?;
    if let Some(by) = user(heap, at, None) {
        return Err(DestroyError::InUse { by });
    }
    refuse_damage(&header)?;
    if memory.load::<u64>(heap.pending_cell(BLOCK_CELL), Ordering::Relaxed) != 0 && heap.is_idle() {
        // A panic ended an earlier operation; its block in the cell has no other user.
        free_pending(heap, BLOCK_CELL);
    }
    let operation = OwnLog::of(heap.member()).begin(DESTROY, &[at.raw(), cell.raw()]);
    let seal = SEALED | stamp(heap.instance().id, operation.sequence());
    // AcqRel: the last users' accesses come before the seal, and a member that finds the seal sees
    // all that this thread knows.
    let order = (Ordering::AcqRel, Ordering::Relaxed);
    if let Err(magic) = memory.compare_exchange(at, Header::<M>::MAGIC, seal, order.0, order.1) {
        // Another member destroys it.
        operation.abandon(&[]);
        return Err(OpenError::NotOne { at, magic }.into());
    }
    memory.persist(at, 8);
    memory.crash_point(DestroyPoint::Claimed);
    // SeqCst: an operation that another member begins from here on finds the seal, or we find it.
    memory.fence(Ordering::SeqCst);
    if let Some(by) = user(heap, at, Some(heap.instance().id)) {
        // Release: nothing was changed. It does not fail.
        let order = (Ordering::Release, Ordering::Relaxed);
        let _ = memory.compare_exchange(at, seal, Header::<M>::MAGIC, order.0, order.1);
        memory.persist(at, 8);
        operation.abandon(&[]);
        return Err(DestroyError::InUse { by });
    }
    operation.note(NOTED);
    memory.crash_point(DestroyPoint::Noted);
    let freed = tear_down(heap, &header, cell);
    operation.finish(&[]);
    Ok(freed?)
}

/// Returns an error for a damaged structure.
fn refuse_damage<M: Memory>(header: &Header<M>) -> Result<(), DestroyError> {
    let findings = header.check().findings;
    let count = findings.len();
    match findings.into_iter().next() {
        Some(first) => Err(DestroyError::Damaged { first, count }),
        None => Ok(()),
    }
}

/// Returns an instance, other than `but`, that is in the middle of an operation on the structure at
/// `at`, or that died in one and is not recovered.
fn user<M: Memory>(
    heap: &LocalHeap<'_, M>,
    at: Offset,
    but: Option<InstanceId>,
) -> Option<Instance> {
    let logs = heap.logs();
    let mut others = (0..logs.capacity()).filter(|id| Some(*id) != but);
    others.find_map(|id| {
        let last = logs.of(id).operation().ok().flatten()?;
        let names_it = (CREATE..=DESTROY).contains(&last.kind) && last.arguments[0] == at.raw();
        (names_it && !last.is_done()).then_some(last.instance)
    })
}

/// Frees the structure that the word at `cell` leads to, out of that word. Only the caller, or the
/// dead member in whose name it acts, knows the cell; so it can be cut short anywhere, and begun
/// again. With `is_first` nothing is freed of a damaged structure.
pub(crate) fn dismantle<M: Memory>(
    heap: &LocalHeap<'_, M>,
    cell: Offset,
    is_first: bool,
) -> Result<(), DestroyError> {
    let memory = heap.memory();
    // Relaxed: only the caller knows the cell.
    let at = Offset::from_raw(memory.load(cell, Ordering::Relaxed));
    if at.is_null() {
        return Ok(());
    }
    let header = Header::read(memory, at)?;
    if is_first {
        refuse_damage(&header)?;
    }
    empty(heap, &header)?;
    heap.free_or_owe(cell, 0)?;
    memory.crash_point(DestroyPoint::HeaderFreed);
    Ok(())
}

/// Frees the rest of a claimed structure; returns the number of blocks freed.
fn tear_down<M: Memory>(
    heap: &LocalHeap<'_, M>,
    header: &Header<M>,
    cell: Offset,
) -> Result<u64, FreeError> {
    let (memory, pending) = (header.memory, heap.pending_cell(BLOCK_CELL));
    let freed = empty(heap, header)?;
    // Relaxed: the caller's own word.
    memory.store(pending, header.at.raw(), Ordering::Relaxed);
    memory.persist(pending, 8);
    memory.crash_point(DestroyPoint::Taken);
    // Release: the header is in the pending-allocation cell. It fails only if rules are broken.
    let order = (Ordering::Release, Ordering::Relaxed);
    let _ = memory.compare_exchange(cell, header.at.raw(), 0, order.0, order.1);
    memory.persist(cell, 8);
    memory.crash_point(DestroyPoint::Cleared);
    heap.free_or_owe(pending, 0)?;
    memory.crash_point(DestroyPoint::HeaderFreed);
    Ok(freed + 1)
}

/// Frees all blocks of a structure but its header; returns their number.
fn empty<M: Memory>(heap: &LocalHeap<'_, M>, header: &Header<M>) -> Result<u64, FreeError> {
    let memory = header.memory;
    // Relaxed, here and below: only the caller accesses the structure. It acquired the structure
    // with its claim, or with the claim on the dead member's log.
    let load = |at: Offset| -> u64 { memory.load(at, Ordering::Relaxed) };
    let (head, tail) = (header.head_at(), header.tail());
    let mut freed = 0;
    let mut free = |at: Offset, instead: u64, point: DestroyPoint| {
        heap.free_or_owe(at, instead)?;
        memory.crash_point(point);
        freed += 1;
        Ok::<(), FreeError>(())
    };
    // A damaged list may be a ring.
    let mut left = memory.size() / ENTRY_BYTES;
    loop {
        let node = target(load(head));
        if node == tail {
            break;
        }
        left = left.checked_sub(1).ok_or(FreeError::Corrupt(CorruptTree {
            at: head,
            what: "the list does not end",
        }))?;
        let next = load(node + NEXT) & !(MARK | OPENING);
        let is_bucket = header.kind == Kind::Map && load(node + SORT) & 1 == 0;
        // A sealed node belongs to its remover, which has retired it.
        if is_bucket || load(node + VALUE) & SEALED != 0 {
            memory.store(head, next, Ordering::Relaxed);
            memory.persist(head, 8);
            memory.crash_point(DestroyPoint::Passed);
            continue;
        }
        if load(node + VALUE) & INLINE == 0 {
            free(node + VALUE, INLINE, DestroyPoint::ValueFreed)?;
        }
        free(head, next, DestroyPoint::NodeFreed)?;
    }
    let links = |page: u64| {
        let words =
            (0..1u64 << header.sizes.page).map(move |link| Offset::from_raw(page) + link * 8);
        words.filter(move |at| page != 0 && load(*at) != 0)
    };
    let first = load(header.directory_at());
    for second in links(first) {
        for buckets in links(load(second)) {
            free(buckets, 0, DestroyPoint::PageFreed)?;
        }
        free(second, 0, DestroyPoint::PageFreed)?;
    }
    if first != 0 {
        free(header.directory_at(), 0, DestroyPoint::PageFreed)?;
    }
    Ok(freed)
}

/// Completes a destruction that took effect.
pub(super) struct Destruction<M: Memory> {
    pub(super) heap: Heap<M>,
}

impl<M: Memory> RecoverOperation<M> for Destruction<M> {
    fn recover(&self, dead: &Recovering<'_, M>, operation: &Operation) -> Result<(), RecoverError> {
        let (heap, memory) = (LocalHeap::of_the_dead(self.heap, dead), self.heap.memory());
        let [at, cell, ..] = operation.arguments;
        let (at, cell) = (Offset::from_raw(at), Offset::from_raw(cell));
        let seal = SEALED | stamp(operation.instance.id, operation.sequence);
        let running = dead.running(operation);
        let damaged = |error: String| RecoverError::Handler(error);
        let is_there = memory.load::<u64>(cell, Ordering::Acquire) == at.raw()
            && memory.load::<u64>(at, Ordering::Acquire) == seal;
        if is_there && running.noted() != NOTED {
            // The dead member may not have checked yet whether another operation is running, so its
            // claim is taken back. Release: nothing was changed.
            memory.store(at, Header::<M>::MAGIC, Ordering::Release);
            memory.persist(at, 8);
            running.abandon(&[]);
        } else if is_there {
            let header = Header::read_sealed(memory, at, seal);
            let header = header.map_err(|error| damaged(error.to_string()))?;
            tear_down(&heap, &header, cell).map_err(|error| damaged(error.to_string()))?;
            running.finish(&[]);
        } else if running.noted() == NOTED {
            // The heap frees the block in the pending-allocation cell.
            running.finish(&[]);
        } else {
            running.abandon(&[]);
        }
        Ok(())
    }
}
