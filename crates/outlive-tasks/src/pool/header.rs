//! How a pool's header comes into its place, and out of it again.
//!
//! A root of the pod leads to a *cell*, one word, and that to the header, or to nothing while there is no pool of that name. Who
//! makes or destroys a pool has what is not in its place *in hand*: in the last words of the program's room in
//! his log. They stay when he dies; the same id looks at them before it makes or destroys a pool again.
//!
//! | a death after | leaves in hand | what is made of it |
//! | --- | --- | --- |
//! | the block of a root is allocated | the block | it is published, or freed |
//! | the root is published | the same | struck out: it is in the table of roots |
//! | it is said that the header is raw | nothing | |
//! | the header is allocated | a block that holds anything, also what looks like a pool | freed, and not looked at |
//! | it is cleared, and said to be | a header, with all that was made for it | taken apart, then freed |
//! | the cell leads to it | the same | struck out: it is the cell's |
//! | (destroying) it is in hand | the same | struck out: the pool is still there; by who destroys it after all, before he does |
//! | the cell leads nowhere | a header that nobody can come by | taken apart, then freed |
//!
//! Whether a header in hand is in its cell is asked of all pools' cells: the next call may be about another name. Taking apart can be repeated from the
//! beginning, whoever was cut short in the middle of it. Of two that make one pool the first to exchange the cell's
//! word has made it; the other takes his own header apart.

use crate::PoolError;
use crate::crew::free_all_ports;
use crate::desk::Desk;
use crate::layout::{DESKS_IN_ALL, Layout, Shape};
use outlive::heap::LocalHeap;
use outlive::memory::{Memory, Native, Offset, Ordering};
use outlive::pod::Pod;
use outlive::recovery::Logs;
use outlive::segment::Roots;

outlive::memory::crash_points! {
    /// Where the making of a pool may be cut short.
    pub enum MakePoint for "tasks.make" {
        /// The block of a root is in hand.
        RootAllocated,
        /// The root is published, and its block is in hand still.
        RootPublished,
        /// It is said that the header, which is not there yet, is raw.
        Raw,
        /// The header is in hand, and holds anything.
        Allocated,
        /// It is clear, and said to be.
        Cleared,
        /// It is whole, and nobody sees it.
        Made,
        /// It is in its place, and in hand still.
        Placed,
        /// It is in its place only.
        Released,
    }
}

outlive::memory::crash_points! {
    /// Where the destruction of a pool may be cut short.
    pub enum DestroyPoint for "tasks.destroy" {
        /// The header is in hand, and in its place still.
        InHand,
        /// It is in nobody else's hand.
        Alone,
        /// It is in hand only.
        Displaced,
        /// The ports of all tasks are free.
        PortsFreed,
        /// The desks are empty.
        DesksCleared,
        /// What the slots had is free.
        SlotsFreed,
        /// Nothing hangs on the header.
        Dismantled,
        /// It is free.
        Freed,
    }
}

outlive::shared! {
    /// What stands under a pool's root: where its header is, or 0.
    struct TaskPool { header: u64 }
}

/// Where the maker of a pool keeps what is not yet in its place: the last words of the program's room in its log.
const ROOT_IN_HAND: u64 = 1024 - 8;
const HEADER_IN_HAND: u64 = 1024 - 16;
/// Before it: whether the header in hand may hold anything still.
const RAW: u64 = 8;

/// What the names of pools' roots begin with.
const ROOT_PREFIX: &str = "tasks ";

fn root_name(name: &str) -> String {
    format!("{ROOT_PREFIX}{name}")
}

/// The pool `name`, whoever made it. It is refused if its slots have owners that cannot be: its workers would wait for them, or
/// fail.
pub(super) fn open(pod: &Pod, name: &str) -> Result<Layout, PoolError> {
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

/// The names of the pools that there are, and where their headers are.
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

/// The names of the pod's pools.
pub(super) fn names(pod: &Pod) -> Result<Vec<String>, PoolError> {
    let headers = headers(pod.segment().memory(), pod.roots())?;
    Ok(headers.into_iter().map(|(name, _)| name).collect())
}

/// Where a pool's header belongs, for one who makes or destroys it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'h, M: Memory = Native> {
    heap: &'h LocalHeap<'h, M>,
    roots: Roots<M>,
    logs: Logs<M>,
    /// The word that leads to the header.
    cell: Offset,
    hand: Offset,
}

impl<'h> Place<'h> {
    /// That of the pool `name`, for one who has nothing in hand any more.
    pub fn of(pod: &Pod, heap: &'h LocalHeap<'h>, name: &str) -> Result<Self, PoolError> {
        Self::among(pod.roots(), pod.logs(), heap, name)
    }
}

impl<'h, M: Memory> Place<'h, M> {
    /// The same, among these roots and for one who has one of these logs.
    pub fn among(
        roots: Roots<M>,
        logs: Logs<M>,
        heap: &'h LocalHeap<'h, M>,
        name: &str,
    ) -> Result<Self, PoolError> {
        let room = logs.of(heap.instance().id).program_room();
        let cell = root_cell(roots, room + ROOT_IN_HAND, heap, name)?;
        let place = Self {
            heap,
            roots,
            logs,
            cell,
            hand: room + HEADER_IN_HAND,
        };
        place.settle()?;
        Ok(place)
    }

    /// The header that is there.
    pub fn header(self) -> Option<Offset> {
        let header: u64 = self.heap.memory().load(self.cell, Ordering::Acquire);
        (header != 0).then(|| Offset::from_raw(header))
    }

    /// Makes a pool there. `None` if another was faster; then nothing is left of this one.
    pub fn make(self, shape: &Shape, text: (u64, &str)) -> Result<Option<Layout<M>>, PoolError> {
        let at = self.clear_header(shape)?;
        let layout = Layout::create(self.heap, at, shape, text);
        let layout = layout.map_err(|error| match self.settle() {
            // The reason is what is wanted to be known.
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

    /// Wrong: the pool is in its place before it is whole. For the proofs that see it.
    pub fn make_too_soon(self, shape: &Shape, text: (u64, &str)) -> Result<(), PoolError> {
        let at = self.clear_header(shape)?;
        self.fill(at);
        Layout::create(self.heap, at, shape, text)?;
        self.release();
        Ok(())
    }

    /// A header in hand, with nothing in it.
    fn clear_header(self, shape: &Shape) -> Result<Offset, PoolError> {
        let Self { heap, hand, .. } = self;
        let memory = heap.memory();
        let bytes = shape.bytes::<M>();
        // Release, both: a new block holds anything, also what looks like a pool.
        memory.store(hand - RAW, 1u64, Ordering::Release);
        memory.crash_point(MakePoint::Raw);
        let at = heap.allocate_into(bytes, hand)?;
        memory.crash_point(MakePoint::Allocated);
        for word in (0..bytes).step_by(8) {
            memory.store(at + word, 0u64, Ordering::Relaxed);
        }
        memory.store(hand - RAW, 0u64, Ordering::Release);
        memory.crash_point(MakePoint::Cleared);
        Ok(at)
    }

    /// Puts the header at `at` there, if there is none.
    fn fill(self, at: Offset) -> bool {
        let memory = self.heap.memory();
        // Release: the pool.
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        let filled = memory.compare_exchange(self.cell, 0, at.raw(), order.0, order.1);
        memory.crash_point(MakePoint::Placed);
        filled.is_ok()
    }

    /// What is in hand is in its place.
    fn release(self) {
        let memory = self.heap.memory();
        memory.store(self.hand, 0u64, Ordering::Relaxed);
        memory.crash_point(MakePoint::Released);
    }

    /// Takes the pool whose header is `header` out of its place, and apart. For the last who uses it.
    pub fn empty(self, header: Offset) -> Result<(), PoolError> {
        let memory = self.heap.memory();
        self.take(header);
        // Release: the header is in hand before it is out of its cell.
        memory.store(self.cell, 0u64, Ordering::Release);
        memory.crash_point(DestroyPoint::Displaced);
        self.settle()
    }

    /// Wrong: takes the pool apart, and then out of its place. For the proofs that see it.
    pub fn empty_too_late(self, header: Offset) -> Result<(), PoolError> {
        self.take(header);
        self.take_apart(header)?;
        let memory = self.heap.memory();
        memory.store(self.cell, 0u64, Ordering::Release);
        self.settle()
    }

    /// Takes the header, which is in its place, in hand: and out of every other's.
    fn take(self, header: Offset) {
        let memory = self.heap.memory();
        memory.store(self.hand, header.raw(), Ordering::Relaxed);
        memory.crash_point(DestroyPoint::InHand);
        // Another who died with it in hand, when it was in its cell, would find it in no cell, and take apart what is there by then.
        let ids = self.heap.member().generations().capacity();
        for id in 0..ids {
            let hand = self.logs.of(id).program_room() + HEADER_IN_HAND;
            if hand != self.hand && memory.load::<u64>(hand, Ordering::Acquire) == header.raw() {
                let order = (Ordering::AcqRel, Ordering::Relaxed);
                // If it is changed meanwhile, its owner has seen to it himself.
                let _ = memory.compare_exchange(hand, header.raw(), 0, order.0, order.1);
            }
        }
        memory.crash_point(DestroyPoint::Alone);
    }

    /// Sees to it that no header is in hand: one that is in its cell is there, another is taken apart.
    fn settle(self) -> Result<(), PoolError> {
        let Self { heap, hand, .. } = self;
        let memory = heap.memory();
        let held: u64 = memory.load(hand, Ordering::Relaxed);
        if held == 0 || memory.load::<u64>(hand - RAW, Ordering::Relaxed) != 0 {
            if held != 0 {
                // Its maker died before it was clean: nothing hangs on it.
                heap.free_from(hand, 0)?;
            }
            memory.store(hand - RAW, 0u64, Ordering::Release);
            return Ok(());
        }
        let at = Offset::from_raw(held);
        // Not only in this place: who had it in hand may have been about another pool.
        let headers = headers(memory, self.roots)?;
        if headers.iter().any(|(_, header)| *header == at) {
            memory.store(hand, 0u64, Ordering::Relaxed);
            return Ok(());
        }
        // Who destroys the pool takes it out of others' hands before its cell is cleared, which was seen: so it is taken apart by
        // one, who has it in hand still.
        if memory.load::<u64>(hand, Ordering::Acquire) != held {
            return Ok(());
        }
        self.take_apart(at)?;
        heap.free_from(hand, 0)?;
        memory.crash_point(DestroyPoint::Freed);
        Ok(())
    }

    /// Frees what hangs on the header at `at`, any number of times.
    fn take_apart(self, at: Offset) -> Result<(), PoolError> {
        let (heap, memory) = (self.heap, self.heap.memory());
        if let Ok(layout) = Layout::open(memory, at) {
            free_all_ports(layout, heap)?;
            memory.crash_point(DestroyPoint::PortsFreed);
            for number in 0..DESKS_IN_ALL {
                Desk::at(layout, number).clear(heap)?;
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

/// Where the caller has a header in hand.
#[cfg(test)]
pub(super) fn header_in_hand(pod: &Pod, heap: &LocalHeap<'_>) -> Offset {
    pod.logs().of(heap.instance().id).program_room() + HEADER_IN_HAND
}

/// What the owner of `logs`' log `id` has in hand, of a root and of a header; 0 for nothing.
pub(crate) fn in_hand<M: Memory>(logs: Logs<M>, id: u32) -> [u64; 2] {
    let room = logs.of(id).program_room();
    [ROOT_IN_HAND, HEADER_IN_HAND].map(|at| logs.memory().load(room + at, Ordering::Acquire))
}

/// The word that leads to the pool's header: under a root, which is made if there is none. `hand` is for the root's block.
fn root_cell<M: Memory>(
    roots: Roots<M>,
    hand: Offset,
    heap: &LocalHeap<'_, M>,
    name: &str,
) -> Result<Offset, PoolError> {
    let (memory, name) = (heap.memory(), root_name(name));
    loop {
        let held = Offset::from_raw(memory.load(hand, Ordering::Relaxed));
        if !held.is_null() && roots.list()?.iter().any(|root| root.offset == held) {
            // It was published, and the publisher died.
            memory.store(hand, 0u64, Ordering::Relaxed);
            continue;
        }
        if let Some(root) = roots.find::<TaskPool>(&name)? {
            if !held.is_null() {
                heap.free_from(hand, 0)?;
            }
            return Ok(root.offset());
        }
        let block = if held.is_null() {
            let block = heap.allocate_into(16, hand)?;
            memory.crash_point(MakePoint::RootAllocated);
            block
        } else {
            held
        };
        memory.store(block, 0u64, Ordering::Relaxed);
        match roots.publish::<TaskPool>(&name, block) {
            // What is in hand is found to be published, or another's is.
            Ok(_) | Err(outlive::segment::RootError::Exists { .. }) => {
                memory.crash_point(MakePoint::RootPublished);
            }
            Err(error) => {
                heap.free_from(hand, 0)?;
                return Err(error.into());
            }
        }
    }
}
