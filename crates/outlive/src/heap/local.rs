//! A thread's heap handle.

use super::allocation_cache::Aids;
use super::reclaim::{self, Reclaimer, SecondWay};
use super::slab::step;
use super::{Heap, scratch};
use crate::membership::{Instance, InstanceId, Member, Status};
use crate::recovery::{Log, Logs, RecoverError, Recoverers, Recovering};
use core::panic::AssertUnwindSafe;
use outlive_memory::{Memory, Native, Offset, OffsetOutOfRange, Ordering, PersistenceDomain};

/// The heap handle of a member, or of the thread that recovers a dead member.
///
/// Its own state is only a cache: it may be dropped at any time, and the member's next handle finds
/// all that this one had. (Dropping it frees the blocks in the member's
/// [pending-allocation cells](Self::pending_cell), unless an operation is running, and those of its
/// retired blocks that can be freed.)
///
/// Allocating and freeing up to [`Heap::LARGEST_SMALL`] bytes is wait-free and makes no system
/// call, except when the member's slabs of the class are full. Then, and for larger blocks, it
/// waits for a live holder of the buddy allocator's lock, or for a live thread that recovers a dead
/// one.
#[derive(Debug)]
pub struct LocalHeap<'m, M: Memory = Native> {
    pub(super) heap: Heap<M>,
    log: Log<M>,
    logs: Logs<M>,
    pub(super) step: step::Place,
    /// The number of words that the fast paths may use: all of the memory, or 0 if written lines
    /// must be written back.
    words: u64,
    /// The owner of the slabs whose local bits this may write; `NO_OWNER` for recovery.
    pub(super) own: u64,
    acting: Instance,
    member: &'m Member<M>,
    pub(super) recoverers: Option<&'m Recoverers<M>>,
    pub(super) aids: Aids,
    pub(super) reclaimer: Reclaimer,
}

/// Returns the number of words that the fast paths may use; see `LocalHeap::words`.
fn quick_words<M: Memory>(memory: M) -> u64 {
    match memory.domain() {
        PersistenceDomain::Flushed => memory.size() / 8,
        PersistenceDomain::WriteBack => 0,
    }
}

/// The owner of no slab: an id that no pod has.
const NO_OWNER: u64 = u64::MAX;

impl<'m, M: Memory> LocalHeap<'m, M> {
    /// Returns `member`'s handle to `heap`. A member has one at a time, and its log is open.
    ///
    /// # Panics
    /// If `member` already has a handle: see [`try_of`](Self::try_of).
    pub fn of(heap: Heap<M>, member: &'m Member<M>, recoverers: &'m Recoverers<M>) -> Self {
        Self::try_of(heap, member, recoverers).unwrap_or_else(|second| panic!("{second}"))
    }

    /// Returns `member`'s handle to `heap`. The member's log is open.
    ///
    /// # Errors
    /// If `member` already has a handle. That one is not touched.
    pub fn try_of(
        heap: Heap<M>,
        member: &'m Member<M>,
        recoverers: &'m Recoverers<M>,
    ) -> Result<Self, SecondWay> {
        let (log, acting) = (
            recoverers.logs().of(member.instance().id),
            member.instance(),
        );
        // Checked before there is a value whose drop would clear the other handle's reservation.
        reclaim::refuse_another(heap, log, acting)?;
        let local = Self {
            heap,
            log,
            logs: recoverers.logs(),
            step: step::Place::new(heap.memory, scratch::step(log)),
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

    /// Returns a recovering thread's handle in the name of the dead member: its frees and
    /// retirements count as that member's. It cannot allocate. It takes no lock, so handlers may
    /// use it.
    pub fn of_the_dead(heap: Heap<M>, dead: &Recovering<'m, M>) -> Self {
        Self {
            heap,
            log: dead.log(),
            logs: dead.logs(),
            step: step::Place::new(heap.memory, scratch::step(dead.log())),
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

    /// Returns the logs of all ids.
    pub(crate) fn logs(&self) -> Logs<M> {
        self.logs
    }

    /// Returns whether it acts in the name of a dead instance.
    pub(super) fn is_for_the_dead(&self) -> bool {
        self.recoverers.is_none()
    }

    pub(super) fn step_at(&self) -> Offset {
        self.step.at()
    }

    /// Recovers all dead members. Called while waiting for a lock that a dead member may hold.
    pub(crate) fn recover_dead_members(&self) -> Result<(), RecoverError> {
        match self.recoverers {
            Some(recoverers) => recoverers.recover_all(self.member).map(drop),
            None => Ok(()),
        }
    }

    /// Recovers the member `id` if it is dead, unless another member is recovering it.
    pub(crate) fn recover_if_dead(&self, id: InstanceId) -> Result<(), RecoverError> {
        let state = self.member.generations().state(id);
        match self.recoverers {
            Some(recoverers) if state.is_ok_and(|state| state.status == Status::Dead) => {
                recoverers.recover(self.member, id).map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Returns the memory that the heap is in.
    #[inline(always)]
    pub fn memory(&self) -> M {
        self.heap.memory
    }

    /// Returns the heap.
    pub fn heap(&self) -> Heap<M> {
        self.heap
    }

    /// Returns the instance that acts; for a recovering thread, the dead instance in whose name it
    /// acts.
    pub fn instance(&self) -> Instance {
        self.acting
    }

    /// Returns the member.
    pub fn member(&self) -> &'m Member<M> {
        self.member
    }

    /// Returns one of the member's pending-allocation cells, by number from 0 to 7, for a block
    /// that is allocated and not yet linked into a structure. (Structures use 0 and 1, named
    /// objects 7.) If the member dies, the handler of the running operation decides about the
    /// block; a block that it leaves in a cell is freed. So is a block in a cell when this handle
    /// is dropped, even by a panic, while no operation is running.
    pub fn pending_cell(&self, number: u64) -> Offset {
        scratch::pending_cell(self.log, number)
    }

    /// Returns whether the fast path may use `cell`: it is a word of the memory, and nothing needs
    /// to be written back there.
    #[inline(always)]
    pub(super) fn is_quick(&self, memory: M, cell: Offset) -> bool {
        // Aligned and inside, as `has_word` checks: one comparison covers both.
        let is = cell.raw().rotate_right(3) < self.words;
        // SAFETY: `words` is 0 where written lines are written back, and otherwise the number of
        // words of the memory.
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
            // The cause of the panic may make this fail too, which must not end the process.
            let emptied = AssertUnwindSafe(|| self.free_pending_blocks());
            let _ = std::panic::catch_unwind(emptied);
        } else {
            self.free_pending_blocks();
        }
        self.end_reclamation();
        let memory = self.heap.memory;
        // Relaxed: the member's own word, and a hint. If the member leaves, its slabs are orphans.
        if memory.load::<u64>(scratch::tenant(self.log), Ordering::Relaxed) == self.own {
            memory.fetch_add(self.heap.orphans(), 1u64, Ordering::Relaxed);
        }
    }
}

#[cold]
pub(super) fn bad_cell<M: Memory>(memory: M, cell: Offset) -> OffsetOutOfRange {
    let (raw, len, size) = (cell.raw(), 8, memory.size());
    OffsetOutOfRange { raw, len, size }
}
