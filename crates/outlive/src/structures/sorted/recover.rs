//! The recovery of structures: completes operations of dead members, from the memory alone.

use super::chain::{Judgement, clear_pending, expel, mark, seek};
use super::destroy::{DESTROY, Destruction};
use super::header::{Header, Kind};
use super::node::{CLAIMED, INLINE, SEALED, SEEN, SORT, VALUE, stamp, target};
use super::operation::{
    ADD_PAGE, BLOCK_CELL, CREATE, INSERT, OPEN_BUCKETS, PAGE_CELL, REMOVE, REPLACE,
};
use crate::heap::{Heap, LocalHeap, Pinned};
use crate::recovery::{Operation, RecoverError, RecoverOperation, Recoverers, Recovering};
use outlive_memory::{Memory, Offset, Ordering};

/// Adds the handlers for structures whose blocks are from `heap`.
///
/// ```
/// # use outlive::{heap, memory::{Native, Offset, PersistenceDomain}, recovery::Logs, sync};
/// # let memory = Native::leaked(1 << 20, PersistenceDomain::Flushed);
/// # let logs = Logs::new(memory, Offset::new(4096), 4);
/// # let (state, region) = (Offset::new(1 << 16), Offset::new(1 << 17));
/// use outlive::{heap::Heap, structures};
///
/// let heap = Heap::create(memory, state, region, 100 * 4096)?;
/// let recoverers = heap::recoverers_of(heap::recoverers(sync::recoverers(logs)), heap);
/// let recoverers = structures::recoverers(recoverers, heap);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn recoverers<M: Memory>(recoverers: Recoverers<M>, heap: Heap<M>) -> Recoverers<M> {
    recoverers
        .operation(CREATE, Creation { heap })
        .operation(INSERT, Insertion { heap })
        .operation(REMOVE, Removal { heap })
        .operation(REPLACE, Replacement { heap })
        .operation(OPEN_BUCKETS, Opening { heap })
        .operation(ADD_PAGE, Addition { heap })
        .operation(DESTROY, Destruction { heap })
}

fn header<M: Memory>(memory: M, operation: &Operation) -> Result<Header<M>, RecoverError> {
    let at = Offset::from_raw(operation.arguments[0]);
    Header::read(memory, at).map_err(|error| RecoverError::Handler(error.to_string()))
}

impl<M: Memory> Header<M> {
    /// Returns the starting node for an entry of this sort, without opening anything.
    pub(super) fn start_for(&self, sort: u64) -> Offset {
        match self.kind {
            Kind::List => self.head(),
            Kind::Map => self.nearest(sort.reverse_bits()),
        }
    }
}

/// Clears the pending-allocation cell if it still holds `block`, which is linked.
fn release<M: Memory>(heap: &LocalHeap<'_, M>, pending: u64, block: u64) {
    let held: u64 = heap
        .memory()
        .load(heap.pending_cell(pending), Ordering::Relaxed);
    if held == block {
        clear_pending(heap, pending);
    }
}

struct Creation<M: Memory> {
    heap: Heap<M>,
}

impl<M: Memory> RecoverOperation<M> for Creation<M> {
    fn recover(&self, dead: &Recovering<'_, M>, operation: &Operation) -> Result<(), RecoverError> {
        let heap = LocalHeap::of_the_dead(self.heap, dead);
        let [header, cell, ..] = operation.arguments;
        let held: u64 = heap
            .memory()
            .load(Offset::from_raw(cell), Ordering::Acquire);
        if held == header {
            release(&heap, BLOCK_CELL, header);
            dead.running(operation).finish(&[]);
        } else {
            dead.running(operation).abandon(&[]);
        }
        Ok(())
    }
}

/// Recovers an insertion. It took effect if the node is in the list, or was: then it is sealed.
struct Insertion<M: Memory> {
    heap: Heap<M>,
}

impl<M: Memory> RecoverOperation<M> for Insertion<M> {
    fn recover(&self, dead: &Recovering<'_, M>, operation: &Operation) -> Result<(), RecoverError> {
        let (heap, memory) = (LocalHeap::of_the_dead(self.heap, dead), self.heap.memory());
        let header = header(memory, operation)?;
        let node = Offset::from_raw(operation.arguments[1]);
        let pin = heap.pin();
        // The walk first: a member that removes the node meanwhile seals it before it takes it out.
        if is_linked(&header, &pin, node)
            || memory.load::<u64>(node + VALUE, Ordering::Acquire) & SEALED != 0
        {
            release(&heap, BLOCK_CELL, node.raw());
            dead.running(operation).finish(&[]);
        } else {
            dead.running(operation).abandon(&[]);
        }
        Ok(())
    }
}

/// Returns whether `node` is in the list.
fn is_linked<M: Memory>(header: &Header<M>, pin: &Pinned<'_, M>, node: Offset) -> bool {
    let memory = header.memory;
    let sort: u64 = memory.load(node + SORT, Ordering::Relaxed);
    let mut met = false;
    seek(memory, pin, header.start_for(sort), sort, |found| {
        met |= found == node;
        if met {
            Judgement::Behind
        } else {
            Judgement::Before
        }
    });
    met
}

/// Recovers a removal. It took effect if the node's seal has the operation's stamp.
struct Removal<M: Memory> {
    heap: Heap<M>,
}

impl<M: Memory> RecoverOperation<M> for Removal<M> {
    fn recover(&self, dead: &Recovering<'_, M>, operation: &Operation) -> Result<(), RecoverError> {
        let (heap, memory) = (LocalHeap::of_the_dead(self.heap, dead), self.heap.memory());
        let header = header(memory, operation)?;
        let node = Offset::from_raw(operation.arguments[1]);
        let pin = heap.pin();
        let seal = SEALED | stamp(operation.instance.id, operation.sequence);
        if memory.load::<u64>(node + VALUE, Ordering::Acquire) != seal {
            dead.running(operation).abandon(&[]);
            return Ok(());
        }
        let sort: u64 = memory.load(node + SORT, Ordering::Relaxed);
        mark(memory, node);
        expel(memory, &pin, header.start_for(sort), sort);
        // The dead member retired the value first, then the node, and nothing else since it began.
        if !heap.is_last_retired(node) {
            retire_value_once(&heap, operation.note);
            heap.retire(node);
        }
        dead.running(operation).finish(&[]);
        Ok(())
    }
}

/// Retires the block of a replaced value, unless it is inline or the dead member has retired it.
fn retire_value_once<M: Memory>(heap: &LocalHeap<'_, M>, word: u64) {
    if word & INLINE == 0 && !heap.is_last_retired(target(word)) {
        heap.retire(target(word));
    }
}

/// Recovers a replacement. It took effect if the block is in its place, or was: then its replacer
/// has marked it as seen.
struct Replacement<M: Memory> {
    heap: Heap<M>,
}

impl<M: Memory> RecoverOperation<M> for Replacement<M> {
    fn recover(&self, dead: &Recovering<'_, M>, operation: &Operation) -> Result<(), RecoverError> {
        let (heap, memory) = (LocalHeap::of_the_dead(self.heap, dead), self.heap.memory());
        let [_, node, block, ..] = operation.arguments;
        // Acquire, and this load first: a member that replaced the block marked it before.
        let value: u64 = memory.load(Offset::from_raw(node) + VALUE, Ordering::Acquire);
        let seen = || memory.load::<u64>(Offset::from_raw(block) + SEEN, Ordering::Relaxed) != 0;
        if value == block || seen() {
            release(&heap, BLOCK_CELL, block);
            retire_value_once(&heap, operation.note);
            dead.running(operation).finish(&[]);
        } else {
            dead.running(operation).abandon(&[]);
        }
        Ok(())
    }
}

struct Opening<M: Memory> {
    heap: Heap<M>,
}

impl<M: Memory> RecoverOperation<M> for Opening<M> {
    fn recover(&self, dead: &Recovering<'_, M>, operation: &Operation) -> Result<(), RecoverError> {
        let heap = LocalHeap::of_the_dead(self.heap, dead);
        let header = header(heap.memory(), operation)?;
        let claim = CLAIMED | stamp(operation.instance.id, operation.sequence);
        let first = operation.arguments[1];
        header.recover_buckets(&heap.pin(), first, claim, dead.running(operation));
        Ok(())
    }
}

/// Recovers the addition of a page, which took effect if it is linked: links to pages never change.
struct Addition<M: Memory> {
    heap: Heap<M>,
}

impl<M: Memory> RecoverOperation<M> for Addition<M> {
    fn recover(&self, dead: &Recovering<'_, M>, operation: &Operation) -> Result<(), RecoverError> {
        let heap = LocalHeap::of_the_dead(self.heap, dead);
        let [_, slot, page, ..] = operation.arguments;
        let held: u64 = heap
            .memory()
            .load(Offset::from_raw(slot), Ordering::Acquire);
        if held == page {
            release(&heap, PAGE_CELL, page);
            dead.running(operation).finish(&[]);
        } else {
            dead.running(operation).abandon(&[]);
        }
        Ok(())
    }
}
