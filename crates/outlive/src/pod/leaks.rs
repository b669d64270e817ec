//! Finds leaked blocks: allocated blocks that cannot be reached from any root.
//!
//! The search is conservative, like a garbage collector without type information. It begins with
//! the words of the typed roots, of the program's own areas, of the heap's root (the directory of
//! named objects) and of the scratch areas of the members' logs (retired blocks, pending-allocation
//! cells, and the program's words). A word leads to an allocated block if it is an offset inside
//! the block, apart from the tag bits of a link. All words of a reached block are searched in turn.
//!
//! A number that happens to be such an offset can hide a leak. A block that is in use is reported
//! only if the program does not store its offset as an [`Offset`](outlive_memory::Offset) in an
//! aligned word, but shifted, relative, or in less than a word.

use super::Pod;
use crate::heap::{self, Heap};
use crate::membership::{Instance, State, Status};
use crate::recovery::Logs;
use crate::segment::AreaKind;
use outlive_memory::{Memory, Native, Offset, Ordering};

/// An allocated block that cannot be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leak {
    /// The start of the block.
    pub block: Offset,
    /// The size of the block in bytes.
    pub bytes: u64,
}

/// The incarnations of all ids, and the claimants of their logs.
#[derive(PartialEq, Eq)]
struct Standing(Vec<(Option<State>, Option<Instance>)>);

impl Standing {
    fn of(pod: &Pod) -> Self {
        let (generations, logs) = (pod.tables().generations(), pod.logs());
        let ids = 0..pod.tables().extent().ids;
        let standing = ids.map(|id| (generations.state(id).ok(), logs.of(id).claimant()));
        Self(standing.collect())
    }
}

/// The state of a search.
struct Search {
    memory: Native,
    /// The allocated blocks, sorted by their starts, and whether each has been reached.
    blocks: Vec<(Leak, bool)>,
    /// The reached blocks whose words have not been searched yet.
    due: Vec<Leak>,
}

impl Search {
    fn of(heap: Heap) -> Self {
        let blocks = heap.allocated_blocks();
        let blocks = blocks.map(|(block, bytes)| (Leak { block, bytes }, false));
        let mut blocks: Vec<_> = blocks.collect();
        blocks.sort_unstable_by_key(|(it, _)| it.block);
        Self {
            memory: heap.memory(),
            blocks,
            due: Vec::new(),
        }
    }

    /// Marks the blocks to which the words of the `bytes` bytes at `at` lead as reached.
    fn scan(&mut self, at: Offset, bytes: u64) {
        for place in (0..bytes / 8).map(|index| at + index * 8) {
            // Relaxed: the pod is not in use.
            let to = Offset::from_raw(self.memory.load(place, Ordering::Relaxed));
            let after = self.blocks.partition_point(|(it, _)| it.block <= to);
            let Some((it, is_reached)) = after.checked_sub(1).map(|at| &mut self.blocks[at]) else {
                continue;
            };
            if !*is_reached && to.raw() - it.block.raw() < it.bytes {
                *is_reached = true;
                self.due.push(*it);
            }
        }
    }
}

/// Returns the leaked blocks of the pod's heap. Returns `None` if a member may use the pod, or a
/// dead member is not recovered: an operation may then hold blocks that are not linked yet.
pub(super) fn leaks(pod: &Pod, heap: Heap) -> Option<Vec<Leak>> {
    let before = Standing::of(pod);
    let (generations, logs) = (pod.tables().generations(), pod.logs());
    let is_at_rest = |id| {
        let status = generations.state(id).map(|state| state.status);
        let is_over = matches!(status, Ok(Status::Free | Status::Left | Status::Recovered));
        is_over && logs.of(id).claimant().is_none()
    };
    if !(0..pod.tables().extent().ids).all(is_at_rest) {
        return None;
    }
    let mut search = Search::of(heap);
    for area in pod.segment().areas() {
        use AreaKind::{Other, Roots, Structures};
        if matches!(area.kind, Roots | Structures | Other(_)) {
            search.scan(area.offset, area.size);
        }
    }
    search.scan(heap.root(), 8);
    for id in 0..logs.capacity() {
        let room = logs.of(id).room();
        let first = heap::PENDING_AT;
        search.scan(room + first, Logs::<Native>::ROOM - first);
    }
    while let Some(Leak { block, bytes }) = search.due.pop() {
        search.scan(block, bytes);
    }
    // A member that joined, worked and left during the search has raised a generation.
    if Standing::of(pod) != before {
        return None;
    }
    let leaked = search.blocks.into_iter().filter(|(_, reached)| !reached);
    Some(leaked.map(|(it, _)| it).collect())
}
