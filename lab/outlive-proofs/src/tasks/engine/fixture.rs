//! The fixture of the engine's proofs: a pod with a heap and four worker slots, and a tree of
//! tasks. Their runs and effects are counted.
//!
//! A task has a key. Tasks with keys below [`INNER`] spawn two others, `2 * key` and `2 * key + 1`:
//! a root of key 1 is a tree. The result of an attempt counts if it is committed: then the word of
//! its key is *bound*, once, to the attempt's number.

use crate::pod::{DATA, HeapPod, SIZE};
use outlive::heap::LocalHeap;
use outlive::memory::{Memory, Offset, Ordering};
use outlive_prove::weakened::{Weakened, Weakness};
use outlive_tasks::engine::deque::{Stolen, steal};
use outlive_tasks::engine::slot::Slot;
use outlive_tasks::engine::{Batch, Engine, Hooks, Running};
use outlive_tasks::{EngineError, Settings, Slots, Spec, State, Task};

/// The number of slots; the last one is for the thread that prepares and checks.
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

/// Returns the size of a memory with a heap of `slabs` slabs.
pub(crate) const fn bytes(slabs: u64) -> u64 {
    REGION.raw() + slabs * SLAB
}

/// A pod, its heap, its slots.
pub(crate) struct World<M: Memory> {
    ground: HeapPod<M>,
    pub(crate) slots: Slots<M>,
}

impl<M: Memory> core::ops::Deref for World<M> {
    type Target = HeapPod<M>;
    fn deref(&self) -> &HeapPod<M> {
        &self.ground
    }
}

impl<M: Memory> World<M> {
    /// Creates the world in zeroed memory: all have joined, and the slots are unused.
    pub(crate) fn create_bare(memory: M, slabs: u64, smallest: u32) -> Self {
        let ground = HeapPod::create(memory, STATE, REGION, slabs * SLAB);
        let settings = Settings {
            capacity: SLOTS,
            chunk: 512,
            smallest,
        };
        let slots = Slots::create(memory, SLOTS_AT, settings).expect("slots");
        ground.join_all();
        Self { ground, slots }
    }

    /// The same, but number 3 has used all slots: each has an array and a chunk of three
    /// descriptors.
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
            assert!(engine.retry(&mut run).expect("the operation succeeds"));
            engine
                .complete(&mut run, &mut ())
                .expect("the operation succeeds");
            engine.give_up().expect("nothing is held");
        }
    }

    /// Opens a world that has been created.
    pub(crate) fn open(memory: M) -> Self {
        Self {
            ground: HeapPod::open(memory, STATE),
            slots: Slots::open(memory, SLOTS_AT).expect("slots"),
        }
    }

    /// Returns the engine of slot `number`, if it is available.
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
        .expect("the slot can be claimed")
    }

    /// Returns the hooks for commits.
    pub(crate) fn tree(&self) -> Tree<M> {
        Tree {
            memory: self.memory,
            fails: u32::MAX,
        }
    }

    /// Returns a root's descriptor.
    pub(crate) fn root(&self, number: u64) -> Task<M> {
        Task::new(self.memory, ROOTS + number * Task::<M>::BYTES)
    }

    /// Makes root `number` a ready task with that key.
    pub(crate) fn prepare_root(&self, local: &LocalHeap<'_, M>, number: u64, key: u8) {
        self.root(number)
            .prepare_root(local, &Spec::new(0, &[key]), State::Ready)
            .expect("the operation succeeds");
    }

    /// The same, and starts it.
    pub(crate) fn start(&self, engine: &mut Engine<'_, M>, number: u64, key: u8) -> Running<M> {
        self.prepare_root(engine.heap(), number, key);
        let run = engine
            .start(self.root(number))
            .expect("the operation succeeds");
        run.expect("no other worker runs it")
    }

    /// Returns the binding of a key: 0, or the number of the attempt plus 1.
    pub(crate) fn bound(&self, key: u64) -> u64 {
        self.memory.load(BOUND + key * 8, Ordering::Acquire)
    }

    /// Returns whether the key's failure has been reported.
    pub(crate) fn failed(&self, key: u64) -> bool {
        self.memory.load::<u64>(FAILED + key * 8, Ordering::Acquire) != 0
    }

    /// Checks that nothing of dead members is left, and nothing has leaked, when all slots have
    /// been claimed and given up.
    pub(crate) fn demand_sound(&self) -> Result<(), String> {
        let text = |error: EngineError| error.to_string();
        if !self.slots.is_quiet().map_err(text)? {
            return Err("some work is left".into());
        }
        for (task, status) in self.slots.tasks().map_err(text)? {
            if !status.state().is_over() {
                return Err(format!("the task at {} is {status:?}", task.offset()));
            }
        }
        self.ground.demand_sound(self.slots.blocks().map_err(text)?)
    }
}

/// Broken: steals from slot `victim` for slot `thief`, and notes the entry afterwards.
pub(crate) fn steal_and_note<M: Memory>(
    world: &World<M>,
    victim: u32,
    thief: Slot<M>,
) -> Option<u64> {
    // The note of the real steal is lost.
    let lost = Weakness::Stores(thief.running_at(), 8);
    let slots = Slots::open(Weakened::new(world.memory, lost), SLOTS_AT).expect("slots");
    let own =
        (0..SLOTS).find(|number| world.slots.slot(*number).running_at() == thief.running_at());
    let own = slots.slot(own.expect("a slot of this scenario"));
    match steal(slots.memory(), slots.slot(victim), own).expect("the operation succeeds") {
        Stolen::Entry(entry) => {
            thief.note(entry);
            Some(entry)
        }
        Stolen::Nothing | Stolen::Lost => None,
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

/// Spawns the children of the task's key: the second one with long arguments, if `with_long`.
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

/// Broken: publishes the children of a task that runs.
pub(crate) fn publish_children<M: Memory>(engine: &mut Engine<'_, M>, run: &Running<M>) {
    let memory = engine.slots().memory();
    let mut batch = engine.batch(false, 0);
    let mut word = run.children();
    while word != 0 {
        let child = Task::checked(memory, run.task().children_at(), word).expect("a task");
        word = child.next();
        batch.ready(child).expect("room");
    }
    batch.publish();
}

/// The hooks for commits of tasks of the tree: odd keys have an output.
pub(crate) struct Tree<M: Memory> {
    memory: M,
    /// The number of calls that succeed before the hooks break off.
    pub(crate) fails: u32,
}

/// A hook refuses.
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
        task.arguments().expect("the task has arguments")[0].into()
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
