//! A thread's way to the heap: the short ways of allocation and free.

use super::buddy::{AllocateError, CorruptTree, FreeError};
use super::reclaim::{self, Reclaimer, SecondWay};
use super::slab::{
    CLASSES, Class, Inverse, Kind, LARGEST, LocalWord, SLAB, Slab, Step, Table, class, step,
};
use super::{Heap, room};
use crate::membership::{Instance, Member};
use crate::recovery::{Log, Logs, Recoverers, Recovering};
use core::cell::Cell;
use core::panic::AssertUnwindSafe;
use outlive_memory::{Link, Memory, Native, Offset, OffsetOutOfRange, Ordering, PersistenceDomain};

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
/// member finds what the last one had. (Dropping it frees what is in the member's [hands](Self::hand), unless an
/// operation is running, and what can be freed of the blocks that it retired.)
///
/// Allocating and freeing up to [`Heap::LARGEST_SMALL`] bytes is wait-free and makes no system call, except
/// when the member's slabs of the class are full; then, and for larger blocks, it waits for a live holder of
/// the buddy allocator's lock, or for a live recoverer of a dead one.
#[derive(Debug)]
pub struct LocalHeap<'m, M: Memory = Native> {
    pub(super) heap: Heap<M>,
    log: Log<M>,
    logs: Logs<M>,
    pub(super) step: step::Place,
    /// How many words the memory has, for the short ways: none, if what is written must be written back.
    words: u64,
    /// The owner of slabs whose local bits this may write; of none, for a recoverer.
    own: u64,
    acting: Instance,
    member: &'m Member<M>,
    pub(super) recoverers: Option<&'m Recoverers<M>>,
    pub(super) aids: Aids,
    pub(super) reclaimer: Reclaimer,
}

/// Of how many slabs a thread remembers what to divide by.
const GUESSES: usize = 256;
/// No slab.
pub(super) const NONE: u64 = u64::MAX;

/// What a thread remembers of its slabs.
#[derive(Debug)]
pub(super) struct Aids {
    /// The slab of each class that blocks are taken from, and the word of its bits.
    pub(super) current: [Current; CLASSES],
    /// A slab of each class that was found empty and kept.
    pub(super) spare: [Cell<u64>; CLASSES],
    /// What one divides by in a slab, for some slabs, as it was last: a guess, used once it is known to be right.
    inverses: [Cell<Inverse>; GUESSES],
    /// Whether the slabs of former ways of this member are in its rings.
    pub(super) resumed: Cell<bool>,
    /// Where to look for orphans next.
    pub(super) cursor: Cell<u64>,
    /// The hint about orphans when the present round began, and how much of the round is left.
    pub(super) round: Cell<(u64, u64)>,
    /// How far the look for what is owed has come.
    pub(super) debts: Cell<Debts>,
}

/// A round through all units in search of what is owed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Debts {
    /// How much had been owed, ever, when it began; 0 if there is none under way.
    pub(super) owed: u64,
    /// The unit to look at next.
    pub(super) next: u64,
    /// Whether it had to leave something.
    pub(super) left: bool,
}

/// A place to take blocks from: a word of a slab's bits, and what it is about.
///
/// Blocks are taken in the order in which they were free when the word was last looked at; what is freed meanwhile
/// waits until all of those are taken. So where the next block is does not hang on the free just before, and
/// the processor makes the two at the same time.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Current {
    pub(super) slab: Cell<u64>,
    word: Cell<LocalWord>,
    /// Bits of the word that were clear, and that no block has been taken for since.
    free: Cell<u64>,
    /// Where the block of its first bit starts.
    first: Cell<Offset>,
    /// The bits that stand for blocks: none, if there is no slab.
    mask: Cell<u64>,
    size: Cell<u64>,
}

impl Aids {
    fn new<M: Memory>(table: &Table<M>) -> Self {
        let any = table.slab(0).expect("a heap has a first slab");
        let any = table.local_word(any, 0);
        Self {
            current: core::array::from_fn(|_| Current {
                slab: Cell::new(NONE),
                word: Cell::new(any),
                free: Cell::new(0),
                first: Cell::new(Offset::new(0)),
                mask: Cell::new(0),
                size: Cell::new(0),
            }),
            spare: core::array::from_fn(|_| Cell::new(NONE)),
            inverses: core::array::from_fn(|_| Cell::new(Inverse::default())),
            resumed: Cell::new(false),
            cursor: Cell::new(0),
            round: Cell::new((0, 0)),
            debts: Cell::new(Debts::default()),
        }
    }
}

impl Current {
    /// No slab.
    pub(super) fn clear(&self) {
        self.slab.set(NONE);
        self.free.set(0);
        self.mask.set(0);
    }

    /// Word `word` of the bits of `slab`, which is of class `number`.
    pub(super) fn set<M: Memory>(&self, table: &Table<M>, slab: Slab, number: usize, word: u64) {
        let class = Class::get(number);
        let size = u64::from(class.size);
        self.slab.set(slab.index().into());
        self.word.set(table.local_word(slab, word * 64));
        // Looked at when a block is asked for.
        self.free.set(0);
        self.first.set(table.start(slab) + word * 64 * size);
        self.mask.set(class.mask(word));
        self.size.set(size);
    }
}

/// How many words the short ways have; see there.
fn quick_words<M: Memory>(memory: M) -> u64 {
    match memory.domain() {
        PersistenceDomain::Flushed => memory.size() / 8,
        PersistenceDomain::WriteBack => 0,
    }
}

/// The owner of no slab at all: an id that no pod has.
const NO_OWNER: u64 = u64::MAX;

impl<'m, M: Memory> LocalHeap<'m, M> {
    /// `member`'s way to `heap`. It has one at a time, and its log is open.
    ///
    /// # Panics
    /// If `member` has one already: see [`try_of`](Self::try_of).
    pub fn of(heap: Heap<M>, member: &'m Member<M>, recoverers: &'m Recoverers<M>) -> Self {
        Self::try_of(heap, member, recoverers).unwrap_or_else(|second| panic!("{second}"))
    }

    /// `member`'s way to `heap`, whose log is open.
    ///
    /// # Errors
    /// If it has one already. That one is not touched.
    pub fn try_of(
        heap: Heap<M>,
        member: &'m Member<M>,
        recoverers: &'m Recoverers<M>,
    ) -> Result<Self, SecondWay> {
        let (log, acting) = (
            recoverers.logs().of(member.instance().id),
            member.instance(),
        );
        // Before there is anything whose end would take back what the other way has reserved.
        reclaim::refuse_another(heap, log, acting)?;
        let local = Self {
            heap,
            log,
            logs: recoverers.logs(),
            step: step::Place::new(heap.memory, room::step(log)),
            words: quick_words(heap.memory),
            own: acting.to_word(),
            acting,
            member,
            recoverers: Some(recoverers),
            aids: Aids::new(&heap.table),
            reclaimer: Reclaimer::new(false),
        };
        local.begin_reclamation();
        Ok(local)
    }

    /// The way of whoever recovers a dead member, in its name: what it frees and retires is as if the dead
    /// had. It cannot allocate. It takes no lock, so that handlers may use it.
    pub fn of_the_dead(heap: Heap<M>, dead: &Recovering<'m, M>) -> Self {
        Self {
            heap,
            log: dead.log(),
            logs: dead.logs(),
            step: step::Place::new(heap.memory, room::step(dead.log())),
            words: quick_words(heap.memory),
            own: NO_OWNER,
            acting: dead.owner(),
            member: dead.member(),
            recoverers: None,
            aids: Aids::new(&heap.table),
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
    pub(crate) fn logs(&self) -> Logs<M> {
        self.logs
    }

    /// Whether it acts in the name of a dead instance.
    pub(super) fn is_for_the_dead(&self) -> bool {
        self.recoverers.is_none()
    }

    pub(super) fn step_at(&self) -> Offset {
        self.step.at()
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
    /// running; what that leaves in a hand is freed. So is what is in a hand when this is dropped, by a panic
    /// too, and no operation is running.
    pub fn hand(&self, number: u64) -> Offset {
        room::hand(self.log, number)
    }

    /// Whether a short way leads to `cell`: it is a word of the memory, where nothing needs to be written back.
    #[inline(always)]
    fn is_quick(&self, memory: M, cell: Offset) -> bool {
        // Aligned and inside, as `has_word` asks it: one comparison for all that there is to ask.
        let is = cell.raw().rotate_right(3) < self.words;
        // SAFETY: `words` is 0 where written lines are written back, and else as many as the memory has.
        unsafe {
            core::hint::assert_unchecked(
                !is || memory.domain() == PersistenceDomain::Flushed
                    && memory.has_word::<u64>(cell),
            );
        }
        is
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
        let memory = self.heap.table.memory;
        if bytes <= LARGEST
            && self.is_quick(memory, cell)
            // Relaxed: the cell is the caller's.
            && memory.load::<u64>(cell, Ordering::Relaxed) == 0
            && let Some(block) = self.take(class::of(bytes), cell)
        {
            return Ok(block);
        }
        self.allocate_slowly(bytes, cell)
    }

    /// All that is not the usual.
    #[cold]
    #[inline(never)]
    fn allocate_slowly(&self, bytes: u64, cell: Offset) -> Result<Offset, AllocateError> {
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
            if !self.next_word(number) {
                self.refill(number, bytes)?;
            }
        }
    }

    /// Goes on to a word of the current slab that has room.
    fn next_word(&self, number: usize) -> bool {
        let (table, current) = (&self.heap.table, &self.aids.current[number]);
        let Some(slab) = table.slab(current.slab.get()) else {
            return false;
        };
        let class = Class::get(number);
        let word = table.next_with_room(slab, class, current.word.get());
        word.is_some_and(|word| {
            current.set(table, slab, number, word);
            true
        })
    }

    /// A block from the current word of a class.
    #[inline(always)]
    fn take(&self, number: usize, cell: Offset) -> Option<Offset> {
        // Copies, in registers: what is stored below could be anything's for all that the compiler knows.
        let (table, place) = (self.heap.table, self.step);
        let memory = table.memory;
        let current = &self.aids.current[number];
        let word = current.word.get();
        let allocated = table.allocated(word);
        let mut free = current.free.get();
        if free == 0 {
            free = !allocated & current.mask.get();
            if free == 0 {
                return None;
            }
        }
        current.free.set(free & (free - 1));
        let index = u64::from(free.trailing_zeros());
        if allocated >> index & 1 != 0 {
            // Nobody but this sets bits of the word: only damage leads here.
            return None;
        }
        let block = current.first.get() + index * current.size.get();
        let note = Step {
            kind: Kind::Allocate,
            block,
            cell,
            instead: 0,
        };
        place.begin(memory, note);
        memory.crash_point(HeapAllocatePoint::Noted);
        table.set_allocated(word, allocated | 1 << index);
        memory.crash_point(HeapAllocatePoint::Marked);
        // Release: after the bit; whoever finds the block finds it allocated.
        memory.store(cell, block.raw(), Ordering::Release);
        memory.persist(cell, 8);
        memory.crash_point(HeapAllocatePoint::Published);
        place.end(memory);
        memory.crash_point(HeapAllocatePoint::Done);
        Some(block)
    }

    /// Frees the block that the word at `cell` holds, and writes `instead` there, in one step; returns where
    /// the block was. Tags in the word are not looked at. The cell is the caller's, as in
    /// [`allocate_into`](Self::allocate_into).
    ///
    /// Nobody may use the block any more. (One of another member's slab is of use again when that member next runs
    /// out of such blocks, or is gone: one that is idle keeps it.) What is freed twice, or was never allocated, is refused, as long as
    /// nobody else frees the same block at the same time.
    ///
    /// # Errors
    /// See [`FreeError`]; nothing is changed then.
    ///
    /// # Crash
    /// After recovery the cell holds the block, which is allocated, or `instead`, and the block is free.
    #[inline]
    pub fn free_from(&self, cell: Offset, instead: u64) -> Result<Offset, FreeError> {
        let table = self.heap.table;
        let memory = table.memory;
        if self.is_quick(memory, cell) {
            // Relaxed: the cell is the caller's.
            let block = Link::from_word(memory.load(cell, Ordering::Relaxed)).offset();
            if let Some(from) = table.within(block) {
                let slab = table.slab_of(from);
                // Where the block's bit is would wait for the slab's class and that for the slab, and all later
                // loads for where the bit is written. So it is guessed, and the class is asked meanwhile.
                let guess = &self.aids.inverses[slab.index() as usize % GUESSES];
                let (inverse, guessed) = (guess.get(), guess.get().start_of(from % SLAB));
                if table.owner_word(slab) == self.own {
                    let number = table.class_word(slab);
                    if let Some(class) = Class::checked(number)
                        && let Some(index) = if class.inverse == inverse {
                            guessed
                        } else {
                            guess.set(class.inverse);
                            class.start_of(from % SLAB)
                        }
                        && let Some(may_be_empty) =
                            self.free_own(table, slab, index, block, cell, instead)
                    {
                        if may_be_empty {
                            return self.freed_the_last(slab, block);
                        }
                        return Ok(block);
                    }
                }
            }
        }
        self.free_slowly(cell, instead)
    }

    /// Frees block `index` of a slab of one's own, if it is allocated; whether the slab may be empty now, and of no
    /// use.
    #[inline(always)]
    fn free_own(
        &self,
        table: Table<M>,
        slab: Slab,
        index: u64,
        block: Offset,
        cell: Offset,
        instead: u64,
    ) -> Option<bool> {
        let (memory, place) = (table.memory, self.step);
        let word = table.local_word(slab, index);
        let allocated = table.allocated(word);
        let bit = index % 64;
        if allocated >> bit & 1 == 0 || table.freed_by_others(word) >> bit & 1 != 0 {
            return None;
        }
        let note = Step {
            kind: Kind::FreeOwn,
            block,
            cell,
            instead,
        };
        place.begin(memory, note);
        memory.crash_point(HeapFreePoint::Noted);
        // Release: after the note, and for whoever reads what the caller publishes.
        memory.store(cell, instead, Ordering::Release);
        memory.persist(cell, 8);
        memory.crash_point(HeapFreePoint::Replaced);
        let allocated = allocated & !(1 << bit);
        table.set_allocated(word, allocated);
        memory.crash_point(HeapFreePoint::FreedOwn);
        place.end(memory);
        memory.crash_point(HeapFreePoint::Done);
        Some(allocated == 0)
    }

    /// What a free ends with when there is no other block in its word.
    #[cold]
    #[inline(never)]
    fn freed_the_last(&self, slab: Slab, block: Offset) -> Result<Offset, FreeError> {
        let number = self.heap.table.class_word(slab) as usize % CLASSES;
        if self.aids.current[number].slab.get() != u64::from(slab.index()) {
            self.look_whether_empty(number, slab);
        }
        Ok(block)
    }

    /// All that is not the usual.
    #[cold]
    #[inline(never)]
    fn free_slowly(&self, cell: Offset, instead: u64) -> Result<Offset, FreeError> {
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
        let number: u64 = memory.load(table.class(slab), Ordering::Relaxed);
        let Some(class) = Class::checked(number) else {
            return Err(self.no_class(slab));
        };
        let start = class.start_of(from % SLAB);
        let Some(index) = start.filter(|index| *index < u64::from(class.count)) else {
            return Err(self.not_a_start(slab, class, block, class.block_of(from % SLAB)));
        };
        if owner == self.own {
            return match self.free_own(*table, slab, index, block, cell, instead) {
                None => Err(FreeError::NotAllocated { block }),
                Some(false) => Ok(block),
                Some(true) => self.freed_the_last(slab, block),
            };
        }
        let (word, bit) = (index / 64, 1u64 << (index % 64));
        let at = table.remote(slab, word);
        let local: u64 = memory.load(table.local(slab, word), Ordering::Relaxed);
        let remote: u64 = memory.load(at, Ordering::Relaxed);
        if local & !remote & bit == 0 {
            return Err(FreeError::NotAllocated { block });
        }
        let note = Step {
            kind: Kind::FreeRemote,
            block,
            cell,
            instead,
        };
        self.step.begin(memory, note);
        memory.crash_point(HeapFreePoint::Noted);
        // Release: after the note, and for whoever reads what the caller publishes.
        memory.store(cell, instead, Ordering::Release);
        memory.persist(cell, 8);
        memory.crash_point(HeapFreePoint::Replaced);
        // Release: after the note, which the collector must see, and after the last use of the block.
        memory.fetch_or(at, bit, Ordering::Release);
        memory.persist(at, 8);
        memory.crash_point(HeapFreePoint::FreedRemote);
        self.step.end(memory);
        memory.crash_point(HeapFreePoint::Done);
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
        if self.is_for_the_dead() || !self.keeps_the_list() {
            return;
        }
        if std::thread::panicking() {
            // Whatever went wrong may go wrong here again, and must not end the process.
            let emptied = AssertUnwindSafe(|| self.empty_hands());
            let _ = std::panic::catch_unwind(emptied);
        } else {
            self.empty_hands();
        }
        self.end_reclamation();
        let memory = self.heap.memory;
        // Relaxed: the member's own word, and a hint. If it leaves, its slabs are orphans.
        if memory.load::<u64>(room::tenant(self.log), Ordering::Relaxed) == self.own {
            memory.fetch_add(self.heap.orphans(), 1u64, Ordering::Relaxed);
        }
    }
}

#[cold]
pub(super) fn bad_cell<M: Memory>(memory: M, cell: Offset) -> OffsetOutOfRange {
    let (raw, len, size) = (cell.raw(), 8, memory.size());
    OffsetOutOfRange { raw, len, size }
}
