//! How a pool's header is published and unpublished.
//!
//! A root of the pod leads to a *cell*, one word. The cell leads to the header, or holds 0 while no
//! pool of that name exists. A thread that creates or destroys a pool notes each block that is not
//! reachable yet, or not any more, in a *pending-allocation cell*: one of the last words of the
//! program's scratch area in its log. The pending cells survive the thread's death. The next
//! incarnation of the same id checks them before it creates or destroys a pool again.
//!
//! | a death after | leaves in the pending cell | repair |
//! | --- | --- | --- |
//! | the block of a root is allocated | the block | it is published, or freed |
//! | the root is published | the same | cleared: the block is in the table of roots |
//! | the header is flagged raw | nothing | |
//! | the header is allocated | a block of any contents, even a pool's | freed unread |
//! | header and flag are cleared | a header and all blocks made for it | taken apart, then freed |
//! | the cell leads to it | the same | cleared: the header is the cell's |
//! | (destroying) it is pending | the same | cleared: the pool exists; or by another destroyer |
//! | the cell is cleared | an unreachable header | taken apart, then freed |
//!
//! Whether a pending header was published is checked against the cells of all pools, since the next
//! call may concern another name. Taking apart can be repeated after a death at any of its steps.
//! If two threads create the same pool, the first to exchange the cell's word has created it, and
//! the other takes its own header apart.

use crate::PoolError;
use crate::store::layout::{DESKS_IN_ALL, Layout, Shape};
use crate::store::staging::StagingSlot;
use crate::store::task_ports::free_all_ports;
use outlive::heap::LocalHeap;
use outlive::memory::{Memory, Native, Offset, Ordering};
use outlive::pod::Pod;
use outlive::recovery::Logs;
use outlive::segment::Roots;

outlive::memory::crash_points! {
    /// The crash points of the creation of a pool.
    pub enum MakePoint for "tasks.make" {
        /// The block of a root is in the pending cell.
        RootAllocated,
        /// The root is published, and its block is still in the pending cell.
        RootPublished,
        /// The header, which does not exist yet, is flagged raw.
        Raw,
        /// The header is in the pending cell, with arbitrary contents.
        Allocated,
        /// The header is zeroed, and no longer flagged raw.
        Cleared,
        /// The header is complete, and not yet published.
        Made,
        /// The cell leads to the header, which is still in the pending cell.
        Placed,
        /// The pending cell is cleared.
        Released,
    }
}

outlive::memory::crash_points! {
    /// The crash points of the destruction of a pool.
    pub enum DestroyPoint for "tasks.destroy" {
        /// The header is in the pending cell, and the cell still leads to it.
        InHand,
        /// The header is in no other pending cell.
        Alone,
        /// The cell is cleared: the header is in the pending cell only.
        Displaced,
        /// The ports of all tasks are free.
        PortsFreed,
        /// The staging slots are empty.
        DesksCleared,
        /// The blocks of the slots are free.
        SlotsFreed,
        /// All other blocks that the header leads to are free.
        Dismantled,
        /// The header is free.
        Freed,
    }
}

outlive::shared! {
    /// The contents of a pool's root: the offset of its header, or 0.
    struct TaskPool { header: u64 }
}

/// The pending cells of a pool's creator: the last words of the program's scratch area in its log.
const PENDING_ROOT: u64 = 1024 - 8;
const PENDING_HEADER: u64 = 1024 - 16;
/// The raw flag, this far before the pending cell: not 0 while the header is uninitialised.
const RAW: u64 = 8;

/// The prefix of the names of pools' roots.
const ROOT_PREFIX: &str = "tasks ";

fn root_name(name: &str) -> String {
    format!("{ROOT_PREFIX}{name}")
}

/// Opens the pool `name`. It is refused if its slots have impossible owners: its workers would wait
/// for them, or fail.
pub fn open(pod: &Pod, name: &str) -> Result<Layout, PoolError> {
    let memory = pod.segment().memory();
    let unknown = || PoolError::Unknown { name: name.into() };
    let root = pod.roots().find::<TaskPool>(&root_name(name))?;
    let root = root.ok_or_else(unknown)?;
    let header: u64 = memory.load(root.offset(), Ordering::Acquire);
    if header == 0 {
        return Err(unknown());
    }
    let layout = Layout::open(memory, Offset::from_raw(header))?;
    layout.slots.check_owners(pod.tables().generations())?;
    Ok(layout)
}

/// Returns the names of the existing pools, with the offsets of their headers.
fn headers<M: Memory>(memory: M, roots: Roots<M>) -> Result<Vec<(String, Offset)>, PoolError> {
    let mut headers = Vec::new();
    for root in roots.list()? {
        if let Some(name) = root.name.strip_prefix(ROOT_PREFIX)
            && roots.find::<TaskPool>(&root.name).is_ok()
        {
            let header: u64 = memory.load(root.offset, Ordering::Acquire);
            if header != 0 {
                headers.push((name.to_owned(), Offset::from_raw(header)));
            }
        }
    }
    Ok(headers)
}

/// Returns the names of the pod's pools.
pub fn names(pod: &Pod) -> Result<Vec<String>, PoolError> {
    let headers = headers(pod.segment().memory(), pod.roots())?;
    Ok(headers.into_iter().map(|(name, _)| name).collect())
}

/// The place of a pool's header, for a thread that makes or destroys the pool.
#[derive(Clone, Copy, Debug)]
pub struct Place<'h, M: Memory = Native> {
    heap: &'h LocalHeap<'h, M>,
    roots: Roots<M>,
    logs: Logs<M>,
    /// The word that leads to the header.
    cell: Offset,
    pending: Offset,
}

impl<'h> Place<'h> {
    /// Returns the place of the pool `name`, after the caller's pending cells are settled.
    pub fn of(pod: &Pod, heap: &'h LocalHeap<'h>, name: &str) -> Result<Self, PoolError> {
        Self::among(pod.roots(), pod.logs(), heap, name)
    }
}

impl<'h, M: Memory> Place<'h, M> {
    /// Returns the place of the pool `name` among `roots`, for a thread with a log among `logs`.
    pub fn among(
        roots: Roots<M>,
        logs: Logs<M>,
        heap: &'h LocalHeap<'h, M>,
        name: &str,
    ) -> Result<Self, PoolError> {
        let room = logs.of(heap.instance().id).program_room();
        let cell = root_cell(roots, room + PENDING_ROOT, heap, name)?;
        let place = Self {
            heap,
            roots,
            logs,
            cell,
            pending: room + PENDING_HEADER,
        };
        place.settle()?;
        Ok(place)
    }

    /// Returns the offset of the published header.
    pub fn header(self) -> Option<Offset> {
        let header: u64 = self.heap.memory().load(self.cell, Ordering::Acquire);
        (header != 0).then(|| Offset::from_raw(header))
    }

    /// Makes a pool at this place. Returns `None`, and leaves no block, if another thread was
    /// faster.
    pub fn make(self, shape: &Shape, text: (u64, &str)) -> Result<Option<Layout<M>>, PoolError> {
        let at = self.clear_header(shape)?;
        let layout = Layout::create(self.heap, at, shape, text);
        let layout = layout.map_err(|error| match self.settle() {
            // The first error is the one to report.
            Ok(()) | Err(_) => error,
        })?;
        self.heap.memory().crash_point(MakePoint::Made);
        if !self.fill(at) {
            self.settle()?;
            return Ok(None);
        }
        self.release();
        Ok(Some(layout))
    }

    /// Allocates a zeroed header into the pending cell.
    pub fn clear_header(self, shape: &Shape) -> Result<Offset, PoolError> {
        let Self { heap, pending, .. } = self;
        let memory = heap.memory();
        let bytes = shape.bytes::<M>();
        // Release, both: a new block has arbitrary contents, and may look like a pool.
        memory.store(pending - RAW, 1u64, Ordering::Release);
        memory.crash_point(MakePoint::Raw);
        let at = heap.allocate_into(bytes, pending)?;
        memory.crash_point(MakePoint::Allocated);
        for word in (0..bytes).step_by(8) {
            memory.store(at + word, 0u64, Ordering::Relaxed);
        }
        memory.store(pending - RAW, 0u64, Ordering::Release);
        memory.crash_point(MakePoint::Cleared);
        Ok(at)
    }

    /// Publishes the header at `at`, unless another one is published. Returns whether it did.
    pub fn fill(self, at: Offset) -> bool {
        let memory = self.heap.memory();
        // Release: the pool.
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        let filled = memory.compare_exchange(self.cell, 0, at.raw(), order.0, order.1);
        memory.crash_point(MakePoint::Placed);
        filled.is_ok()
    }

    /// Clears the pending cell, after its header was published.
    pub fn release(self) {
        let memory = self.heap.memory();
        memory.store(self.pending, 0u64, Ordering::Relaxed);
        memory.crash_point(MakePoint::Released);
    }

    /// Unpublishes the pool of `header`, and frees all its blocks. Called by the pool's last user.
    pub fn empty(self, header: Offset) -> Result<(), PoolError> {
        let memory = self.heap.memory();
        self.take(header);
        // Release: the header is in the pending cell before the cell is cleared.
        memory.store(self.cell, 0u64, Ordering::Release);
        memory.crash_point(DestroyPoint::Displaced);
        self.settle()
    }

    /// Puts the published header into the pending cell, and clears it from all other pending cells.
    pub fn take(self, header: Offset) {
        let memory = self.heap.memory();
        memory.store(self.pending, header.raw(), Ordering::Relaxed);
        memory.crash_point(DestroyPoint::InHand);
        // A thread that died with the published header in its pending cell would later find the
        // header in no cell, and take apart the block that is there by then.
        let ids = self.heap.member().generations().capacity();
        for id in 0..ids {
            let pending = self.logs.of(id).program_room() + PENDING_HEADER;
            if pending != self.pending
                && memory.load::<u64>(pending, Ordering::Acquire) == header.raw()
            {
                let order = (Ordering::AcqRel, Ordering::Relaxed);
                // If the word has changed, its owner has settled it.
                let _ = memory.compare_exchange(pending, header.raw(), 0, order.0, order.1);
            }
        }
        memory.crash_point(DestroyPoint::Alone);
    }

    /// Empties the pending cell. If its header is not published, first frees the header and all
    /// blocks that it leads to.
    pub fn settle(self) -> Result<(), PoolError> {
        let Self { heap, pending, .. } = self;
        let memory = heap.memory();
        let held: u64 = memory.load(pending, Ordering::Relaxed);
        if held == 0 || memory.load::<u64>(pending - RAW, Ordering::Relaxed) != 0 {
            if held != 0 {
                // Its maker died before it was zeroed: it leads to no other block.
                heap.free_from(pending, 0)?;
            }
            memory.store(pending - RAW, 0u64, Ordering::Release);
            return Ok(());
        }
        let at = Offset::from_raw(held);
        // Check the cells of all pools: the pending header may belong to another one.
        let headers = headers(memory, self.roots)?;
        if headers.iter().any(|(_, header)| *header == at) {
            memory.store(pending, 0u64, Ordering::Relaxed);
            return Ok(());
        }
        // A destroyer clears all other pending cells before it clears the pool's cell, and that was
        // seen cleared. So the header is taken apart only by the thread that still has it pending.
        if memory.load::<u64>(pending, Ordering::Acquire) != held {
            return Ok(());
        }
        self.take_apart(at)?;
        heap.free_from(pending, 0)?;
        memory.crash_point(DestroyPoint::Freed);
        Ok(())
    }

    /// Frees all blocks that the header at `at` leads to. Can be repeated.
    pub fn take_apart(self, at: Offset) -> Result<(), PoolError> {
        let (heap, memory) = (self.heap, self.heap.memory());
        if let Ok(layout) = Layout::open(memory, at) {
            free_all_ports(layout, heap)?;
            memory.crash_point(DestroyPoint::PortsFreed);
            for number in 0..DESKS_IN_ALL {
                StagingSlot::at(layout, number).clear(heap)?;
            }
            memory.crash_point(DestroyPoint::DesksCleared);
            layout.slots.dismantle(heap)?;
            memory.crash_point(DestroyPoint::SlotsFreed);
        }
        Layout::<M>::dismantle(heap, at)?;
        memory.crash_point(DestroyPoint::Dismantled);
        Ok(())
    }
}

/// Returns the offset of the caller's pending cell for a header.
#[cfg(test)]
pub fn pending_header(pod: &Pod, heap: &LocalHeap<'_>) -> Offset {
    pod.logs().of(heap.instance().id).program_room() + PENDING_HEADER
}

/// Returns the pending root and header in the log `id` of `logs`; 0 for none.
pub fn pending_words<M: Memory>(logs: Logs<M>, id: u32) -> [u64; 2] {
    let room = logs.of(id).program_room();
    [PENDING_ROOT, PENDING_HEADER].map(|at| logs.memory().load(room + at, Ordering::Acquire))
}

/// Returns the word that leads to the pool's header, under a root that is made if it does not
/// exist. `pending` is the pending cell for the root's block.
fn root_cell<M: Memory>(
    roots: Roots<M>,
    pending: Offset,
    heap: &LocalHeap<'_, M>,
    name: &str,
) -> Result<Offset, PoolError> {
    let (memory, name) = (heap.memory(), root_name(name));
    loop {
        let held = Offset::from_raw(memory.load(pending, Ordering::Relaxed));
        if !held.is_null() && roots.list()?.iter().any(|root| root.offset == held) {
            // It was published, and its publisher died.
            memory.store(pending, 0u64, Ordering::Relaxed);
            continue;
        }
        if let Some(root) = roots.find::<TaskPool>(&name)? {
            if !held.is_null() {
                heap.free_from(pending, 0)?;
            }
            return Ok(root.offset());
        }
        let block = if held.is_null() {
            let block = heap.allocate_into(16, pending)?;
            memory.crash_point(MakePoint::RootAllocated);
            block
        } else {
            held
        };
        memory.store(block, 0u64, Ordering::Relaxed);
        match roots.publish::<TaskPool>(&name, block) {
            // The next round finds the pending root published, or another thread's root.
            Ok(_) | Err(outlive::segment::RootError::Exists { .. }) => {
                memory.crash_point(MakePoint::RootPublished);
            }
            Err(error) => {
                heap.free_from(pending, 0)?;
                return Err(error.into());
            }
        }
    }
}
