//! A bench: the resources of one worker, and its way through the rounds.
//!
//! A worker sleeps until the number of the round changes, reports that it is in position, and
//! starts when all workers are in position.

use super::{
    CELLS, CELLS_EACH, COUNTER, DONE, HEAP, HOW_OFTEN, IN_POSITION, JOB, Job, LOCK, ROUND, STAMPS,
    STOP, UNTIL_STOPPED, WORKER, WORKERS,
};
use crate::children::ready;
use crate::scratch::payload;
use crate::stack_offset::displaced;
use crate::{StudyError, clock, locks};
use outlive::heap::{self, Heap};
use outlive::membership::{Member, Process, ProcessOptions};
use outlive::memory::{Memory, Native, Offset, Ordering};
use outlive::pod::Pod;
use outlive::recovery::Recoverers;
use outlive::sync;
use serde::{Deserialize, Serialize};
use std::hint::{black_box, spin_loop};
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// A worker that is a process of its own.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Worker {
    pub(super) pod: PathBuf,
    pub(super) index: u32,
}

impl Worker {
    /// Works until the job `END` comes.
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

/// Joins with the recovery handlers for the structures in the stage's pod.
pub(super) fn join(pod: &Pod, host: u32) -> Result<Process, StudyError> {
    let heap = open_heap(pod)?;
    let options = ProcessOptions::on_host(host).name("worker");
    Ok(pod.join_with(options, |recoverers| heap::recoverers_of(recoverers, heap))?)
}

fn open_heap(pod: &Pod) -> Result<Heap, StudyError> {
    let heap = Heap::open(pod.segment().memory(), payload(pod) + HEAP);
    heap.map_err(|error| StudyError::void(error.to_string()))
}

/// The resources of a worker.
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
    pub(super) fn new(pod: &Pod, process: &Process, index: u32) -> Result<Self, StudyError> {
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

    /// Returns the offset of the lock.
    #[inline(always)]
    pub fn lock(&self) -> Offset {
        self.base + LOCK
    }

    /// Returns the offset of a line that only this worker uses.
    pub fn own_line(&self) -> Offset {
        self.base + WORKERS + u64::from(self.index) * WORKER
    }

    /// Returns the offset of this worker's cells.
    pub fn cells(&self) -> Offset {
        self.base + CELLS + u64::from(self.index) * CELLS_EACH * 8
    }

    /// Returns the path of the pod's file.
    #[cfg(feature = "peers")]
    pub fn pod(&self) -> &str {
        &self.pod
    }

    /// Returns this worker's number.
    #[cfg(feature = "peers")]
    pub fn index(&self) -> u64 {
        self.index.into()
    }

    /// Increments the counter: the work under the lock.
    #[inline(always)]
    pub fn add(&self) {
        let at = self.base + COUNTER;
        let sum: u64 = self.memory.load(at, Ordering::Relaxed);
        self.memory.store(at, black_box(sum + 1), Ordering::Relaxed);
    }

    pub(super) fn work(&self) {
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
            let Some(job) = Job::of(code) else { return };
            displaced(round, &mut || match job {
                Job::Increment(lock) => locks::round(self, lock, often),
                Job::Allocate(allocator) => crate::heap::round(self, allocator, often),
            });
            // Release: publishes the stamps and the counter.
            memory.fetch_add(base + DONE, 1u64, Ordering::Release);
        }
    }

    /// Runs `job` `often` times, starting with the other workers, and stores start and end. It is
    /// never inlined, so that every loop has the same surrounding code.
    #[inline(never)]
    pub fn run(&self, often: u64, mut job: impl FnMut()) {
        let (memory, base) = (self.memory, self.base);
        memory.fetch_add(base + IN_POSITION, 1u64, Ordering::AcqRel);
        let mut looks = 0u32;
        // The upper half is set by the leader: the number of workers that must be in position.
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
        // One loop for both kinds: with two, `job` would not be inlined.
        let (endless, mut left) = (often == UNTIL_STOPPED, often);
        // Relaxed: the worker reads no other data that the leader wrote before.
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

    /// Raises the counter to at least `value`, for a lock that protects a count of its own.
    pub fn counted(&self, value: u64) {
        let place = self.memory.address(self.base + COUNTER, 8).cast();
        // SAFETY: mapped for the rest of the process, aligned, used by atomics only.
        let counter = unsafe { AtomicU64::from_ptr(place.as_ptr()) };
        counter.fetch_max(value, std::sync::atomic::Ordering::Relaxed);
    }

    /// Adds this worker's operations to the counter, for a job that counts nothing.
    pub fn did(&self, often: u64) {
        let counter = self.base + COUNTER;
        self.memory.fetch_add(counter, often, Ordering::Relaxed);
    }
}
