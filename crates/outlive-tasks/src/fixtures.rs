//! The small world of this crate's proofs: a pod with a heap and four worker slots, and a tree of tasks whose runs and
//! effects are counted.
//!
//! A task has a key. Those below [`INNER`] spawn two others, `2 * key` and `2 * key + 1`: a root of key 1 is a tree.
//! What an attempt does counts if it is committed: then the word of its key is *bound*, once, to the attempt's number.

use crate::engine::{Batch, Engine, Hooks, Running};
use crate::{EngineError, Settings, Slots, Spec, State, Task};
use outlive::heap::{self, Heap, LocalHeap};
use outlive::membership::{Member, Status};
use outlive::memory::{Memory, Offset, Ordering};
use outlive::sync;
use outlive_prove::fixtures::pod::{DATA, Pod, SIZE};

/// How many slots there are; the last one is for whoever prepares and looks.
pub(crate) const SLOTS: u32 = 4;
/// Keys are below this.
pub(crate) const KEYS: u64 = 16;
const BOUND: Offset = Offset::new(DATA.raw() + KEYS * 8);
const FAILED: Offset = Offset::new(BOUND.raw() + KEYS * 8);
const ROOTS: Offset = Offset::new(DATA.raw() + 512);
const SLOTS_AT: Offset = Offset::new(SIZE);
const STATE: Offset = Offset::new(SIZE + 4096);
const REGION: Offset = Offset::new(STATE.raw() + (12 << 10));
const SLAB: u64 = 32 << 10;

/// A memory whose heap has so many slabs.
pub(crate) const fn bytes(slabs: u64) -> u64 {
    REGION.raw() + slabs * SLAB
}

/// A pod, its heap, its slots.
pub(crate) struct World<M: Memory> {
    pub(crate) pod: Pod<M>,
    pub(crate) heap: Heap<M>,
    pub(crate) slots: Slots<M>,
}

impl<M: Memory> core::ops::Deref for World<M> {
    type Target = Pod<M>;
    fn deref(&self) -> &Pod<M> {
        &self.pod
    }
}

impl<M: Memory> World<M> {
    /// In a memory of zeros: all have joined, and the slots are as they were made.
    pub(crate) fn create_bare(memory: M, slabs: u64, smallest: u32) -> Self {
        let heap = Heap::create(memory, STATE, REGION, slabs * SLAB).expect("a heap");
        let settings = Settings {
            capacity: SLOTS,
            chunk: 512,
            smallest,
        };
        let slots = Slots::create(memory, SLOTS_AT, settings).expect("slots");
        let world = Self::with(memory, heap, slots);
        (0..4).for_each(|id| drop(world.join(id)));
        world
    }

    /// The same, but number 3 has been in all slots: each has an array and a chunk of three descriptors.
    pub(crate) fn create(memory: M, slabs: u64, smallest: u32) -> Self {
        let world = Self::create_bare(memory, slabs, smallest);
        world.use_all_slots();
        world
    }

    fn use_all_slots(&self) {
        let member = self.act_as(3);
        let local = self.local(&member);
        for number in 0..SLOTS {
            let mut engine = self.claim(&local, number).expect("a slot");
            let mut run = self.start(&mut engine, 0, 15);
            // A child, so that there is a chunk.
            let spec = Spec::new(0, &[15]);
            engine.spawn(&mut run, &spec).expect("room");
            assert!(engine.retry(&mut run).expect("it can be"));
            engine.complete(&mut run, &mut ()).expect("it can be");
            engine.give_up().expect("nothing is held");
        }
    }

    /// The same once it has been created.
    pub(crate) fn open(memory: M) -> Self {
        let heap = Heap::open(memory, STATE).expect("a heap");
        let slots = Slots::open(memory, SLOTS_AT).expect("slots");
        Self::with(memory, heap, slots)
    }

    fn with(memory: M, heap: Heap<M>, slots: Slots<M>) -> Self {
        let mut pod = Pod::new(memory);
        pod.recoverers = heap::recoverers_of(heap::recoverers(sync::recoverers(pod.logs)), heap);
        Self { pod, heap, slots }
    }

    pub(crate) fn local<'m>(&'m self, member: &'m Member<M>) -> LocalHeap<'m, M> {
        LocalHeap::of(self.heap, member, &self.recoverers)
    }

    /// The engine of that slot, if it can be had.
    pub(crate) fn claim<'w>(
        &'w self,
        local: &'w LocalHeap<'w, M>,
        number: u32,
    ) -> Option<Engine<'w, M>> {
        Engine::claim_slot(
            self.slots,
            number,
            local,
            &self.recoverers,
            &mut self.tree(),
        )
        .expect("it can be claimed")
    }

    /// What is done in commits.
    pub(crate) fn tree(&self) -> Tree<M> {
        Tree {
            memory: self.memory,
            fails: u32::MAX,
        }
    }

    /// A root's descriptor.
    pub(crate) fn root(&self, number: u64) -> Task<M> {
        Task::new(self.memory, ROOTS + number * Task::<M>::BYTES)
    }

    /// Root `number` is a ready task with that key.
    pub(crate) fn prepare_root(&self, local: &LocalHeap<'_, M>, number: u64, key: u8) {
        self.root(number)
            .prepare_root(local, &Spec::new(0, &[key]), State::Ready)
            .expect("it can be");
    }

    /// The same, and it runs.
    pub(crate) fn start(&self, engine: &mut Engine<'_, M>, number: u64, key: u8) -> Running<M> {
        self.prepare_root(engine.heap(), number, key);
        let run = engine.start(self.root(number)).expect("it can be");
        run.expect("nobody else runs it")
    }

    /// What a key's attempt is bound to: 0, or the number of the attempt and 1.
    pub(crate) fn bound(&self, key: u64) -> u64 {
        self.memory.load(BOUND + key * 8, Ordering::Acquire)
    }

    /// Whether the key's failure has been told.
    pub(crate) fn failed(&self, key: u64) -> bool {
        self.memory.load::<u64>(FAILED + key * 8, Ordering::Acquire) != 0
    }

    /// Counts a run of `key`, in the memory; one word holds the runs of all: the victim's low, others' in the upper half.
    pub(crate) fn count(&self, key: u64, by_victim: bool) {
        let one = if by_victim { 1u64 } else { 1 << 32 };
        self.memory
            .fetch_add(DATA + key * 8, one, Ordering::Relaxed);
    }

    /// How often `key` has been run by the victim, and by others.
    pub(crate) fn runs(&self, key: u64) -> (u64, u64) {
        let word: u64 = self.memory.load(DATA + key * 8, Ordering::Relaxed);
        (word & 0xFFFF_FFFF, word >> 32)
    }

    /// Whoever has joined and is asked for can no longer write.
    pub(crate) fn die(&self, id: u32) {
        if self.status(id).may_write() {
            self.declare_dead(id);
        }
    }

    /// Nothing of the dead is left, and nothing has leaked: to be asked when all slots have been claimed and given up.
    pub(crate) fn demand_sound(&self) -> Result<(), String> {
        let text = |error: EngineError| error.to_string();
        if !self.slots.is_quiet().map_err(text)? {
            return Err("something is left to be done".into());
        }
        for (task, status) in self.slots.tasks().map_err(text)? {
            if !status.state().is_over() {
                return Err(format!("the task at {} is {status:?}", task.offset()));
            }
        }
        let report = self
            .heap
            .check_reachable(self.slots.blocks().map_err(text)?);
        if !report.is_clean() {
            return Err(report.to_string());
        }
        if let Some(finding) = self.heap.check_members(self.logs, self.generations).first() {
            return Err(finding.to_string());
        }
        for id in 0..4 {
            if self.status(id) == Status::Dead {
                return Err(format!("id {id} is not recovered"));
            }
        }
        Ok(())
    }
}

/// Keys from here on are leaves.
pub(crate) const INNER: u64 = 4;

/// Arguments that do not fit into a descriptor, with the key in front.
pub(crate) fn long(key: u8) -> [u8; 100] {
    let mut bytes = [0; 100];
    bytes[0] = key;
    bytes
}

/// Spawns the children of the task's key: the second one with long arguments, if that is wanted.
pub(crate) fn spawn_children<M: Memory>(
    engine: &mut Engine<'_, M>,
    run: &mut Running<M>,
    with_long: bool,
) -> Result<(), EngineError> {
    let key = run.arguments()?[0];
    if u64::from(key) < INNER {
        engine.spawn(run, &Spec::new(0, &[2 * key]))?;
        let other = 2 * key + 1;
        let short = [other];
        let long = long(other);
        let arguments = if with_long { &long[..] } else { &short[..] };
        engine.spawn(run, &Spec::new(0, arguments))?;
    }
    Ok(())
}

/// What is done when a task of the tree commits: keys that are odd have an output.
pub(crate) struct Tree<M: Memory> {
    memory: M,
    /// Broken off after so many calls.
    pub(crate) fails: u32,
}

/// A hook says no.
#[derive(Debug)]
pub(crate) struct BrokenOff;

impl From<EngineError> for BrokenOff {
    fn from(error: EngineError) -> Self {
        panic!("{error}");
    }
}

impl<M: Memory> Tree<M> {
    fn call(&mut self) -> Result<(), BrokenOff> {
        self.fails = self.fails.checked_sub(1).ok_or(BrokenOff)?;
        Ok(())
    }

    fn key(task: Task<M>) -> u64 {
        task.arguments().expect("they are there")[0].into()
    }

    /// Binds the output of `key`, as attempt `attempt` made it.
    pub(crate) fn bind(&self, key: u64, attempt: u8) {
        let new = u64::from(attempt) + 1;
        let order = (Ordering::AcqRel, Ordering::Acquire);
        let at = BOUND + key * 8;
        if let Err(other) = self.memory.compare_exchange(at, 0, new, order.0, order.1) {
            assert_eq!(other, new, "key {key} is bound to another attempt");
        }
    }
}

impl<M: Memory> Hooks<M> for Tree<M> {
    type Error = BrokenOff;

    fn has_outputs(&mut self, task: Task<M>) -> bool {
        Self::key(task) % 2 == 1
    }

    fn committed(
        &mut self,
        task: Task<M>,
        attempt: u8,
        _: &mut Batch<'_, '_, M>,
    ) -> Result<(), BrokenOff> {
        self.call()?;
        if self.has_outputs(task) {
            self.bind(Self::key(task), attempt);
        }
        Ok(())
    }

    fn child(&mut self, child: Task<M>, batch: &mut Batch<'_, '_, M>) -> Result<(), BrokenOff> {
        self.call()?;
        Ok(batch.ready(child)?)
    }

    fn failed(&mut self, task: Task<M>, _: u8, _: &mut Batch<'_, '_, M>) -> Result<(), BrokenOff> {
        self.call()?;
        let at = FAILED + Self::key(task) * 8;
        self.memory.store(at, 1u64, Ordering::Release);
        Ok(())
    }
}
