//! A thread's way to the heap: the short ways of allocation and free.

use super::buddy::{AllocateError, CorruptTree, FreeError};
use super::reclaim::Reclaimer;
use super::slab::{CLASSES, Class, Kind, LARGEST, SLAB, Slab, Step, class, step};
use super::{Heap, room};
use crate::membership::{Instance, Member};
use crate::recovery::{Log, Logs, Recoverers, Recovering};
use core::cell::Cell;
use outlive_memory::{Link, Memory, Native, Offset, OffsetOutOfRange, Ordering};

outlive_memory::crash_points! {
    /// Where an allocation from a slab may be cut short.
    pub enum HeapAllocatePoint for "heap.allocate" {
        /// The step is noted; the block is free.
        Noted,
        /// The block is allocated; the cell is empty.
        Marked,
        /// The cell holds the block; the step is noted still.
        Published,
        /// It is over.
        Done,
    }
}

outlive_memory::crash_points! {
    /// Where a free of a slab's block may be cut short.
    pub enum HeapFreePoint for "heap.free" {
        /// The step is noted; the cell holds the block.
        Noted,
        /// The cell does not; the block is allocated.
        Replaced,
        /// The block of the caller's own slab is free; the step is noted still.
        FreedOwn,
        /// The same of another's slab.
        FreedRemote,
        /// It is over.
        Done,
    }
}

/// A member's way to the heap, or that of a dead one's recoverer.
///
/// What it keeps for itself are memory aids: it may be dropped at any time, and the next one of the same
/// member finds what the last one had. (Dropping it frees what can be freed of the blocks that it retired.)
///
/// Allocating and freeing up to [`Heap::LARGEST_SMALL`] bytes is wait-free and makes no system call, except
/// when the member's slabs of the class are full; then, and for larger blocks, it waits for a live holder of
/// the buddy allocator's lock, or for a live recoverer of a dead one.
#[derive(Debug)]
pub struct LocalHeap<'m, M: Memory = Native> {
    pub(super) heap: Heap<M>,
    log: Log<M>,
    logs: Logs<M>,
    step: Offset,
    /// The owner of slabs whose local bits this may write; 0, which no slab has, for a recoverer.
    own: u64,
    acting: Instance,
    member: &'m Member<M>,
    pub(super) recoverers: Option<&'m Recoverers<M>>,
    pub(super) aids: Aids,
    pub(super) reclaimer: Reclaimer,
}

/// No slab.
pub(super) const NONE: u64 = u64::MAX;

/// What a thread remembers of its slabs.
#[derive(Debug)]
pub(super) struct Aids {
    /// The slab of each class that blocks are taken from, and the word of its bits.
    pub(super) current: [Current; CLASSES],
    /// A slab of each class that was found empty and kept.
    pub(super) spare: [Cell<u64>; CLASSES],
    /// Whether the slabs of former ways of this member are in its rings.
    pub(super) resumed: Cell<bool>,
    /// Where to look for orphans next.
    pub(super) cursor: Cell<u64>,
    /// The hint about orphans when the present round began, and how much of the round is left.
    pub(super) round: Cell<(u64, u64)>,
}

/// A place to take blocks from.
#[derive(Debug)]
pub(super) struct Current {
    pub(super) slab: Cell<u64>,
    pub(super) word: Cell<u64>,
}

impl Aids {
    fn new() -> Self {
        Self {
            current: core::array::from_fn(|_| Current {
                slab: Cell::new(NONE),
                word: Cell::new(0),
            }),
            spare: core::array::from_fn(|_| Cell::new(NONE)),
            resumed: Cell::new(false),
            cursor: Cell::new(0),
            round: Cell::new((0, 0)),
        }
    }
}

impl<'m, M: Memory> LocalHeap<'m, M> {
    /// `member`'s way to `heap`. It has one at a time, and its log is open.
    ///
    /// # Panics
    /// If `member` has one already.
    pub fn of(heap: Heap<M>, member: &'m Member<M>, recoverers: &'m Recoverers<M>) -> Self {
        let (log, acting) = (
            recoverers.logs().of(member.instance().id),
            member.instance(),
        );
        let local = Self {
            heap,
            log,
            logs: recoverers.logs(),
            step: room::step(log),
            own: acting.to_word(),
            acting,
            member,
            recoverers: Some(recoverers),
            aids: Aids::new(),
            reclaimer: Reclaimer::new(false),
        };
        local.begin_reclamation();
        local
    }

    /// The way of whoever recovers a dead member, in its name: what it frees and retires is as if the dead
    /// had. It cannot allocate. It takes no lock, so that handlers may use it.
    pub fn of_the_dead(heap: Heap<M>, dead: &Recovering<'m, M>) -> Self {
        Self {
            heap,
            log: dead.log(),
            logs: dead.logs(),
            step: room::step(dead.log()),
            own: Instance::NOBODY,
            acting: dead.owner(),
            member: dead.member(),
            recoverers: None,
            aids: Aids::new(),
            reclaimer: Reclaimer::new(true),
        }
    }

    pub(super) fn shortened(&self) -> &LocalHeap<'_, M> {
        self
    }

    pub(super) fn log(&self) -> Log<M> {
        self.log
    }

    /// The logs of everybody.
    pub(super) fn logs(&self) -> Logs<M> {
        self.logs
    }

    /// Whether it acts in the name of a dead instance.
    pub(super) fn is_for_the_dead(&self) -> bool {
        self.recoverers.is_none()
    }

    pub(super) fn step_at(&self) -> Offset {
        self.step
    }

    /// The memory.
    #[inline(always)]
    pub fn memory(&self) -> M {
        self.heap.memory
    }

    /// The heap.
    pub fn heap(&self) -> Heap<M> {
        self.heap
    }

    /// The instance that acts, or in whose name its recoverer does.
    pub fn instance(&self) -> Instance {
        self.acting
    }

    /// The member.
    pub fn member(&self) -> &'m Member<M> {
        self.member
    }

    /// One of the member's own cells, by number from 0 to 7: for a block on its way from the heap into a
    /// structure. Whoever dies with a hand full leaves the block to the handler of the operation that was
    /// running; what that leaves in a hand is freed.
    pub fn hand(&self, number: u64) -> Offset {
        room::hand(self.log, number)
    }

    /// Allocates a block of at least `bytes`, uninitialised, and writes its offset into the word at `cell`,
    /// which is 0 before, in one step. The block is aligned to 16 bytes.
    ///
    /// The cell is the caller's: nobody else writes to it while this runs, nor before the caller has
    /// been recovered should it die in here. Anybody may read it: who finds the offset (with acquire)
    /// finds the block allocated. It needs no operation descriptor, so an operation may be running.
    ///
    /// # Errors
    /// See [`AllocateError`]; nothing is changed then.
    ///
    /// # Panics
    /// If this is a recoverer's way.
    ///
    /// # Crash
    /// After recovery the cell holds a block that is allocated, or 0 and nothing was allocated.
    #[inline]
    pub fn allocate_into(&self, bytes: u64, cell: Offset) -> Result<Offset, AllocateError> {
        let memory = self.heap.memory;
        if !memory.has_word::<u64>(cell) {
            return Err(AllocateError::BadCell(bad_cell(memory, cell)));
        }
        // Relaxed: the cell is the caller's.
        let holds: u64 = memory.load(cell, Ordering::Relaxed);
        if holds != 0 {
            return Err(AllocateError::CellOccupied { cell, holds });
        }
        if bytes > LARGEST {
            return self.allocate_large(bytes, cell);
        }
        let number = class::of(bytes);
        loop {
            if let Some(block) = self.take(number, cell) {
                return Ok(block);
            }
            self.refill(number, bytes)?;
        }
    }

    /// A block from the current slab of a class.
    #[inline(always)]
    fn take(&self, number: usize, cell: Offset) -> Option<Offset> {
        let (memory, table) = (self.heap.memory, &self.heap.table);
        let current = &self.aids.current[number];
        let slab = table.slab(current.slab.get())?;
        let class = Class::get(number);
        let (mut word, mut at) = (current.word.get(), table.local(slab, current.word.get()));
        // Relaxed: the owner's alone.
        let mut bits: u64 = memory.load(at, Ordering::Relaxed);
        let mut index = word * 64 + u64::from((!bits).trailing_zeros());
        if bits == u64::MAX || index >= u64::from(class.count) {
            word = table.word_with_room(slab, class)?;
            current.word.set(word);
            at = table.local(slab, word);
            bits = memory.load(at, Ordering::Relaxed);
            index = word * 64 + u64::from((!bits).trailing_zeros());
        }
        let block = table.start(slab) + index * u64::from(class.size);
        let note = Step {
            kind: Kind::Allocate,
            block,
            cell,
            instead: 0,
        };
        step::begin(memory, self.step, note);
        memory.crash_point(HeapAllocatePoint::Noted);
        // Release: after the note.
        memory.store(at, bits | 1 << (index % 64), Ordering::Release);
        memory.persist(at, 8);
        memory.crash_point(HeapAllocatePoint::Marked);
        // Release: after the bit; whoever finds the block finds it allocated.
        memory.store(cell, block.raw(), Ordering::Release);
        memory.persist(cell, 8);
        memory.crash_point(HeapAllocatePoint::Published);
        step::end(memory, self.step);
        memory.crash_point(HeapAllocatePoint::Done);
        Some(block)
    }

    /// Frees the block that the word at `cell` holds, and writes `instead` there, in one step; returns where
    /// the block was. Tags in the word are not looked at. The cell is the caller's, as in
    /// [`allocate_into`](Self::allocate_into).
    ///
    /// Nobody may use the block any more. What is freed twice, or was never allocated, is refused, as long as
    /// nobody else frees the same block at the same time.
    ///
    /// # Errors
    /// See [`FreeError`]; nothing is changed then.
    ///
    /// # Crash
    /// After recovery the cell holds the block, which is allocated, or `instead`, and the block is free.
    #[inline]
    pub fn free_from(&self, cell: Offset, instead: u64) -> Result<Offset, FreeError> {
        let (memory, table) = (self.heap.memory, &self.heap.table);
        if !memory.has_word::<u64>(cell) {
            return Err(FreeError::BadCell(bad_cell(memory, cell)));
        }
        // Relaxed: the cell is the caller's.
        let held = Link::from_word(memory.load(cell, Ordering::Relaxed));
        if held.is_null() {
            return Err(FreeError::CellEmpty { cell });
        }
        let block = held.offset();
        let Some(from) = table.within(block) else {
            return Err(self.outside(block));
        };
        let slab = table.slab_of(from);
        // Relaxed, as are the loads below: whoever may free the block has learnt of it after all this was
        // written, and nobody else's change can make a stranger's slab the caller's own.
        let owner: u64 = memory.load(table.owner(slab), Ordering::Relaxed);
        if owner == Instance::NOBODY {
            return self.free_large(block, cell, instead);
        }
        let Some(class) = table.class_of(slab) else {
            return Err(self.no_class(slab));
        };
        let within = from % SLAB;
        let index = class.block_of(within);
        if index * u64::from(class.size) != within || index >= u64::from(class.count) {
            return Err(self.not_a_start(slab, class, block, index));
        }
        let (word, bit) = (index / 64, 1u64 << (index % 64));
        let (local_at, remote_at) = (table.local(slab, word), table.remote(slab, word));
        let local: u64 = memory.load(local_at, Ordering::Relaxed);
        let remote: u64 = memory.load(remote_at, Ordering::Relaxed);
        if local & !remote & bit == 0 {
            return Err(FreeError::NotAllocated { block });
        }
        let own = owner == self.own;
        let kind = if own { Kind::FreeOwn } else { Kind::FreeRemote };
        let note = Step {
            kind,
            block,
            cell,
            instead,
        };
        step::begin(memory, self.step, note);
        memory.crash_point(HeapFreePoint::Noted);
        // Release: after the note, and for whoever reads what the caller publishes.
        memory.store(cell, instead, Ordering::Release);
        memory.persist(cell, 8);
        memory.crash_point(HeapFreePoint::Replaced);
        if own {
            // Release: after the cell.
            memory.store(local_at, local & !bit, Ordering::Release);
            memory.persist(local_at, 8);
            memory.crash_point(HeapFreePoint::FreedOwn);
        } else {
            // Release: after the note, which the collector must see, and after the last use of the block.
            memory.fetch_or(remote_at, bit, Ordering::Release);
            memory.persist(remote_at, 8);
            memory.crash_point(HeapFreePoint::FreedRemote);
        }
        step::end(memory, self.step);
        memory.crash_point(HeapFreePoint::Done);
        if own {
            let number: u64 = memory.load(table.class(slab), Ordering::Relaxed);
            let current = &self.aids.current[number as usize % CLASSES];
            if current.slab.get() == u64::from(slab.index()) {
                current.word.set(word);
            } else if local == bit {
                self.look_whether_empty(number as usize % CLASSES, slab);
            }
        }
        Ok(block)
    }

    #[cold]
    pub(super) fn outside(&self, block: Offset) -> FreeError {
        let buddy = self.heap.buddy();
        FreeError::Outside {
            block,
            first: buddy.region(),
            end: buddy.region() + buddy.bytes(),
            unit: 16,
        }
    }

    #[cold]
    fn no_class(&self, slab: Slab) -> FreeError {
        FreeError::Corrupt(CorruptTree {
            at: self.heap.table.class(slab),
            what: "a slab has a class that there is not",
        })
    }

    #[cold]
    fn not_a_start(&self, slab: Slab, class: Class, block: Offset, index: u64) -> FreeError {
        let start = self.heap.table.start(slab) + index * u64::from(class.size);
        if index < u64::from(class.count) {
            let bytes = class.size.into();
            FreeError::Inside {
                block,
                start,
                bytes,
            }
        } else {
            FreeError::NotAllocated { block }
        }
    }
}

impl<M: Memory> Drop for LocalHeap<'_, M> {
    fn drop(&mut self) {
        if !self.is_for_the_dead() {
            self.end_reclamation();
        }
    }
}

#[cold]
pub(super) fn bad_cell<M: Memory>(memory: M, cell: Offset) -> OffsetOutOfRange {
    let (raw, len, size) = (cell.raw(), 8, memory.size());
    OffsetOutOfRange { raw, len, size }
}
