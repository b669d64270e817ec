//! A thread's way to the heap.

use super::aids::Aids;
use super::reclaim::{self, Reclaimer, SecondWay};
use super::slab::step;
use super::{Heap, room};
use crate::membership::{Instance, Member};
use crate::recovery::{Log, Logs, Recoverers, Recovering};
use core::panic::AssertUnwindSafe;
use outlive_memory::{Memory, Native, Offset, OffsetOutOfRange, Ordering, PersistenceDomain};

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
    pub(super) own: u64,
    acting: Instance,
    member: &'m Member<M>,
    pub(super) recoverers: Option<&'m Recoverers<M>>,
    pub(super) aids: Aids,
    pub(super) reclaimer: Reclaimer,
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
    pub(super) fn is_quick(&self, memory: M, cell: Offset) -> bool {
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
