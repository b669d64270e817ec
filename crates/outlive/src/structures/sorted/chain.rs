//! The list that lists and maps are made of: Harris's, as Michael changed it, sorted by one word.
//! The [module](super) has the argument.

use super::datum::Datum;
use super::error::InsertError;
use super::header::Header;
use super::node::{INLINE, MARK, NEXT, OPENING, SEALED, SEEN, SORT, Typed, VALUE, stamp, target};
use super::operation::{
    BLOCK_CELL, INSERT, InsertPoint, REMOVE, REPLACE, RemovePoint, ReplacePoint,
};
use crate::heap::buddy::AllocateError;
use crate::heap::{LocalHeap, Pinned};
use crate::recovery::{OwnLog, RunningOperation};
use outlive_memory::{Memory, Offset, Ordering};

/// The relation of a node to the searched key, which has the same sort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Judgement {
    /// Another node; the searched one comes after it.
    Before,
    /// The searched node.
    Found,
    /// Another node; the searched one would come before it.
    Behind,
}

/// Where a walk ended.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    /// At the node.
    Node {
        node: Offset,
        /// The word of its value, which is not sealed.
        value: u64,
        /// The word that leads to the node.
        link: Offset,
    },
    /// The gap where the node would be: between this word and its target.
    Gap { link: Offset, next: u64 },
}

/// Walks from `start`, a bucket or the head, to the node of `sort` that `judge` finds, and unlinks
/// removed nodes on the way. Lock-free.
///
/// The returned place is protected by `pin`.
///
/// # Panics
/// If the list is damaged and has a cycle: a search of it would not end.
#[inline(always)]
pub(super) fn seek<M: Memory>(
    memory: M,
    pin: &Pinned<'_, M>,
    start: Offset,
    sort: u64,
    mut judge: impl FnMut(Offset) -> Judgement,
) -> Place {
    let mut steps = 0u32;
    'walk: loop {
        let mut link = start + NEXT;
        let mut word = pin.load(link);
        loop {
            let node = target(word);
            let next = pin.load(node + NEXT);
            if next & (MARK | OPENING) != 0 {
                if next & MARK == 0 {
                    // A bucket that is in the list, but not marked as open yet.
                    open(memory, node, next);
                    continue;
                }
                match unlink(memory, link, word, next) {
                    Some(after) => word = after,
                    None => continue 'walk,
                }
                continue;
            }
            // Relaxed: written before the node was linked.
            let its: u64 = memory.load(node + SORT, Ordering::Relaxed);
            if its >= sort {
                // The tail has the largest possible sort and leads nowhere.
                if its > sort || next == 0 {
                    return Place::Gap { link, next: word };
                }
                match judge(node) {
                    Judgement::Before => {}
                    Judgement::Behind => return Place::Gap { link, next: word },
                    Judgement::Found => {
                        let value = pin.load(node + VALUE);
                        if value & SEALED == 0 {
                            return Place::Node { node, value, link };
                        }
                        // Removed, if not yet marked: it must not come before a successor with its
                        // key. Its target may have been linked since `next` was loaded, and be
                        // younger than the pin covers. So it is loaded again, frozen, through the
                        // pin.
                        mark(memory, node);
                        continue;
                    }
                }
            }
            steps = steps.wrapping_add(1);
            if steps.is_multiple_of(STEPS_BETWEEN_CHECKS) {
                refuse_ring(pin, start);
            }
            link = node + NEXT;
            word = next;
        }
    }
}

/// The number of nodes that a search passes between two checks for a cycle.
const STEPS_BETWEEN_CHECKS: u32 = 1 << 20;

/// Panics if the list from `start` has a cycle.
#[cold]
#[inline(never)]
fn refuse_ring<M: Memory>(pin: &Pinned<'_, M>, start: Offset) {
    let (mut node, mut ring) = (start, Ring::default());
    loop {
        let next = pin.load(node + NEXT);
        // The nodes behind a removed node are not protected: the search that unlinks it checks
        // later.
        if next == 0 || next & MARK != 0 {
            return;
        }
        node = target(next);
        assert!(
            !ring.closes(node),
            "a list is damaged at {node}: it has a cycle; run `outlive pod check`"
        );
    }
}

/// Detects a cycle in a walk (Brent's algorithm): each node is compared with one node that the walk
/// has met, and a later node replaces that one after twice as many steps.
#[derive(Default)]
pub(super) struct Ring {
    met: Option<Offset>,
    steps: u64,
}

impl Ring {
    pub(super) fn closes(&mut self, node: Offset) -> bool {
        let closes = self.met == Some(node);
        self.steps += 1;
        if self.steps.is_power_of_two() {
            self.met = Some(node);
        }
        closes
    }
}

/// Takes the [`OPENING`] mark from a bucket that has been linked.
#[cold]
pub(super) fn open<M: Memory>(memory: M, bucket: Offset, next: u64) {
    // Failure: another member did it, or something is linked behind it already.
    let order = (Ordering::AcqRel, Ordering::Relaxed);
    let _ = memory.compare_exchange(bucket + NEXT, next, next & !OPENING, order.0, order.1);
}

/// Freezes the link of a sealed node and returns it. The caller may store it in a link, but not
/// follow it, because no pin covers the result of a read-modify-write.
pub(super) fn mark<M: Memory>(memory: M, node: Offset) -> u64 {
    // AcqRel: the caller is about to link its successor in its place.
    memory.fetch_or(node + NEXT, MARK, Ordering::AcqRel) | MARK
}

/// Takes a marked node out of the list, from between `link` and `next`. Returns its successor,
/// which may be followed if `next` was loaded through the pin.
#[cold]
fn unlink<M: Memory>(memory: M, link: Offset, node: u64, next: u64) -> Option<u64> {
    let after = next & !MARK;
    // Release: other members wrote the successor. Acquire: after a failure the walk begins again.
    let order = (Ordering::AcqRel, Ordering::Relaxed);
    memory
        .compare_exchange(link, node, after, order.0, order.1)
        .is_ok()
        .then_some(after)
}

/// Ensures that the marked node of `sort` cannot be reached from `start`.
pub(super) fn expel<M: Memory>(memory: M, pin: &Pinned<'_, M>, start: Offset, sort: u64) {
    seek(memory, pin, start, sort, |_| Judgement::Before);
}

/// Retires the block of a replaced value, unless it is in its node.
fn retire_value<M: Memory>(heap: &LocalHeap<'_, M>, word: u64) {
    if word & INLINE == 0 {
        heap.retire(target(word));
    }
}

/// Marks the block of a value as seen in its place.
#[inline(always)]
fn see<M: Memory>(memory: M, word: u64) {
    if word & INLINE == 0 {
        // Relaxed: the compare-and-swap that follows releases it.
        memory.store(target(word) + SEEN, 1u64, Ordering::Relaxed);
        memory.write_back(target(word) + SEEN, 8);
    }
}

/// Clears a pending-allocation cell whose block is linked.
#[inline(always)]
pub(super) fn clear_pending<M: Memory>(heap: &LocalHeap<'_, M>, pending: u64) {
    let (memory, at) = (heap.memory(), heap.pending_cell(pending));
    // Release: it is linked before.
    memory.store(at, 0u64, Ordering::Release);
    memory.persist(at, 8);
}

/// Frees the block in a pending-allocation cell: it was not linked and will not be.
#[cold]
pub(super) fn free_pending<M: Memory>(heap: &LocalHeap<'_, M>, pending: u64) {
    // A damaged heap refuses; the cell remains occupied, and the next allocation reports that.
    let _ = heap.free_from(heap.pending_cell(pending), 0);
}

/// Allocates a block into a pending-allocation cell.
#[inline(always)]
pub(crate) fn allocate_pending<M: Memory>(
    heap: &LocalHeap<'_, M>,
    bytes: u64,
    pending: u64,
) -> Result<Offset, AllocateError> {
    match heap.allocate_into(bytes, heap.pending_cell(pending)) {
        Err(error @ AllocateError::CellOccupied { .. }) => {
            take_after_a_panic(heap, bytes, pending, error)
        }
        taken => taken,
    }
}

/// Allocates when the cell is occupied: a panic ended an earlier operation before it began or when
/// it had been undone. No other code uses the block in the cell.
#[cold]
fn take_after_a_panic<M: Memory>(
    heap: &LocalHeap<'_, M>,
    bytes: u64,
    pending: u64,
    error: AllocateError,
) -> Result<Offset, AllocateError> {
    if !heap.is_idle() {
        return Err(error);
    }
    free_pending(heap, pending);
    heap.allocate_into(bytes, heap.pending_cell(pending))
}

/// An operation that has not taken effect. A drop, also by a panic of the program's own code,
/// undoes it. The next operation then frees the block in the pending-allocation cell.
struct Undoing<'m, M: Memory>(Option<RunningOperation<'m, M>>);

impl<M: Memory> Drop for Undoing<'_, M> {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(operation) = self.0.take() {
            operation.abandon(&[]);
        }
    }
}

/// The path of one key through a structure: where to begin, and how to recognise its node.
pub(super) struct Path<J> {
    pub start: Offset,
    pub sort: u64,
    pub judge: J,
}

/// Inserts `key` with `value` unless the key exists.
#[inline(always)]
pub(super) fn insert<K: Datum + ?Sized, V: Datum + ?Sized, M: Memory>(
    header: &Header<M>,
    heap: &LocalHeap<'_, M>,
    pin: &Pinned<'_, M>,
    path: Path<impl Fn(Offset) -> Judgement>,
    entry: (&K, &V),
) -> Result<Offset, InsertError<V::Owned>> {
    let memory = header.memory;
    let Path { start, sort, judge } = path;
    let exists = |node, value| InsertError::Exists(Typed::<K, V>::value(memory, node, value));
    let mut gap = match seek(memory, pin, start, sort, &judge) {
        Place::Node { node, value, .. } => return Err(exists(node, value)),
        Place::Gap { link, next } => (link, next),
    };
    let bytes = Typed::<K, V>::node_bytes(entry.0, entry.1);
    let node = allocate_pending(heap, bytes, BLOCK_CELL)?;
    Typed::<K, V>::fill_node(memory, node, heap.era(), sort, entry);
    memory.crash_point(InsertPoint::Filled);
    let operation = OwnLog::of(heap.member()).begin(INSERT, &[header.at.raw(), node.raw()]);
    let mut undoing = Undoing(Some(operation));
    loop {
        let (link, next) = gap;
        memory.store(node + NEXT, next, Ordering::Relaxed);
        memory.persist(node, bytes);
        // Through the pin, once more: from here on it covers the node itself, which another member
        // may remove and retire before this operation ends. AcqRel: release, for the node; acquire,
        // as part of the chain of the members that changed this word before.
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        if pin.load(link) == next
            && memory
                .compare_exchange(link, next, node.raw(), order.0, order.1)
                .is_ok()
        {
            memory.persist(link, 8);
            break;
        }
        match seek(memory, pin, start, sort, &judge) {
            Place::Node { node, value, .. } => {
                drop(undoing);
                let found = exists(node, value);
                free_pending(heap, BLOCK_CELL);
                return Err(found);
            }
            Place::Gap { link, next } => gap = (link, next),
        }
    }
    let linked = undoing.0.take();
    memory.crash_point(InsertPoint::Linked);
    clear_pending(heap, BLOCK_CELL);
    memory.crash_point(InsertPoint::Released);
    if let Some(operation) = linked {
        operation.finish(&[]);
    }
    Ok(node)
}

/// Removes the node at the end of `path`, if `wanted` accepts it and its value word; returns it and
/// its last value word.
pub(super) fn remove<M: Memory>(
    header: &Header<M>,
    heap: &LocalHeap<'_, M>,
    pin: &Pinned<'_, M>,
    path: Path<impl Fn(Offset) -> Judgement>,
    mut wanted: impl FnMut(Offset, u64) -> bool,
) -> Option<(Offset, u64)> {
    let memory = header.memory;
    let Path { start, sort, judge } = path;
    let Place::Node {
        node,
        mut value,
        link,
    } = seek(memory, pin, start, sort, &judge)
    else {
        return None;
    };
    if !wanted(node, value) {
        return None;
    }
    let operation = OwnLog::of(heap.member()).begin(REMOVE, &[header.at.raw(), node.raw()]);
    let seal = SEALED | stamp(heap.instance().id, operation.sequence());
    loop {
        operation.note(value);
        see(memory, value);
        memory.crash_point(RemovePoint::Noted);
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        let sealed = memory.compare_exchange(node + VALUE, value, seal, order.0, order.1);
        if sealed.is_ok() {
            memory.persist(node + VALUE, 8);
            break;
        }
        value = pin.load(node + VALUE);
        if value & SEALED != 0 || !wanted(node, value) {
            // Another member was faster.
            operation.abandon(&[]);
            return None;
        }
    }
    memory.crash_point(RemovePoint::Sealed);
    let next = mark(memory, node);
    memory.crash_point(RemovePoint::Marked);
    // Stored, not followed. The stored successor is in the list: if `link` still leads to the node,
    // the node is in the list, and any member that takes out the target of its frozen link takes
    // the node out first.
    if unlink(memory, link, node.raw(), next).is_none() {
        expel(memory, pin, start, sort);
    }
    memory.crash_point(RemovePoint::Unlinked);
    retire_value(heap, value);
    memory.crash_point(RemovePoint::ValueRetired);
    heap.retire(node);
    memory.crash_point(RemovePoint::Retired);
    operation.finish(&[]);
    Some((node, value))
}

/// The result of a replacement.
pub(super) enum Replaced {
    /// The key does not exist.
    Absent,
    /// The caller refused to replace the value of this word.
    Refused(Offset, u64),
    /// The value of this word is replaced.
    Done(Offset, u64),
}

/// Replaces the value at the end of `path` by the value that `want` returns for the current one.
pub(super) fn replace<K: Datum + ?Sized, V: Datum + ?Sized, M: Memory, W: AsValue<V>>(
    header: &Header<M>,
    heap: &LocalHeap<'_, M>,
    pin: &Pinned<'_, M>,
    path: Path<impl Fn(Offset) -> Judgement>,
    mut want: impl FnMut(Offset, u64) -> Option<W>,
) -> Result<Replaced, AllocateError> {
    let memory = header.memory;
    let found = seek(memory, pin, path.start, path.sort, &path.judge);
    let Place::Node {
        node, mut value, ..
    } = found
    else {
        return Ok(Replaced::Absent);
    };
    loop {
        let Some(wanted) = want(node, value) else {
            return Ok(Replaced::Refused(node, value));
        };
        let wanted = wanted.as_value();
        let bytes = Typed::<K, V>::block_bytes(wanted);
        let block = allocate_pending(heap, bytes, BLOCK_CELL)?;
        Typed::<K, V>::fill_block(memory, block, heap.era(), wanted);
        memory.persist(block, bytes);
        memory.crash_point(ReplacePoint::Filled);
        let arguments = [header.at.raw(), node.raw(), block.raw()];
        let operation = OwnLog::of(heap.member()).begin(REPLACE, &arguments);
        operation.note(value);
        see(memory, value);
        memory.crash_point(ReplacePoint::Noted);
        // Through the pin, as in `insert`: from here on it covers the block.
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        if pin.load(node + VALUE) == value
            && memory
                .compare_exchange(node + VALUE, value, block.raw(), order.0, order.1)
                .is_ok()
        {
            memory.persist(node + VALUE, 8);
            memory.crash_point(ReplacePoint::Replaced);
            clear_pending(heap, BLOCK_CELL);
            memory.crash_point(ReplacePoint::Released);
            retire_value(heap, value);
            memory.crash_point(ReplacePoint::Retired);
            operation.finish(&[]);
            return Ok(Replaced::Done(node, value));
        }
        operation.abandon(&[]);
        free_pending(heap, BLOCK_CELL);
        value = pin.load(node + VALUE);
        if value & SEALED != 0 {
            return Ok(Replaced::Absent);
        }
    }
}

/// A value to be written: the caller's, or one computed from the old value.
pub(super) trait AsValue<V: ?Sized> {
    fn as_value(&self) -> &V;
}

impl<V: ?Sized> AsValue<V> for &V {
    fn as_value(&self) -> &V {
        self
    }
}

/// A value computed from another.
pub(super) struct Made<V: Datum + ?Sized>(pub V::Owned);

impl<V: Datum + ?Sized> AsValue<V> for Made<V> {
    fn as_value(&self) -> &V {
        V::borrow(&self.0)
    }
}
