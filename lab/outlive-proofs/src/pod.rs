//! A pod of a few ids over one memory. Its members die when a proof says so.

#![allow(dead_code)] // each proof and test uses its part of this

use core::ops::Deref;
use outlive::heap::{self, Heap, LocalHeap};
use outlive::membership::{Generations, Instance, Level, Member, State, Status};
use outlive::memory::{Memory, Offset, Ordering};
use outlive::recovery::{Logs, OwnLog, Recoverers};
use outlive::sync;

/// The number of ids of a pod; the last two are for survivors.
pub const IDS: u32 = 4;
pub const LOCK: Offset = Offset::new(1024);
pub const OTHER_LOCK: Offset = Offset::new(1024 + 128);
pub const DATA: Offset = Offset::new(2048);
const TABLE: Offset = Offset::new(64);
const LOGS: Offset = Offset::new(4096);
pub const SIZE: u64 = 4096 + 0x2000 * IDS as u64;

pub struct Pod<M: Memory> {
    pub memory: M,
    pub generations: Generations<M>,
    pub logs: Logs<M>,
    pub recoverers: Recoverers<M>,
}

impl<M: Memory> Pod<M> {
    pub fn new(memory: M) -> Self {
        let logs = Logs::new(memory, LOGS, IDS);
        Self {
            memory,
            generations: Generations::new(memory, TABLE, IDS),
            logs,
            recoverers: sync::recoverers(logs),
        }
    }

    /// Begins a new incarnation of `id`, without opening its log.
    pub fn stranger(&self, id: u32) -> Member<M> {
        let before = self.generations.state(id).expect("a state");
        assert!(!before.status.may_write() && before.status != Status::Dead);
        let live = State {
            generation: before.generation + 1,
            host: 0,
            level: Some(Level::Thread),
            status: Status::Live,
        };
        // SAFETY: no thread acts as the incarnation that this ends; one acts as the new one.
        assert!(unsafe { self.generations.assume_state(id, before, live) });
        let instance = Instance::new(id, live.generation);
        // SAFETY: tests act as an instance from one thread, and declare it dead when it has
        // stopped.
        unsafe {
            Member::assume(
                self.memory,
                self.generations,
                instance,
                self.logs.at(id),
                None,
            )
        }
    }

    /// Returns the present incarnation of `id`, which has joined.
    pub fn act_as(&self, id: u32) -> Member<M> {
        let instance = Instance::new(id, self.generations.current(id));
        // SAFETY: as in `stranger`.
        unsafe {
            Member::assume(
                self.memory,
                self.generations,
                instance,
                self.logs.at(id),
                None,
            )
        }
    }

    /// Begins a new incarnation of `id`, and opens its log.
    pub fn join(&self, id: u32) -> Member<M> {
        let member = self.stranger(id);
        OwnLog::open(&member).expect("a settled log");
        member
    }

    /// Declares the incarnation of `id` dead: it can no longer write.
    pub fn declare_dead(&self, id: u32) {
        let live = self.generations.state(id).expect("a state");
        assert!(live.status.may_write());
        let dead = State {
            generation: live.generation + 1,
            status: Status::Dead,
            ..live
        };
        // SAFETY: no thread acts as the incarnation that this ends; one acts as the new one.
        assert!(unsafe { self.generations.assume_state(id, live, dead) });
    }

    /// Lets `member` leave in good order.
    pub fn leave(&self, member: Member<M>) {
        OwnLog::of(&member).close().expect("nothing is held");
        let id = member.instance().id;
        let live = self.generations.state(id).expect("a state");
        let status = Status::Left;
        // SAFETY: no thread acts as the incarnation that this ends; one acts as the new one.
        assert!(unsafe {
            self.generations
                .assume_state(id, live, State { status, ..live })
        });
    }

    pub fn status(&self, id: u32) -> Status {
        self.generations.state(id).expect("a state").status
    }

    pub fn get(&self, index: u64) -> u64 {
        self.memory.load(DATA + index * 8, Ordering::Relaxed)
    }

    pub fn set(&self, index: u64, value: u64) {
        self.memory
            .store(DATA + index * 8, value, Ordering::Relaxed);
    }

    /// Asserts that the log of `id` is at rest: unclaimed, without locks and committed redo.
    pub fn assert_settled(&self, id: u32) {
        let log = self.logs.of(id);
        assert_eq!(log.claimant(), None);
        assert_eq!(log.locks().next(), None);
        assert!(!log.redo_committed());
    }
}

/// Returns the start and the end of the region, of `bytes` bytes, of a heap whose state is at
/// [`SIZE`], behind the pod.
pub fn region_behind<M: Memory>(bytes: u64) -> (Offset, u64) {
    let state = Heap::<M>::state_bytes(bytes).expect("a region");
    let at = (SIZE + state).next_multiple_of(4096);
    (Offset::new(at), at + bytes)
}

/// A pod with a heap, on which most fixtures are built.
pub struct HeapPod<M: Memory> {
    pub pod: Pod<M>,
    pub heap: Heap<M>,
}

impl<M: Memory> Deref for HeapPod<M> {
    type Target = Pod<M>;
    fn deref(&self) -> &Pod<M> {
        &self.pod
    }
}

impl<M: Memory> HeapPod<M> {
    /// Opens the pod over a memory in which a heap with its state at `state` has been created.
    pub fn open(memory: M, state: Offset) -> Self {
        let heap = Heap::open(memory, state).expect("a heap");
        let mut pod = Pod::new(memory);
        pod.recoverers = heap::recoverers_of(heap::recoverers(pod.recoverers), heap);
        Self { pod, heap }
    }

    /// Creates the heap over `bytes` from `region` on, in zeroed memory.
    pub fn create(memory: M, state: Offset, region: Offset, bytes: u64) -> Self {
        Heap::create(memory, state, region, bytes).expect("a heap");
        Self::open(memory, state)
    }

    /// Adds `recoverers` to those of the locks and the heap.
    pub fn with(
        mut self,
        recoverers: impl FnOnce(Recoverers<M>, Heap<M>) -> Recoverers<M>,
    ) -> Self {
        self.pod.recoverers = recoverers(self.pod.recoverers, self.heap);
        self
    }

    /// Joins all ids.
    pub fn join_all(&self) {
        (0..IDS).for_each(|id| drop(self.join(id)));
    }

    pub fn local<'m>(&'m self, member: &'m Member<M>) -> LocalHeap<'m, M> {
        LocalHeap::of(self.heap, member, &self.pod.recoverers)
    }

    /// Declares `id` dead, if it has joined.
    pub fn die(&self, id: u32) {
        if self.status(id).may_write() {
            self.declare_dead(id);
        }
    }

    /// Counts a run of `key`: by the victim in the lower half of the key's word, by others in the
    /// upper half.
    pub fn count(&self, key: u64, by_victim: bool) {
        let one = if by_victim { 1u64 } else { 1 << 32 };
        self.memory
            .fetch_add(DATA + key * 8, one, Ordering::Relaxed);
    }

    /// Returns how often the victim has run `key`, and how often others have.
    pub fn runs(&self, key: u64) -> (u64, u64) {
        let word = self.get(key);
        (word & 0xFFFF_FFFF, word >> 32)
    }

    /// Checks that exactly `blocks` are allocated, and that nothing of dead members is left.
    pub fn demand_sound(&self, blocks: impl IntoIterator<Item = Offset>) -> Result<(), String> {
        let report = { self.heap }.check_reachable(blocks);
        if !report.is_clean() {
            return Err(report.to_string());
        }
        if let Some(finding) = self.heap.check_members(self.logs, self.generations).first() {
            return Err(finding.to_string());
        }
        for id in 0..IDS {
            if self.status(id) == Status::Dead {
                return Err(format!("id {id} is not recovered"));
            }
        }
        Ok(())
    }
}
