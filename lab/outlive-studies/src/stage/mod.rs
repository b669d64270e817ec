//! The stage: a pod with workers, which are threads of this process or child processes, and the
//! rounds that the leader starts and each worker executes at its [bench](Bench).
//!
//! The first page of the pod's payload belongs to the leader and the workers, the rest to the
//! measured structures:
//!
//! ```text
//!     0  round    64  job, how often, whether to stop  128  workers in position    192  workers done
//!  5824  a lock (two lines)                        6080  the counter
//!  8192  for each worker a pair of lines: its node or private word; its start, end and count on the second
//! 512 Ki  cells, 8 KiB for each worker
//!   1 Mi  the heap: its state and its region
//! ```

mod bench;

pub use bench::{Bench, Worker};

use crate::StudyError;
use crate::children::{Launcher, Part, Playing};
use crate::heap::Allocator;
use crate::locks::{self, Lock};
use crate::scratch::ScratchPod;
use bench::join;
use outlive::heap::Heap;
use outlive::membership::{Process, Settings};
use outlive::memory::{Memory, Native, Offset, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const ROUND: u64 = 0;
const JOB: u64 = 64;
const HOW_OFTEN: u64 = 72;
const STOP: u64 = 80;
const IN_POSITION: u64 = 128;
const DONE: u64 = 192;
/// Not at the start of a page or a log: loads and stores whose addresses differ only by pages can
/// delay each other.
const LOCK: u64 = 4096 + 27 * 64;
const COUNTER: u64 = LOCK + 256;
const WORKERS: u64 = 8192;
const WORKER: u64 = 256;
const STAMPS: u64 = 128;
const CELLS: u64 = 512 << 10;
/// The number of cells of each worker.
pub const CELLS_EACH: u64 = 1024;
const HEAP: u64 = 1 << 20;
const REGION: u64 = 24 << 20;
/// The job that ends a worker.
const END: u64 = u64::MAX;
/// As often as possible, until the leader sets the stop word.
const UNTIL_STOPPED: u64 = u64::MAX;
/// The longest time of a round.
const PATIENCE: Duration = Duration::from_secs(60);

/// The number of times that each worker does a job in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count(pub u64);

/// The work that is repeated.
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

    /// Returns the number that tells workers the job.
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

/// A pod with workers.
pub struct Stage {
    workers: u32,
    threads: Vec<JoinHandle<()>>,
    processes: Vec<Playing>,
    /// The process that the threads belong to.
    process: Option<Process>,
    scratch: ScratchPod,
}

impl Stage {
    /// Creates a stage whose workers are threads of this process.
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
            in_order
                .recv()
                .expect("every worker reports how it entered")?;
        }
        Ok(stage)
    }

    /// Creates a stage whose workers are processes.
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

    /// Returns the path of the pod's file.
    #[cfg(feature = "peers")]
    pub fn pod(&self) -> &str {
        self.scratch.path().to_str().expect("a name of our own")
    }

    fn memory(&self) -> Native {
        self.scratch.pod().segment().memory()
    }

    /// Returns the number of times that a worker does `job` in about `nanoseconds`.
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

    /// Lets every worker do `job` `count` times. Returns the nanoseconds that one takes one worker.
    pub fn time(&mut self, job: Job, count: Count) -> Result<f64, StudyError> {
        let (memory, base) = (self.memory(), self.scratch.payload());
        self.begin(job, count.0);
        self.await_end(job)?;
        let counter = self.counter();
        let expected = count.0 * u64::from(self.workers);
        if counter != expected {
            return Err(StudyError::void(format!(
                "after {expected} times {}, the counter is {counter}",
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

    /// Lets every worker do `job` for `window`, after a window in which they come to contend.
    /// Returns the nanoseconds that one takes one worker. With a fixed number and more workers than
    /// cores, the workers that get a core first would be done before the others have one.
    pub fn rate(&mut self, job: Job, window: Duration) -> Result<f64, StudyError> {
        let (memory, base) = (self.memory(), self.scratch.payload());
        self.begin(job, UNTIL_STOPPED);
        std::thread::sleep(window);
        let (from, start) = (self.counter(), Instant::now());
        // On a machine that is busy elsewhere the workers may get nothing done in one window.
        let (to, time) = loop {
            std::thread::sleep(window);
            let (now, time) = (self.counter(), start.elapsed());
            if now > from || time > 100 * window {
                break (now, time);
            }
        };
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
                "after {made} times {name}, the counter is {counter}; it changed from {from} to \
                 {to} in {window:?}"
            )));
        }
        Ok(time.as_nanos() as f64 * f64::from(self.workers) / (to - from) as f64)
    }

    fn counter(&self) -> u64 {
        let counter = self.scratch.payload() + COUNTER;
        self.memory().load(counter, Ordering::Relaxed)
    }

    /// Prepares the payload and begins a round.
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

    /// Publishes a job and begins a round.
    fn tell(&self, job: u64, count: u64) {
        let (memory, base) = (self.memory(), self.scratch.payload());
        memory.store(base + JOB, job, Ordering::Relaxed);
        memory.store(base + HOW_OFTEN, count, Ordering::Relaxed);
        // Release: publishes all data of the round.
        memory.fetch_add(base + ROUND, 1u64, Ordering::Release);
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.tell(END, 0);
        for worker in self.threads.drain(..) {
            let _ = worker.join();
        }
        // Processes that end by themselves need not be killed.
        for mut worker in self.processes.drain(..) {
            let until = Instant::now() + Duration::from_secs(5);
            while worker.ended().is_none() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        if let Some(process) = self.process.take() {
            // Its members have left with their threads.
            let _ = process.leave();
        }
    }
}
