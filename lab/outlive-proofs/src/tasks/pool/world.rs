//! The small world of these proofs: a pod with a heap and a pool of four slots, and a job with
//! tasks that read the data of others.
//!
//! ```text
//! SPLIT   spawns two that WRITE, `a` and `b`, and one that READs both, and gives their sum as the result
//! NAME    spawns one that COPIES `n`, which its data is to be brought to
//! FAN     spawns four that LOOK at `a`, and one that SPREADs: writes `a`, and spawns six LEAVES. A deque has room for eight
//! ```
//!
//! A task writes its key and its attempt. The number of its runs is in the word of its key.

pub use crate::pod::Pod;
use crate::pod::{DATA, HeapPod, SIZE};
use core::time::Duration;
use outlive::heap::LocalHeap;
use outlive::memory::{Memory, Offset, Ordering};
use outlive::structures;
use outlive::sync::{Outcome, Waiting};
use outlive_tasks::internals::{
    Crew, Data, Hand, JobState, Judged, Layout, Ports, Publisher, Record, Root, Shape, StagingSlot,
    Submission, blocks_of, give_named_ports, give_ports, name_key, result_key, ticket_of,
};
use outlive_tasks::{Batch, Hooks, PoolError, Running, Settings, Spec, State, Task};
use std::ops::Deref;

pub const SPLIT: u32 = 0;
pub const WRITE: u32 = 1;
pub const READ: u32 = 2;
pub const FAIL: u32 = 3;
pub const FAN: u32 = 4;
pub const SPREAD: u32 = 5;
pub const LOOK: u32 = 6;
pub const LEAF: u32 = 7;
pub const NAME: u32 = 8;
pub const COPY: u32 = 9;
/// The data of `n`.
pub const NUMBER: u8 = 9;

/// The number of tasks that look at `a` after a `FAN`, and the number of leaves.
pub const LOOKS: u64 = 4;
pub const LEAVES: u64 = 6;
/// Their keys.
pub const SPREAD_KEY: u8 = 5;
pub const LOOK_KEY: u8 = 6;
pub const LEAF_KEY: u8 = 7;
pub const COPY_KEY: u8 = 2;

/// The key of the root. The writers have 2 and 3, the reader has 4.
pub const ROOT_KEY: u8 = 1;
pub const KEYS: u64 = 8;

const FLAGS: Offset = Offset::new(DATA.raw() + 256);
/// The head of the list of blocks that fill the heap.
const FILLING: Offset = Offset::new(DATA.raw() + 384);
const HALL: Offset = Offset::new(SIZE);
const STATE: Offset = Offset::new(SIZE + (8 << 10));
const SLAB: u64 = 32 << 10;
const REGION: Offset = Offset::new(STATE.raw() + (48 << 10));

/// Returns the size of a memory with a heap of `slabs` slabs.
pub const fn bytes(slabs: u64) -> u64 {
    REGION.raw() + slabs * SLAB
}

pub const SHAPE: Shape = Shape {
    slots: Settings {
        capacity: 4,
        chunk: 1024,
        smallest: 3,
    },
    roots: 2,
    tries: 2,
    crash_limit: 8,
    freeze: Duration::from_secs(1),
    original: 4,
    elastic: None,
    small: true,
};

/// A pod, its heap, its pool.
pub struct World<M: Memory> {
    pub ground: HeapPod<M>,
    pub layout: Layout<M>,
}

impl<M: Memory> Deref for World<M> {
    type Target = HeapPod<M>;
    fn deref(&self) -> &HeapPod<M> {
        &self.ground
    }
}

impl<M: Memory> World<M> {
    /// Opens the pod and its heap.
    pub fn pod(memory: M) -> HeapPod<M> {
        HeapPod::open(memory, STATE).with(structures::recoverers)
    }

    /// Creates the world in zeroed memory: all have joined, and there is a pool.
    pub fn create(memory: M, slabs: u64) -> Self {
        Self::create_shaped(memory, slabs, &SHAPE)
    }

    /// The same with a pool of another shape.
    fn create_shaped(memory: M, slabs: u64, shape: &Shape) -> Self {
        let ground = Self::create_pod(memory, slabs);
        let layout = {
            let member = ground.act_as(3);
            Layout::create(&ground.local(&member), HALL, shape, (7, "none")).expect("room")
        };
        Self { ground, layout }
    }

    /// Creates the pod in zeroed memory: all have joined, and there is no pool.
    pub fn create_pod(memory: M, slabs: u64) -> HeapPod<M> {
        let ground = HeapPod::create(memory, STATE, REGION, slabs * SLAB);
        ground.join_all();
        ground.with(structures::recoverers)
    }

    /// As [`create`](Self::create), and all members but the last have slabs of the sizes that they
    /// need: so a sweep covers its operation, and not the heap.
    pub fn create_warm(memory: M, slabs: u64, shape: &Shape) -> Self {
        let world = Self::create_shaped(memory, slabs, shape);
        for id in 0..3 {
            let member = world.act_as(id);
            let local = world.local(&member);
            for bytes in [24, 64, 80, 96, 112, 128, 160, 200, 256, 384, 1024] {
                // New blocks have arbitrary contents.
                for hand in 0..8 {
                    let block = local
                        .allocate_into(bytes, local.pending_cell(hand))
                        .expect("room");
                    memory.copy_in(block, &vec![0xA5; bytes as usize]);
                }
                for hand in 0..8 {
                    local
                        .free_from(local.pending_cell(hand), 0)
                        .expect("it is there");
                }
            }
        }
        world
    }

    /// Opens a world that has been created.
    pub fn open(memory: M) -> Self {
        let layout = Layout::open(memory, HALL).expect("a pool");
        Self {
            ground: Self::pod(memory),
            layout,
        }
    }

    pub fn hand<'m>(&'m self, heap: &'m LocalHeap<'m, M>) -> Hand<'m, M> {
        let recoverers = &self.recoverers;
        Hand { heap, recoverers }
    }

    /// Fills the heap: no member has a block of `bytes` left, nor space for a slab. Their free
    /// blocks of other sizes remain.
    pub fn fill(&self, bytes: u64) {
        let mut at = FILLING;
        let next = |at: &mut Offset| {
            *at = Offset::from_raw(self.memory.load(*at, Ordering::Relaxed));
            self.memory.store(*at, 0u64, Ordering::Relaxed);
        };
        for id in [3, 0, 1, 2] {
            let member = self.act_as(id);
            let local = self.local(&member);
            let slabs = (0..=6).map(|log2| (SLAB * 64) >> log2);
            for size in slabs.chain([bytes]) {
                while local.allocate_into(size, at).is_ok() {
                    next(&mut at);
                }
            }
        }
        self.memory.store(at, 0u64, Ordering::Relaxed);
    }

    /// Returns the blocks that fill the heap.
    fn filling(&self) -> Vec<Offset> {
        let next = |at: Offset| {
            let word: u64 = self.memory.load(at, Ordering::Relaxed);
            (word != 0).then(|| Offset::from_raw(word))
        };
        std::iter::successors(next(FILLING), |at| next(*at)).collect()
    }

    /// Gives `n` its data.
    pub fn put_number(&self, hand: Hand<'_, M>) {
        let desk = StagingSlot::take(self.layout, hand).expect("a desk");
        let put = desk.put(hand, &name_key("n"), 1, |memory, data| {
            memory.copy_in(data.start(), &[NUMBER]);
            Ok(())
        });
        assert!(put.expect("room"), "it is the first");
        desk.leave(hand).expect("it is empty");
    }

    /// Submits the job `k`, which begins when `after` is complete.
    pub fn submit_dependent(
        &self,
        hand: Hand<'_, M>,
        after: Record<M>,
    ) -> Result<Record<M>, PoolError> {
        let submission = Submission {
            name: b"k",
            function: LEAF,
            arguments: &[LEAF_KEY],
            reads: &[],
            writes: &[],
            after: &[after.at],
        };
        self.layout
            .submit_dependent(hand, &submission, || after.keep())
    }

    /// Submits the job `j`.
    pub fn submit(&self, hand: Hand<'_, M>, function: u32) -> Record<M> {
        self.submit_as(hand, "j", function, &[])
    }

    pub fn submit_as(
        &self,
        hand: Hand<'_, M>,
        name: &str,
        function: u32,
        after: &[Offset],
    ) -> Record<M> {
        let submission = Submission {
            name: name.as_bytes(),
            function,
            arguments: &[ROOT_KEY],
            reads: &[],
            writes: &[],
            after,
        };
        let job = self.layout.submit(hand, &submission).expect("room");
        self.layout
            .barrier
            .interrupt(hand.heap.member())
            .expect("a barrier");
        job
    }

    /// Returns the job that has the first root.
    pub fn first_job(&self) -> Option<Record<M>> {
        Root::of(self.layout, 0).job()
    }

    pub fn job(&self, hand: Hand<'_, M>) -> Option<Record<M>> {
        self.layout.find_job(hand, b"j")
    }

    /// Returns the data of a key, with the attempt that wrote it.
    pub fn written(&self, heap: &LocalHeap<'_, M>, key: &[u8]) -> Option<Vec<u8>> {
        let cell = self.layout.names.find(heap, key)?;
        cell.value().map(Data::to_vec)
    }

    pub fn result(&self, heap: &LocalHeap<'_, M>) -> Option<Vec<u8>> {
        self.written(heap, &result_key(b"j"))
    }

    /// Raises a flag: the threads of a scenario wait for it, or it tells a survivor that another
    /// has been there.
    pub fn raise(&self, flag: u64) {
        self.memory.store(FLAGS + flag * 8, 1u64, Ordering::Release);
    }

    /// Returns whether the flag is raised.
    pub fn is_raised(&self, flag: u64) -> bool {
        self.memory.load::<u64>(FLAGS + flag * 8, Ordering::Acquire) != 0
    }

    /// Waits until the flag is raised.
    pub fn await_flag(&self, flag: u64) {
        while !self.is_raised(flag) {
            self.memory.spin_hint();
        }
    }

    /// Runs a task, and completes or fails it.
    pub fn run(
        &self,
        crew: &mut Crew<'_, M>,
        mut run: Running<M>,
        way: Way,
    ) -> Result<(), PoolError> {
        let (hand, layout, memory) = (crew.hand, self.layout, self.memory);
        let key = run.arguments()?[0];
        self.count(key.into(), way.by_victim);
        crew.begin(&run)?;
        let cell = |name: &str| -> Result<Offset, PoolError> {
            Ok(layout.names.cell(hand.heap, &name_key(name))?.offset())
        };
        let none = Offset::from_raw(0);
        let ports = Ports::at(memory, Offset::from_raw(run.task().inputs()));
        match run.function() {
            SPLIT => {
                let mut spawn = |function, key: u8, inputs: &[Offset], outputs: &[Offset]| {
                    let arguments = [key];
                    let spec = Spec {
                        job: run.job(),
                        ..Spec::new(function, &arguments)
                    };
                    let child = crew.engine.spawn(&mut run, &spec)?;
                    crew.has_ports();
                    give_ports(hand, child, inputs, outputs).map(drop)
                };
                let (a, b) = (cell("a")?, cell("b")?);
                spawn(READ, 4, &[a, b], &[none])?;
                spawn(WRITE, 2, &[], &[a, none])?;
                spawn(WRITE, 3, &[], &[b, none])?;
            }
            FAN => {
                let a = cell("a")?;
                let spread = (SPREAD, SPREAD_KEY, &[][..], &[a, none][..]);
                let look = (LOOK, LOOK_KEY, &[a][..], &[][..]);
                let looks = std::iter::repeat_n(look, LOOKS as usize);
                for (function, key, inputs, outputs) in looks.chain([spread]) {
                    let arguments = [key];
                    let spec = Spec {
                        job: run.job(),
                        ..Spec::new(function, &arguments)
                    };
                    let child = crew.engine.spawn(&mut run, &spec)?;
                    crew.has_ports();
                    give_ports(hand, child, inputs, outputs)?;
                }
            }
            SPREAD => {
                let output = ports.outputs().next().expect("a port");
                output.write(hand.heap, &[key, run.attempt()])?;
                let spec = Spec {
                    job: run.job(),
                    ..Spec::new(LEAF, &[LEAF_KEY])
                };
                for _ in 0..LEAVES {
                    crew.engine.spawn(&mut run, &spec)?;
                }
                if way.demands_room {
                    let (layout, hand) = (crew.layout, crew.hand);
                    let mut hooks = Demanding(Publisher { layout, hand });
                    return crew.engine.complete(&mut run, &mut hooks);
                }
            }
            LOOK => {
                let data = ports.inputs().next().and_then(|cell| cell.value());
                assert_eq!(
                    data.expect("a waiting task needs it").to_vec()[0],
                    SPREAD_KEY
                );
            }
            LEAF => {}
            NAME => {
                let spec = Spec {
                    job: run.job(),
                    ..Spec::new(COPY, &[COPY_KEY])
                };
                let child = crew.engine.spawn(&mut run, &spec)?;
                crew.has_ports();
                give_named_ports(layout, hand, child, &[name_key("n")], &[])?;
            }
            COPY => {
                // As a context does: from its first access to data on.
                let _pin = hand.heap.pin();
                let data = ports.inputs().next().and_then(|cell| cell.value());
                assert_eq!(data.expect("a waiting task needs it").to_vec(), [NUMBER]);
            }
            WRITE => {
                let output = ports.outputs().next().expect("a port");
                output.write(hand.heap, &[key, run.attempt()])?;
                if way.publishes_first && way.by_victim {
                    // As a commit does; the task is still running.
                    let cell = output.cell().expect("a cell");
                    cell.bind(output.block().expect("a block"));
                }
            }
            READ => {
                let inputs: Vec<_> = ports.inputs().collect();
                let value = |index: usize| {
                    let data = inputs[index].value().expect("a waiting task needs it");
                    data.to_vec()[0]
                };
                let sum = value(0) + value(1);
                let result = layout.names.cell(hand.heap, &result_key(b"j"))?;
                let output = ports.outputs().last().expect("a port");
                output.set_cell(result);
                output.write(hand.heap, &[sum])?;
            }
            _ => return crew.fail(&mut run, "the task failed, as it should", None),
        }
        crew.complete(&mut run)
    }

    /// Works until the job `j` is over. It waits only for other workers.
    pub fn work(&self, hand: Hand<'_, M>, way: Way) -> Result<(), PoolError> {
        let is_over = || self.job(hand).is_none_or(|job| job.state().is_over());
        self.work_until(hand, way, is_over)
    }

    /// Works until `is_over`.
    pub fn work_until(
        &self,
        hand: Hand<'_, M>,
        way: Way,
        is_over: impl Fn() -> bool,
    ) -> Result<(), PoolError> {
        let mut crew = Crew::claim(self.layout, hand)?;
        let mut seat = self.layout.barrier.join(hand.heap.member())?;
        let mut rounds = 0;
        loop {
            rounds += 1;
            assert!(rounds < 200, "no end is found");
            let moment = self.layout.barrier.moment()?;
            while let Some(run) = crew.find()? {
                self.run(&mut crew, run, way)?;
                if way.stops_after_one {
                    crew.engine.give_up()?;
                    return Ok(());
                }
            }
            if is_over() {
                break;
            }
            if self.layout.barrier.bury(hand.heap.member())? > 0 {
                continue;
            }
            let Some(arrival) = seat.arrive_since(moment)? else {
                continue;
            };
            let (ticket, last) = ticket_of(arrival);
            if last {
                match crew.judge(&mut seat, &ticket, |_| "a task".into())? {
                    Judged::Run(run) => self.run(&mut crew, run, way)?,
                    Judged::GoOn => crew.tidy()?,
                    Judged::Idle => break,
                }
                continue;
            }
            match seat.wait(&ticket, Waiting::DEFAULT, None)? {
                Outcome::Released => crew.tidy()?,
                _ => continue,
            }
        }
        crew.tidy()?;
        seat.leave()?;
        crew.engine.give_up()?;
        Ok(())
    }

    /// Checks that nothing of dead members is left, nothing has leaked, and every task is over.
    pub fn demand_sound(&self, heap: &LocalHeap<'_, M>) -> Result<(), String> {
        let text = |error: PoolError| error.to_string();
        for (task, status) in { self.layout.slots }.tasks().map_err(|e| e.to_string())? {
            if !status.state().is_over() && status.state() != State::New {
                return Err(format!("the task at {} is {status:?}", task.offset()));
            }
        }
        let mut blocks = blocks_of(self.layout, heap).map_err(text)?;
        // The header is outside the heap.
        blocks.retain(|block| *block != HALL);
        blocks.extend(self.filling());
        blocks.extend((0..4).flat_map(|id| self.heap.retired(self.logs.of(id))));
        self.ground.demand_sound(blocks)
    }

    /// Checks that the job `j` is complete, with the result of `SPLIT`.
    pub fn demand_done(&self, hand: Hand<'_, M>) -> Result<(), String> {
        let Some(job) = self.job(hand) else {
            return Err("the job is missing".into());
        };
        if job.state() != JobState::Complete {
            let why = self.layout.error_of(hand, b"j");
            return Err(format!("the job is {:?}: {why:?}", job.state()));
        }
        let result = self.result(hand.heap);
        if result.as_deref() != Some(&[5]) {
            return Err(format!("the result is {result:?}"));
        }
        for (name, key) in [("a", 2u8), ("b", 3)] {
            let data = self.written(hand.heap, &name_key(name));
            if data.as_ref().map(|data| data[0]) != Some(key) {
                return Err(format!("`{name}` is {data:?}"));
            }
        }
        Ok(())
    }
}

/// The behaviour of a worker.
#[derive(Clone, Copy, Debug, Default)]
pub struct Way {
    pub by_victim: bool,
    pub stops_after_one: bool,
    /// Broken: an output is bound before its task takes effect.
    pub publishes_first: bool,
    /// Broken: a commit has space for all that it readies, or stays with its worker.
    pub demands_room: bool,
}

/// Does the additional work of a commit, but lets no task wait for space.
struct Demanding<'h, M: Memory>(Publisher<'h, M>);

impl<M: Memory> Hooks<M> for Demanding<'_, M> {
    type Error = PoolError;

    fn has_outputs(&mut self, task: Task<M>) -> bool {
        self.0.has_outputs(task)
    }

    fn committed(
        &mut self,
        task: Task<M>,
        attempt: u8,
        batch: &mut Batch<'_, '_, M>,
    ) -> Result<(), PoolError> {
        self.0.committed(task, attempt, batch)
    }
}
