//! Workers, as threads of this process or as processes of their own, and the round that they are led through.
//!
//! The first page of the pod's payload belongs to the leader and the workers, the rest to what is measured:
//!
//! ```text
//!     0  round    64  job, how often, whether to stop  128  workers in position    192  workers done
//!  5824  a lock (two lines)                        6080  the counter
//!  8192  for each worker a pair of lines: its node or private word; its start, end and count on the second
//! 512 Ki  cells, 8 KiB for each worker
//!   1 Mi  the heap: its state and its region
//! ```
//!
//! A worker sleeps until the round's number changes, takes up position, and goes when all are there.

use crate::children::{Launcher, Part, Playing, ready};
use crate::heap::Allocator;
use crate::locks::{self, Lock};
use crate::scratch::{ScratchPod, payload};
use crate::{StudyError, clock};
use outlive::heap::{self, Heap};
use outlive::membership::{Member, Process, ProcessOptions, Settings};
use outlive::memory::{Memory, Native, Offset, Ordering};
use outlive::pod::Pod;
use outlive::recovery::Recoverers;
use outlive::sync;
use serde::{Deserialize, Serialize};
use std::hint::{black_box, spin_loop};
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const ROUND: u64 = 0;
const JOB: u64 = 64;
const HOW_OFTEN: u64 = 72;
const STOP: u64 = 80;
const IN_POSITION: u64 = 128;
const DONE: u64 = 192;
/// Not where a page or a log begins: loads and stores that differ by pages only can get in each other's way.
const LOCK: u64 = 4096 + 27 * 64;
const COUNTER: u64 = LOCK + 256;
const WORKERS: u64 = 8192;
const WORKER: u64 = 256;
const STAMPS: u64 = 128;
const CELLS: u64 = 512 << 10;
/// How many cells each worker has.
pub const CELLS_EACH: u64 = 1024;
const HEAP: u64 = 1 << 20;
const REGION: u64 = 24 << 20;
/// The job that ends it.
const END: u64 = u64::MAX;
/// As often as can be, until told to stop.
const UNTIL_STOPPED: u64 = u64::MAX;
/// For how long a round may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often each worker does it in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count(pub u64);

/// What is done again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Job {
    /// An increment under a lock.
    Increment(Lock),
    /// An allocation and a free.
    Allocate(Allocator),
}

impl Job {
    fn all() -> impl Iterator<Item = Self> {
        let locks = Lock::ALL.into_iter().map(Self::Increment);
        locks.chain(Allocator::all().map(Self::Allocate))
    }

    /// As the leader tells it.
    fn code(self) -> u64 {
        let place = Self::all().position(|job| job == self);
        place.expect("every job has a place") as u64
    }

    fn of(code: u64) -> Option<Self> {
        Self::all().nth(usize::try_from(code).ok()?)
    }

    fn name(self) -> String {
        match self {
            Self::Increment(lock) => lock.name().to_owned(),
            Self::Allocate(allocator) => allocator.name(),
        }
    }
}

/// A worker in a process of its own.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Worker {
    pod: PathBuf,
    index: u32,
}

impl Worker {
    /// Works until told to end.
    pub fn play(self) -> Result<(), StudyError> {
        let pod = Pod::open(&self.pod)?;
        let process = join(&pod, 1 + self.index)?;
        let bench = Bench::new(&pod, &process, self.index)?;
        ready();
        bench.work();
        drop(bench);
        Ok(process.leave()?)
    }
}

/// Joins with the handlers for what is in the stage's pod.
fn join(pod: &Pod, host: u32) -> Result<Process, StudyError> {
    let heap = open_heap(pod)?;
    let options = ProcessOptions::on_host(host).name("worker");
    Ok(pod.join_with(options, |recoverers| heap::recoverers_of(recoverers, heap))?)
}

fn open_heap(pod: &Pod) -> Result<Heap, StudyError> {
    let heap = Heap::open(pod.segment().memory(), payload(pod) + HEAP);
    heap.map_err(|error| StudyError::void(error.to_string()))
}

/// What a worker has at hand.
pub struct Bench {
    pub memory: Native,
    pub member: Member,
    pub recoverers: Recoverers,
    pub heap: Heap,
    #[cfg(feature = "peers")]
    pod: String,
    base: Offset,
    index: u32,
}

impl Bench {
    fn new(pod: &Pod, process: &Process, index: u32) -> Result<Self, StudyError> {
        let heap = open_heap(pod)?;
        let recoverers = heap::recoverers(sync::recoverers(pod.logs()));
        Ok(Self {
            memory: pod.segment().memory(),
            member: process.enter(None, "worker")?,
            recoverers: heap::recoverers_of(recoverers, heap),
            heap,
            #[cfg(feature = "peers")]
            pod: pod.segment().path().display().to_string(),
            base: payload(pod),
            index,
        })
    }

    /// Where the lock is.
    #[inline(always)]
    pub fn lock(&self) -> Offset {
        self.base + LOCK
    }

    /// A line that is this worker's own.
    pub fn own_line(&self) -> Offset {
        self.base + WORKERS + u64::from(self.index) * WORKER
    }

    /// Where this worker's cells are.
    pub fn cells(&self) -> Offset {
        self.base + CELLS + u64::from(self.index) * CELLS_EACH * 8
    }

    /// The name of the pod's file.
    #[cfg(feature = "peers")]
    pub fn pod(&self) -> &str {
        &self.pod
    }

    /// This worker's number.
    #[cfg(feature = "peers")]
    pub fn index(&self) -> u64 {
        self.index.into()
    }

    /// What is done under the lock.
    #[inline(always)]
    pub fn add(&self) {
        let at = self.base + COUNTER;
        let sum: u64 = self.memory.load(at, Ordering::Relaxed);
        self.memory.store(at, black_box(sum + 1), Ordering::Relaxed);
    }

    fn work(&self) {
        let (memory, base) = (self.memory, self.base);
        // A fresh payload is zero, and the first round is 1.
        let mut last = 0;
        loop {
            let round = memory.load::<u64>(base + ROUND, Ordering::Acquire);
            if round == last {
                std::thread::sleep(Duration::from_micros(50));
                continue;
            }
            last = round;
            // Relaxed: the round's number was acquired.
            let code = memory.load(base + JOB, Ordering::Relaxed);
            let often = memory.load(base + HOW_OFTEN, Ordering::Relaxed);
            match Job::of(code) {
                Some(Job::Increment(lock)) => locks::round(self, lock, often),
                Some(Job::Allocate(allocator)) => crate::heap::round(self, allocator, often),
                None => return,
            }
            // Release: the stamps and the counter.
            memory.fetch_add(base + DONE, 1u64, Ordering::Release);
        }
    }

    /// Starts with the others, and stamps start and end. Never inlined, so that every loop has the same
    /// surroundings.
    #[inline(never)]
    pub fn run(&self, often: u64, mut job: impl FnMut()) {
        let (memory, base) = (self.memory, self.base);
        memory.fetch_add(base + IN_POSITION, 1u64, Ordering::AcqRel);
        let mut looks = 0u32;
        // The leader's number stands in the upper half: how many are to be in position.
        loop {
            let word: u64 = memory.load(base + IN_POSITION, Ordering::Acquire);
            if word & 0xFFFF_FFFF >= word >> 32 {
                break;
            }
            looks += 1;
            if looks < 1000 {
                spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
        let start = clock::now();
        // One loop for both: what is measured would not be inlined in two places.
        let (endless, mut left) = (often == UNTIL_STOPPED, often);
        // Relaxed: nothing is read that the leader wrote before.
        while left != 0 && !(endless && memory.load::<u64>(base + STOP, Ordering::Relaxed) != 0) {
            job();
            left -= 1;
        }
        let end = clock::now();
        let stamps = self.own_line() + STAMPS;
        memory.store(stamps, start, Ordering::Relaxed);
        memory.store(stamps + 8, end, Ordering::Relaxed);
        memory.store(stamps + 16, often - left, Ordering::Relaxed);
    }

    /// Where the counter is not the value under the lock: it is at least `value` now.
    pub fn counted(&self, value: u64) {
        let place = self.memory.address(self.base + COUNTER, 8).cast();
        // SAFETY: mapped for the rest of the process, aligned, used by atomics only.
        let counter = unsafe { AtomicU64::from_ptr(place.as_ptr()) };
        counter.fetch_max(value, std::sync::atomic::Ordering::Relaxed);
    }

    /// Where nothing is counted: this worker has done its part.
    pub fn did(&self, often: u64) {
        let counter = self.base + COUNTER;
        self.memory.fetch_add(counter, often, Ordering::Relaxed);
    }
}

/// A pod with workers in position.
pub struct Stage {
    workers: u32,
    threads: Vec<JoinHandle<()>>,
    processes: Vec<Playing>,
    /// The process that the threads belong to.
    process: Option<Process>,
    scratch: ScratchPod,
}

impl Stage {
    /// Workers that are threads of this process.
    pub fn threads(workers: u32) -> Result<Self, StudyError> {
        let mut stage = Self::empty(workers)?;
        let process = join(stage.scratch.pod(), 0)?;
        stage.process = Some(process.clone());
        let (entered, in_order) = std::sync::mpsc::channel();
        for index in 0..workers {
            let (pod, process, entered) = (
                stage.scratch.pod().clone(),
                process.clone(),
                entered.clone(),
            );
            let worker = std::thread::Builder::new().name(format!("worker {index}"));
            let worker = worker.spawn(move || match Bench::new(&pod, &process, index) {
                Ok(bench) => {
                    let _ = entered.send(Ok(()));
                    bench.work();
                }
                Err(error) => {
                    let _ = entered.send(Err(error));
                }
            });
            stage
                .threads
                .push(worker.map_err(StudyError::io("starting a thread"))?);
        }
        for _ in 0..workers {
            in_order.recv().expect("every worker says how it entered")?;
        }
        Ok(stage)
    }

    /// Workers that are processes.
    pub fn processes(workers: u32, launcher: &Launcher) -> Result<Self, StudyError> {
        let mut stage = Self::empty(workers)?;
        for index in 0..workers {
            let pod = stage.scratch.path().to_owned();
            let worker = launcher.start(&Part::Worker(Worker { pod, index }))?;
            stage.processes.push(worker);
        }
        for worker in &mut stage.processes {
            worker.await_ready()?;
        }
        Ok(stage)
    }

    fn empty(workers: u32) -> Result<Self, StudyError> {
        let scratch = ScratchPod::new(32 << 20, Settings::default())?;
        let (memory, state) = (scratch.pod().segment().memory(), scratch.payload() + HEAP);
        let wrong = |error: &dyn std::fmt::Display| StudyError::void(error.to_string());
        let bytes = Heap::<Native>::state_bytes(REGION).map_err(|error| wrong(&error))?;
        let region = Offset::new((state + bytes).raw().next_multiple_of(4096));
        Heap::create(memory, state, region, REGION).map_err(|error| wrong(&error))?;
        Ok(Self {
            workers,
            threads: Vec::new(),
            processes: Vec::new(),
            process: None,
            scratch,
        })
    }

    /// The name of the pod's file.
    #[cfg(feature = "peers")]
    pub fn pod(&self) -> &str {
        self.scratch.path().to_str().expect("a name of our own")
    }

    fn memory(&self) -> Native {
        self.scratch.pod().segment().memory()
    }

    /// How often a worker does `job` in about as many `nanoseconds`.
    pub fn calibrate(&mut self, job: Job, nanoseconds: f64) -> Result<Count, StudyError> {
        let mut count = 64.0;
        loop {
            let each = self.time(job, Count(count as u64))?;
            if each * count >= nanoseconds / 4.0 {
                return Ok(Count(((nanoseconds / each) as u64).max(16)));
            }
            count *= 4.0;
        }
    }

    /// Has every worker do `job` as often as `count` says; the nanoseconds that one takes one worker.
    pub fn time(&mut self, job: Job, count: Count) -> Result<f64, StudyError> {
        let (memory, base) = (self.memory(), self.scratch.payload());
        self.begin(job, count.0);
        self.await_end(job)?;
        let counter = self.counter();
        let expected = count.0 * u64::from(self.workers);
        if counter != expected {
            return Err(StudyError::void(format!(
                "{expected} times {} made {counter}",
                job.name()
            )));
        }
        let stamps = (0..u64::from(self.workers)).map(|worker| {
            let at = base + WORKERS + worker * WORKER + STAMPS;
            let [start, end] = [at, at + 8].map(|at| memory.load::<u64>(at, Ordering::Relaxed));
            (start, end)
        });
        let (start, end) = stamps.fold((u64::MAX, 0), |all, one| {
            (all.0.min(one.0), all.1.max(one.1))
        });
        Ok((end - start) as f64 / count.0 as f64)
    }

    /// Has every worker do `job` for `window`, after as long a time to get into each other's way; the
    /// nanoseconds that one takes one worker. Where there are more workers than cores, those that find a core
    /// first would be through with a fixed number before the others have one.
    pub fn rate(&mut self, job: Job, window: Duration) -> Result<f64, StudyError> {
        let (memory, base) = (self.memory(), self.scratch.payload());
        self.begin(job, UNTIL_STOPPED);
        std::thread::sleep(window);
        let (from, start) = (self.counter(), Instant::now());
        std::thread::sleep(window);
        let (to, time) = (self.counter(), start.elapsed());
        memory.store(base + STOP, 1u64, Ordering::Relaxed);
        self.await_end(job)?;
        let made: u64 = (0..u64::from(self.workers))
            .map(|worker| base + WORKERS + worker * WORKER + STAMPS + 16)
            .map(|at| memory.load::<u64>(at, Ordering::Relaxed))
            .sum();
        let counter = self.counter();
        if made != counter || to <= from {
            let name = job.name();
            return Err(StudyError::void(format!(
                "{made} times {name} made {counter}, and {from} became {to} in {window:?}"
            )));
        }
        Ok(time.as_nanos() as f64 * f64::from(self.workers) / (to - from) as f64)
    }

    fn counter(&self) -> u64 {
        let counter = self.scratch.payload() + COUNTER;
        self.memory().load(counter, Ordering::Relaxed)
    }

    /// Makes everything ready and begins a round.
    fn begin(&self, job: Job, often: u64) {
        let (memory, base) = (self.memory(), self.scratch.payload());
        memory.copy_in(base + LOCK, &[0; 512]);
        if job == Job::Increment(Lock::RobustPthread) {
            locks::initialise_pthread(memory, base + LOCK);
        }
        memory.store(base + STOP, 0u64, Ordering::Relaxed);
        memory.store(base + DONE, 0u64, Ordering::Relaxed);
        let positions = u64::from(self.workers) << 32;
        memory.store(base + IN_POSITION, positions, Ordering::Relaxed);
        self.tell(job.code(), often);
    }

    /// Waits until every worker is done.
    fn await_end(&mut self, job: Job) -> Result<(), StudyError> {
        let done = self.scratch.payload() + DONE;
        let until = Instant::now() + PATIENCE;
        while self.memory().load::<u64>(done, Ordering::Acquire) < u64::from(self.workers) {
            std::thread::sleep(Duration::from_micros(200));
            for worker in &mut self.processes {
                if worker.ended().is_some() {
                    return Err(worker.lost());
                }
            }
            if Instant::now() > until {
                let what = format!("a round of {} took over {PATIENCE:?}", job.name());
                return Err(StudyError::void(what));
            }
        }
        Ok(())
    }

    /// Begins a round.
    fn tell(&self, job: u64, count: u64) {
        let (memory, base) = (self.memory(), self.scratch.payload());
        memory.store(base + JOB, job, Ordering::Relaxed);
        memory.store(base + HOW_OFTEN, count, Ordering::Relaxed);
        // Release: everything about the round.
        memory.fetch_add(base + ROUND, 1u64, Ordering::Release);
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.tell(END, 0);
        for worker in self.threads.drain(..) {
            let _ = worker.join();
        }
        // Those that go in good order need not be killed.
        for mut worker in self.processes.drain(..) {
            let until = Instant::now() + Duration::from_secs(5);
            while worker.ended().is_none() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        if let Some(process) = self.process.take() {
            // Its members are gone with their threads.
            let _ = process.leave();
        }
    }
}
