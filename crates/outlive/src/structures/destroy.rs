//! How a structure ends: all of its memory goes back to the heap.
//!
//! Whoever destroys a structure is the last who uses it. It is taken apart from its head, and whatever is freed is freed out
//! of the word that leads to it, in one [step](crate::heap::LocalHeap::free_from) of the heap's, which puts there what
//! is to be freed next. So the structure itself says how far its destruction has come, and whoever goes on begins at
//! the beginning:
//!
//! 1. *claim*: compare-and-swap the header's first word to a seal with the operation's stamp. From here on it is not a structure
//!    to anybody who opens it. Then look once more whether somebody is in the middle of an operation on it, and take the
//!    claim back if so;
//! 2. *note* the claim in the descriptor, before anything is freed: the destruction took effect;
//! 3. of the first entry in the list, free the block of its value out of its value word, then the node out of the
//!    head, which leads to the second entry then; until the list is empty. A bucket is part of a page: the head passes it;
//! 4. free the pages of the directory, those of buckets first, out of the words that lead to them;
//! 5. put the header into a hand, too, and clear the cell by a compare-and-swap: whoever makes a structure there from
//!    now on makes a new one. Then free the header out of the hand. (Not out of the cell: the cell of a step is its
//!    owner's until he is recovered, and this one is everybody's as soon as it is 0. The sweep found that out.)
//!
//! # What the dead left
//!
//! The header that the cell leads to has the dead one's seal, and the descriptor the note: then its recoverer goes on with 3.
//! The seal and no note: it takes the claim back. Otherwise, if the
//! descriptor has the note, all was done, but for what may be in the hand; and if it has not, nothing was. A new
//! structure in the same cell, even in the same block, is not mistaken for the old one, for it has another first
//! word.
//!
//! # What others left
//!
//! The handlers for insertions and the like look into the structure that their operation names. So while any log
//! names it in an operation that is not settled, it is not destroyed: the caller is told whom to recover. What was
//! removed from the structure before and waits for its readers is in the lists of those who removed it.

use super::chain::drop_from_hand;
use super::check::Finding;
use super::datum::{Datum, OrderedDatum};
use super::error::OpenError;
use super::header::{Header, Kind};
use super::node::{INLINE, MARK, NEXT, OPENING, SEALED, SORT, VALUE, stamp, target};
use super::operation::{BLOCK_HAND, CREATE};
use super::{List, Map};
use crate::heap::buddy::FreeError;
use crate::heap::{Heap, LocalHeap};
use crate::membership::{Instance, InstanceId};
use crate::recovery::{
    Operation, OperationKind, OwnLog, RecoverError, RecoverOperation, Recovering,
};
use outlive_memory::{Memory, Offset, Ordering, crash_points};

/// Destroys a structure. Arguments: the structure, the cell. Note: 1 once it is claimed. The last of the operations on
/// structures: the first argument of all from [`CREATE`] on is a structure.
pub(super) const DESTROY: OperationKind = OperationKind::new(0x206);

/// The claim is noted.
const NOTED: u64 = 1;

crash_points! {
    /// Where the destruction of a structure may be cut short.
    pub enum DestroyPoint for "structure.destroy" {
        /// It is claimed, and may be given back.
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
        /// The header is in the hand too.
        Taken,
        /// The cell is 0.
        Cleared,
        /// The header is free.
        HeaderFreed,
    }
}

/// Why a structure was not destroyed, or not to its end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DestroyError {
    /// The cell does not lead to it.
    #[error(
        "the cell at {cell} holds {holds:#x} and does not lead to the structure at {structure}"
    )]
    Elsewhere {
        /// The cell.
        cell: Offset,
        /// What it holds.
        holds: u64,
        /// The structure.
        structure: Offset,
    },
    /// There is none any more, or its header is damaged.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// It is damaged; nothing is freed, lest what is in use be.
    #[error("the structure is damaged in {count} places, first at {first}; it is left as it is")]
    Damaged {
        /// What was found first.
        first: Finding,
        /// How much was found.
        count: usize,
    },
    /// An operation on it is running, or its caller is dead and not recovered.
    #[error("{by} is in the middle of an operation on the structure; let it end, or recover it")]
    InUse {
        /// Whose operation it is.
        by: Instance,
    },
    /// The heap refused to take back a block. The structure is gone; what is left of it is lost.
    #[error("the structure is gone, but not all of its memory was given back: {0}")]
    Free(#[from] FreeError),
}

impl<K: Datum + ?Sized, V: Datum + ?Sized, M: Memory> Map<K, V, M> {
    /// Destroys the map that the word at `cell` leads to: everything that it consists of goes back to the heap, and the
    /// cell is 0. Returns how many blocks that were.
    ///
    /// The caller is the last who uses the map: handles on it, whoever has them, are used no more. What was removed from it
    /// before is freed as ever, when nobody reads it. Waits for a living holder of the allocator's lock if a value
    /// is larger than [`Heap::LARGEST_SMALL`].
    ///
    /// # Errors
    /// See [`DestroyError`]: if the cell leads elsewhere, the map is damaged, or somebody is in the middle of an operation
    /// on it, nothing is changed.
    ///
    /// # Crash
    /// The map is there whole, or after recovery all of it is free and the cell is 0; the log says which.
    pub fn destroy(self, heap: &LocalHeap<'_, M>, cell: Offset) -> Result<u64, DestroyError> {
        destroy(heap, self.offset(), cell)
    }
}

impl<K: OrderedDatum + ?Sized, V: Datum + ?Sized, M: Memory> List<K, V, M> {
    /// Destroys the list that the word at `cell` leads to, as [`Map::destroy`] does a map.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Crash
    /// As there.
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
    let findings = header.check().findings;
    if let Some(first) = findings.first().cloned() {
        let count = findings.len();
        return Err(DestroyError::Damaged { first, count });
    }
    if memory.load::<u64>(heap.hand(BLOCK_HAND), Ordering::Relaxed) != 0 && heap.is_idle() {
        // A panic led out of an earlier operation, and what it had in its hand is nobody's.
        drop_from_hand(heap, BLOCK_HAND);
    }
    let operation = OwnLog::of(heap.member()).begin(DESTROY, &[at.raw(), cell.raw()]);
    let seal = SEALED | stamp(heap.instance().id, operation.sequence());
    // AcqRel: what the last users did comes before, and for whoever finds the seal all that we know does.
    let order = (Ordering::AcqRel, Ordering::Relaxed);
    if let Err(magic) = memory.compare_exchange(at, Header::<M>::MAGIC, seal, order.0, order.1) {
        // Another destroys it.
        operation.abandon(&[]);
        return Err(OpenError::NotOne { at, magic }.into());
    }
    memory.persist(at, 8);
    memory.crash_point(DestroyPoint::Claimed);
    // SeqCst: who begins an operation from here on finds the seal, or we find the operation.
    memory.fence(Ordering::SeqCst);
    if let Some(by) = user(heap, at, Some(heap.instance().id)) {
        // Release: nothing was changed. It fails for nobody.
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

/// Who, `but` whom, is in the middle of an operation on the structure at `at`, or died in it and is not recovered.
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

/// Frees all that is left of a claimed structure; how many blocks that was.
fn tear_down<M: Memory>(
    heap: &LocalHeap<'_, M>,
    header: &Header<M>,
    cell: Offset,
) -> Result<u64, FreeError> {
    let memory = header.memory;
    // Relaxed, here and below: the structure is the caller's alone, who acquired it with its claim, or with the claim on
    // the dead one's log.
    let load = |at: Offset| -> u64 { memory.load(at, Ordering::Relaxed) };
    let (head, tail) = (header.head_at(), header.tail());
    let mut freed = 0;
    let mut free = |at: Offset, instead: u64, point: DestroyPoint| {
        heap.free_or_owe(at, instead)?;
        memory.crash_point(point);
        freed += 1;
        Ok::<(), FreeError>(())
    };
    loop {
        let node = target(load(head));
        if node == tail {
            break;
        }
        let next = load(node + NEXT) & !(MARK | OPENING);
        let is_bucket = header.kind == Kind::Map && load(node + SORT) & 1 == 0;
        // A sealed node is its remover's, who has retired it.
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
    let hand = heap.hand(BLOCK_HAND);
    memory.store(hand, header.at.raw(), Ordering::Relaxed);
    memory.persist(hand, 8);
    memory.crash_point(DestroyPoint::Taken);
    // Release: the header is in the hand. It fails for nobody who keeps to the rules.
    let order = (Ordering::Release, Ordering::Relaxed);
    let _ = memory.compare_exchange(cell, header.at.raw(), 0, order.0, order.1);
    memory.persist(cell, 8);
    memory.crash_point(DestroyPoint::Cleared);
    free(hand, 0, DestroyPoint::HeaderFreed)?;
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
            // The dead may not have looked yet whether somebody is in the middle of an operation: it is taken back.
            // Release: nothing was changed.
            memory.store(at, Header::<M>::MAGIC, Ordering::Release);
            memory.persist(at, 8);
            running.abandon(&[]);
        } else if is_there {
            let header = Header::read_sealed(memory, at, seal);
            let header = header.map_err(|error| damaged(error.to_string()))?;
            tear_down(&heap, &header, cell).map_err(|error| damaged(error.to_string()))?;
            running.finish(&[]);
        } else if running.noted() == NOTED {
            // The heap frees what is in the hand.
            running.finish(&[]);
        } else {
            running.abandon(&[]);
        }
        Ok(())
    }
}
