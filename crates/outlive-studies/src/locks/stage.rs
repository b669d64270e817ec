//! Workers, as threads of this process or as processes of their own, and the round that they are led through.
//!
//! The first page of the pod's payload belongs to the leader and the workers, the rest to locks and nodes:
//!
//! ```text
//!    0  round    64  lock to take, increments     128  workers in position    192  workers done
//!  256  whether anything went wrong
//! 4096  the lock (two lines)                     4352  the counter
//! 8192  for each worker a pair of lines: its node or private word; its start and end on the second
//! ```
//!
//! A worker sleeps until the round's number changes, takes up position, and goes when all are there.

use super::plain::{Mcs, Pthread, TatasAndStore};
use super::{Lock, ours, plain};
use crate::children::{Launcher, Part, Playing, ready};
use crate::scratch::{ScratchPod, payload};
use crate::{StudyError, clock};
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
const LOCK_TO_TAKE: u64 = 64;
const INCREMENTS: u64 = 72;
const IN_POSITION: u64 = 128;
const DONE: u64 = 192;
const LOCK: u64 = 4096;
const COUNTER: u64 = LOCK + 256;
const WORKERS: u64 = 8192;
const WORKER: u64 = 256;
const STAMPS: u64 = 128;
/// The lock that ends it.
const END: u64 = u64::MAX;
/// For how long a round may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// How many increments each worker makes in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count(pub u64);

const ALL: [Lock; 10] = [
    Lock::Bare,
    Lock::Logged,
    Lock::Queue,
    Lock::QueueAwake,
    Lock::Mutex,
    Lock::PlainTatas,
    Lock::PlainTatasAndStore,
    Lock::PlainMcs,
    Lock::SpinningMcs,
    Lock::RobustPthread,
];

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
        let process = pod.join(ProcessOptions::on_host(1 + self.index).name("worker"))?;
        let bench = Bench::new(&pod, &process, self.index)?;
        ready();
        bench.work();
        drop(bench);
        Ok(process.leave()?)
    }
}

/// What a worker has at hand.
pub struct Bench {
    pub memory: Native,
    pub member: Member,
    pub recoverers: Recoverers,
    base: Offset,
    index: u32,
}

impl Bench {
    fn new(pod: &Pod, process: &Process, index: u32) -> Result<Self, StudyError> {
        Ok(Self {
            memory: pod.segment().memory(),
            member: process.enter(None, "worker")?,
            recoverers: sync::recoverers(pod.logs()),
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
            let lock: u64 = memory.load(base + LOCK_TO_TAKE, Ordering::Relaxed);
            let increments = memory.load(base + INCREMENTS, Ordering::Relaxed);
            let Some(lock) = ALL.get(lock as usize) else {
                return;
            };
            self.round(*lock, increments);
        }
    }

    fn round(&self, lock: Lock, increments: u64) {
        match lock {
            Lock::Bare => {
                let lock = ours::Bare::new(self);
                self.run(increments, || lock.increment(self));
            }
            Lock::Logged => {
                let lock = ours::Logged::new(self);
                self.run(increments, || lock.increment(self));
            }
            Lock::Queue => {
                let lock = ours::Queue::new(self);
                self.run(increments, || lock.increment(self));
            }
            Lock::QueueAwake => {
                let lock = ours::Queue::awake(self);
                self.run(increments, || lock.increment(self));
            }
            Lock::Mutex => {
                let lock = ours::Mutex::new(self);
                self.run(increments, || lock.increment(self));
                self.counted(lock.value(self));
            }
            Lock::PlainTatas => {
                let lock = plain::Tatas::new(self);
                self.run(increments, || lock.increment(self));
            }
            Lock::PlainTatasAndStore => {
                let lock = TatasAndStore::new(self);
                self.run(increments, || lock.increment(self));
            }
            Lock::PlainMcs => {
                let lock = Mcs::<false>::new(self);
                self.run(increments, || lock.increment(self));
            }
            Lock::SpinningMcs => {
                let lock = Mcs::<true>::new(self);
                self.run(increments, || lock.increment(self));
            }
            Lock::RobustPthread => {
                let lock = Pthread::new(self);
                self.run(increments, || lock.increment(self));
            }
        }
        // Release: the stamps and the counter.
        self.memory
            .fetch_add(self.base + DONE, 1u64, Ordering::Release);
    }

    /// Starts with the others, and stamps start and end. Never inlined, so that every lock's loop has the same
    /// surroundings.
    #[inline(never)]
    fn run(&self, increments: u64, increment: impl Fn()) {
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
        for _ in 0..increments {
            increment();
        }
        let end = clock::now();
        let stamps = self.own_line() + STAMPS;
        memory.store(stamps, start, Ordering::Relaxed);
        memory.store(stamps + 8, end, Ordering::Relaxed);
    }

    /// Where the counter is not the value under the lock: it is at least `value` now.
    fn counted(&self, value: u64) {
        let place = self.memory.address(self.base + COUNTER, 8).cast();
        // SAFETY: mapped for the rest of the process, aligned, used by atomics only.
        let counter = unsafe { AtomicU64::from_ptr(place.as_ptr()) };
        counter.fetch_max(value, std::sync::atomic::Ordering::Relaxed);
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
        let process = stage.scratch.join(0)?;
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
            let worker = launcher.start(&Part::Locks(Worker { pod, index }))?;
            stage.processes.push(worker);
        }
        for worker in &mut stage.processes {
            worker.await_ready()?;
        }
        Ok(stage)
    }

    fn empty(workers: u32) -> Result<Self, StudyError> {
        Ok(Self {
            workers,
            threads: Vec::new(),
            processes: Vec::new(),
            process: None,
            scratch: ScratchPod::new(8 << 20, Settings::default())?,
        })
    }

    fn memory(&self) -> Native {
        self.scratch.pod().segment().memory()
    }

    /// How many increments take about `nanoseconds` in all.
    pub fn calibrate(&mut self, lock: Lock, nanoseconds: f64) -> Result<Count, StudyError> {
        let mut count = 64.0;
        loop {
            let each = self.time(lock, Count(count as u64))?;
            if each * count >= nanoseconds / 4.0 {
                return Ok(Count(((nanoseconds / each) as u64).max(16)));
            }
            count *= 4.0;
        }
    }

    /// Has every worker make `count` increments under `lock`; the nanoseconds of one worker's increment.
    pub fn time(&mut self, lock: Lock, count: Count) -> Result<f64, StudyError> {
        let (memory, base) = (self.memory(), self.scratch.payload());
        memory.copy_in(base + LOCK, &[0; 512]);
        if lock == Lock::RobustPthread {
            Pthread::initialise(memory, base + LOCK);
        }
        memory.store(base + DONE, 0u64, Ordering::Relaxed);
        memory.store(
            base + IN_POSITION,
            u64::from(self.workers) << 32,
            Ordering::Relaxed,
        );
        self.tell(lock as u64, count.0);
        let until = Instant::now() + PATIENCE;
        while memory.load::<u64>(base + DONE, Ordering::Acquire) < u64::from(self.workers) {
            std::thread::sleep(Duration::from_micros(200));
            for worker in &mut self.processes {
                if worker.ended().is_some() {
                    return Err(worker.lost());
                }
            }
            if Instant::now() > until {
                let what = format!("a round under a {} took over {PATIENCE:?}", lock.name());
                return Err(StudyError::void(what));
            }
        }
        let counter: u64 = memory.load(base + COUNTER, Ordering::Relaxed);
        let expected = count.0 * u64::from(self.workers);
        if counter != expected {
            return Err(StudyError::void(format!(
                "{} increments under a {} made {counter}",
                expected,
                lock.name()
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

    /// Begins a round.
    fn tell(&self, lock: u64, count: u64) {
        let (memory, base) = (self.memory(), self.scratch.payload());
        memory.store(base + LOCK_TO_TAKE, lock, Ordering::Relaxed);
        memory.store(base + INCREMENTS, count, Ordering::Relaxed);
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
