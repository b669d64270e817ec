//! A thread's way to the heap.

use super::buddy::{AllocateError, FreeError};
use super::reclaim::Reclaimer;
use super::{Heap, room};
use crate::membership::{Instance, Member};
use crate::recovery::{Log, Logs, Recoverers, Recovering};
use outlive_memory::{Memory, Native, Offset, Ordering};

/// A member's way to the heap, or that of a dead one's recoverer.
#[derive(Debug)]
pub struct LocalHeap<'m, M: Memory = Native> {
    heap: Heap<M>,
    log: Log<M>,
    logs: Logs<M>,
    acting: Instance,
    member: &'m Member<M>,
    recoverers: Option<&'m Recoverers<M>>,
    pub(super) reclaimer: Reclaimer,
}

impl<'m, M: Memory> LocalHeap<'m, M> {
    /// `member`'s way to `heap`. It has one at a time.
    pub fn of(heap: Heap<M>, member: &'m Member<M>, recoverers: &'m Recoverers<M>) -> Self {
        let local = Self {
            heap,
            log: recoverers.logs().of(member.instance().id),
            logs: recoverers.logs(),
            acting: member.instance(),
            member,
            recoverers: Some(recoverers),
            reclaimer: Reclaimer::new(false),
        };
        local.begin_reclamation();
        local
    }

    /// The way of whoever recovers a dead member, in its name: what it frees and retires is as if the dead
    /// had. It cannot allocate.
    pub fn of_the_dead(heap: Heap<M>, dead: &Recovering<'m, M>) -> Self {
        Self {
            heap,
            log: dead.log(),
            logs: dead.logs(),
            acting: dead.owner(),
            member: dead.member(),
            recoverers: None,
            reclaimer: Reclaimer::new(true),
        }
    }

    pub(super) fn log(&self) -> Log<M> {
        self.log
    }

    /// The logs of everybody.
    pub(super) fn logs(&self) -> Logs<M> {
        self.logs
    }

    /// By whom the dead are recovered; `None` for a recoverer.
    pub(super) fn recoverers(&self) -> Option<&'m Recoverers<M>> {
        self.recoverers
    }

    /// Whether it acts in the name of a dead instance.
    pub(super) fn is_for_the_dead(&self) -> bool {
        self.recoverers.is_none()
    }

    pub(super) fn shortened(&self) -> &LocalHeap<'_, M> {
        self
    }

    /// The memory.
    pub fn memory(&self) -> M {
        self.heap.memory()
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
    /// which is 0 before, in one step.
    ///
    /// # Errors
    /// See [`AllocateError`]; nothing is changed then.
    ///
    /// # Crash
    /// After recovery the cell holds a block that is allocated, or 0 and nothing was allocated.
    pub fn allocate_into(&self, bytes: u64, cell: Offset) -> Result<Offset, AllocateError> {
        let memory = self.memory();
        assert!(self.recoverers.is_some());
        let _ = Logs::<M>::STRIDE;
        // For the skeleton only.
        let buddy = self.heap.buddy();
        let at: u64 = memory.fetch_add(
            self.heap.state(),
            bytes.next_multiple_of(16),
            Ordering::Relaxed,
        );
        let block = buddy.region() + at;
        memory.store(cell, block.raw(), Ordering::Release);
        Ok(block)
    }

    /// Frees the block that the word at `cell` holds, and writes `instead` there, in one step.
    ///
    /// # Errors
    /// See [`FreeError`]; nothing is changed then.
    ///
    /// # Crash
    /// After recovery the cell holds the block, which is allocated, or `instead`, and the block is free.
    pub fn free_from(&self, cell: Offset, instead: u64) -> Result<Offset, FreeError> {
        let memory = self.memory();
        let block: u64 = memory.load(cell, Ordering::Relaxed);
        memory.store(cell, instead, Ordering::Release);
        Ok(Offset::from_raw(block))
    }
}

impl<M: Memory> Drop for LocalHeap<'_, M> {
    fn drop(&mut self) {
        if !self.is_for_the_dead() {
            self.end_reclamation();
        }
    }
}
