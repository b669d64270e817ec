//! The small world of these proofs: a pod with a heap and a pool of four slots, and a job whose tasks read what others write.
//!
//! ```text
//! SPLIT   spawns two that WRITE, `a` and `b`, and one that READs both, and gives their sum as the result
//! NAME    spawns one that COPIES `n`, which its data is to be brought to
//! FAN     spawns four that LOOK at `a`, and one that SPREADs: writes `a`, and spawns six LEAVES. A deque has room for eight
//! ```
//!
//! What a task writes is its key and its attempt. The number of its runs stands in a word of its key.

use crate::crew::{Crew, Judged, Publisher, blocks_of, give_named_ports, give_ports, ticket_of};
use crate::desk::Desk;
use crate::jobs::{JobState, Record, Root, Submission, name_key, result_key};
use crate::layout::{Hand, Layout, Shape};
use crate::names::{Data, Ports};
use crate::{Batch, Hooks, PoolError, Running, Settings, Spec, State, Task};
use core::time::Duration;
use outlive::heap::{self, Heap, LocalHeap};
use outlive::membership::{Member, Status};
use outlive::memory::{Memory, Offset, Ordering};
use outlive::structures;
use outlive::sync::{self, Outcome, Waiting};
pub use outlive_prove::fixtures::pod::Pod;
use outlive_prove::fixtures::pod::{DATA, SIZE};
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
/// What `n` is, for one that is to be read.
pub const NUMBER: u8 = 9;

/// How many look at `a` after a `FAN`, and how many leaves there are.
pub const LOOKS: u64 = 4;
pub const LEAVES: u64 = 6;
/// Keys of theirs.
pub const SPREAD_KEY: u8 = 5;
pub const LOOK_KEY: u8 = 6;
pub const LEAF_KEY: u8 = 7;
pub const COPY_KEY: u8 = 2;

/// Keys: of the root, of those that write, of the one that reads.
pub const ROOT_KEY: u8 = 1;
pub const KEYS: u64 = 8;

const FLAGS: Offset = Offset::new(DATA.raw() + 256);
/// Where the list begins of blocks that are there to fill the heap.
const FILLING: Offset = Offset::new(DATA.raw() + 384);
const HALL: Offset = Offset::new(SIZE);
const STATE: Offset = Offset::new(SIZE + (8 << 10));
const SLAB: u64 = 32 << 10;
const REGION: Offset = Offset::new(STATE.raw() + (48 << 10));

/// How large a memory must be whose heap has so many slabs.
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
    pub pod: Pod<M>,
    pub heap: Heap<M>,
    pub layout: Layout<M>,
}

impl<M: Memory> Deref for World<M> {
    type Target = Pod<M>;
    fn deref(&self) -> &Pod<M> {
        &self.pod
    }
}

impl<M: Memory> World<M> {
    /// A pod that has joined nobody, and its heap.
    pub fn pod(memory: M) -> (Pod<M>, Heap<M>) {
        let heap = Heap::open(memory, STATE).expect("a heap");
        let mut pod = Pod::new(memory);
        let recoverers = heap::recoverers_of(heap::recoverers(sync::recoverers(pod.logs)), heap);
        pod.recoverers = structures::recoverers(recoverers, heap);
        (pod, heap)
    }

    /// In a memory of zeros: all have joined, and there is a pool.
    pub fn create(memory: M, slabs: u64) -> Self {
        Self::create_shaped(memory, slabs, &SHAPE)
    }

    /// The same with a pool of another shape.
    fn create_shaped(memory: M, slabs: u64, shape: &Shape) -> Self {
        let (pod, heap) = Self::create_pod(memory, slabs);
        let layout = {
            let member = pod.act_as(3);
            let local = LocalHeap::of(heap, &member, &pod.recoverers);
            Layout::create(&local, HALL, shape, (7, "none")).expect("room")
        };
        Self { pod, heap, layout }
    }

    /// In a memory of zeros: all have joined, and there is no pool.
    pub fn create_pod(memory: M, slabs: u64) -> (Pod<M>, Heap<M>) {
        Heap::create(memory, STATE, REGION, slabs * SLAB).expect("a heap");
        let (pod, heap) = Self::pod(memory);
        (0..4).for_each(|id| drop(pod.join(id)));
        (pod, heap)
    }

    /// As [`create`](Self::create), and all members but the last have slabs of the sizes that they need: so that a sweep goes through what it
    /// is about, and not through the heap.
    pub fn create_warm(memory: M, slabs: u64, shape: &Shape) -> Self {
        let world = Self::create_shaped(memory, slabs, shape);
        for id in 0..3 {
            let member = world.act_as(id);
            let local = world.local(&member);
            for bytes in [24, 64, 80, 96, 112, 128, 160, 200, 256, 384, 1024] {
                // And what stands in new blocks is anything.
                for hand in 0..8 {
                    let block = local.allocate_into(bytes, local.hand(hand)).expect("room");
                    memory.copy_in(block, &vec![0xA5; bytes as usize]);
                }
                for hand in 0..8 {
                    local.free_from(local.hand(hand), 0).expect("it is there");
                }
            }
        }
        world
    }

    /// The same once it has been created.
    pub fn open(memory: M) -> Self {
        let (pod, heap) = Self::pod(memory);
        let layout = Layout::open(memory, HALL).expect("a pool");
        Self { pod, heap, layout }
    }

    pub fn local<'m>(&'m self, member: &'m Member<M>) -> LocalHeap<'m, M> {
        LocalHeap::of(self.heap, member, &self.recoverers)
    }

    pub fn hand<'m>(&'m self, heap: &'m LocalHeap<'m, M>) -> Hand<'m, M> {
        let recoverers = &self.recoverers;
        Hand { heap, recoverers }
    }

    /// Leaves nobody a block of `bytes`, nor room for a slab: what they have of other sizes is theirs.
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

    /// What the heap is filled with.
    fn filling(&self) -> Vec<Offset> {
        let next = |at: Offset| {
            let word: u64 = self.memory.load(at, Ordering::Relaxed);
            (word != 0).then(|| Offset::from_raw(word))
        };
        std::iter::successors(next(FILLING), |at| next(*at)).collect()
    }

    /// Gives `n` its data.
    pub fn put_number(&self, hand: Hand<'_, M>) {
        let desk = Desk::take(self.layout, hand).expect("a desk");
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

    /// The job that has the first root.
    pub fn first_job(&self) -> Option<Record<M>> {
        Root::of(self.layout, 0).job()
    }

    pub fn job(&self, hand: Hand<'_, M>) -> Option<Record<M>> {
        self.layout.find_job(hand, b"j")
    }

    /// The data of a key, with the attempt that wrote it.
    pub fn written(&self, heap: &LocalHeap<'_, M>, key: &[u8]) -> Option<Vec<u8>> {
        let cell = self.layout.names.find(heap, key)?;
        cell.value().map(Data::to_vec)
    }

    pub fn result(&self, heap: &LocalHeap<'_, M>) -> Option<Vec<u8>> {
        self.written(heap, &result_key(b"j"))
    }

    /// Counts a run of `key`.
    pub fn count(&self, key: u8, by_victim: bool) {
        let one = if by_victim { 1u64 } else { 1 << 32 };
        let at = DATA + u64::from(key) * 8;
        self.memory.fetch_add(at, one, Ordering::Relaxed);
    }

    /// A flag by which those in a scenario wait for one another, or a survivor knows that one has been there.
    pub fn raise(&self, flag: u64) {
        self.memory.store(FLAGS + flag * 8, 1u64, Ordering::Release);
    }

    /// Whether it is raised.
    pub fn is_raised(&self, flag: u64) -> bool {
        self.memory.load::<u64>(FLAGS + flag * 8, Ordering::Acquire) != 0
    }

    /// Waits for it.
    pub fn await_flag(&self, flag: u64) {
        while !self.is_raised(flag) {
            self.memory.spin_hint();
        }
    }

    /// How often `key` has been run by the victim, and by others.
    pub fn runs(&self, key: u64) -> (u64, u64) {
        let word: u64 = self.memory.load(DATA + key * 8, Ordering::Relaxed);
        (word & 0xFFFF_FFFF, word >> 32)
    }

    /// Whoever has joined and is asked for can no longer write.
    pub fn die(&self, id: u32) {
        if self.status(id).may_write() {
            self.declare_dead(id);
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
        self.count(key, way.by_victim);
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
                assert_eq!(data.expect("it was waited for").to_vec()[0], SPREAD_KEY);
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
                // As a context does: from its first look at data on.
                let _pin = hand.heap.pin();
                let data = ports.inputs().next().and_then(|cell| cell.value());
                assert_eq!(data.expect("it was waited for").to_vec(), [NUMBER]);
            }
            WRITE => {
                let output = ports.outputs().next().expect("a port");
                output.write(hand.heap, &[key, run.attempt()])?;
                if way.publishes_first && way.by_victim {
                    // As a commit does; the task runs still.
                    let cell = output.cell().expect("a cell");
                    cell.bind(output.block().expect("a block"));
                }
            }
            READ => {
                let inputs: Vec<_> = ports.inputs().collect();
                let value = |index: usize| {
                    let data = inputs[index].value().expect("it was waited for");
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

    /// Works until the job `j` is over. Whoever waits does so for others.
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

    /// Nothing of the dead is left, nothing has leaked, and every task is over.
    pub fn demand_sound(&self, heap: &LocalHeap<'_, M>) -> Result<(), String> {
        let text = |error: PoolError| error.to_string();
        for (task, status) in { self.layout.slots }.tasks().map_err(|e| e.to_string())? {
            if !status.state().is_over() && status.state() != State::New {
                return Err(format!("the task at {} is {status:?}", task.offset()));
            }
        }
        let mut blocks = blocks_of(self.layout, heap).map_err(text)?;
        // The header stands outside.
        blocks.retain(|block| *block != HALL);
        blocks.extend(self.filling());
        blocks.extend((0..4).flat_map(|id| self.heap.retired(self.logs.of(id))));
        let report = self.heap.check_reachable(blocks);
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

    /// The job `j` is complete, and its result is that of `SPLIT`.
    pub fn demand_done(&self, hand: Hand<'_, M>) -> Result<(), String> {
        let Some(job) = self.job(hand) else {
            return Err("the job is gone".into());
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

/// How somebody works.
#[derive(Clone, Copy, Debug, Default)]
pub struct Way {
    pub by_victim: bool,
    pub stops_after_one: bool,
    /// Broken: an output is bound before its task takes effect.
    pub publishes_first: bool,
    /// Broken: a commit has room for all that it readies, or stays with its worker.
    pub demands_room: bool,
}

/// What a commit does besides, but that nothing waits for room.
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
