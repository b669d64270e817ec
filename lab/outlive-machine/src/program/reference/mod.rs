//! A machine without time, which defines the behaviour of programs and checks their results.

mod error;
mod execute;

use std::collections::VecDeque;

use super::counts::{Counts, Touches};
use super::{
    Coroutine, EventCountId, Image, LockId, Op, Recording, Synchronisation, Thread, Wait, Waits,
    Word, Workload,
};
use crate::engine::Random;
use crate::line::LineAddress;
pub use error::ReferenceError;
pub(super) use execute::waits_for_stores;

/// The order in which stores become visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// At once: sequential consistency.
    Sequential,
    /// Through a store buffer of each thread, in order, at any later time. A thread's own loads
    /// check its buffer first: x86-TSO.
    TotalStore,
}

/// The capacity of a store buffer.
const BUFFER: usize = 56;

/// A thread executes at most 2^(BURST - 1) operations in a row: mostly few, at times many.
const BURST: u64 = 6;

/// A machine without time. It interleaves threads at random, equally for equal seeds; loads are
/// answered at once.
///
/// ```
/// use outlive_machine::program::{Coroutine, Image, Order, Recording, Reference, Synchronisation, Word};
///
/// let image = Image { words: 8, runs: vec![(Word(0), vec![20, 22])] };
/// let thread = Coroutine::new(0, 1, Recording::Off, |cpu| {
///     let [a, b] = cpu.load_all([Word(0), Word(1)]);
///     cpu.store(Word(2), a + b);
/// });
/// let mut machine = Reference::new(&image, &Synchronisation::default(), vec![thread], Order::Sequential, 1);
/// let counts = machine.run()?;
/// assert_eq!(machine.word(Word(2)), 42);
/// assert_eq!((counts.loads, counts.stores), (2, 1));
/// # Ok::<(), outlive_machine::program::ReferenceError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Reference<T = Coroutine> {
    pub(super) memory: Vec<u64>,
    pub(super) threads: Vec<Running<T>>,
    pub(super) owners: Vec<Option<usize>>,
    /// The number of threads that have arrived, and the number of threads.
    pub(super) barriers: Vec<(u32, u32)>,
    pub(super) conditions: Vec<VecDeque<usize>>,
    pub(super) event_counts: Vec<u64>,
    order: Order,
    random: Random,
    counts: Counts,
    touches: Touches,
    limit: u64,
    anybody_unlocks: bool,
}

/// A thread and its state.
#[derive(Clone, Debug)]
pub(super) struct Running<T> {
    source: T,
    /// Its next operation, if it has been asked for it.
    op: Option<Op>,
    pub state: State,
    pub buffer: VecDeque<Entry>,
    /// The number of operations done, and the values of its loads if they are kept.
    pub done: u64,
    pub seen: Option<Vec<u64>>,
}

/// An entry of a store buffer: other threads see it when it leaves, after the entries before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Entry {
    Store(Word, u64),
    Unlock(LockId),
    Advance(EventCountId),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum State {
    Runs,
    /// Until the lock is released.
    Lock(LockId),
    Barrier(u32),
    Condition(u32),
    /// Until the event count has this value.
    EventCount(u32, u64),
    Ended,
}

impl Reference<Coroutine> {
    /// Creates a sequentially consistent machine for a workload.
    pub fn of(workload: &Workload, recording: Recording, seed: u64) -> Self {
        Self::new(
            workload.image(),
            workload.synchronisation(),
            workload.threads(recording),
            Order::Sequential,
            seed,
        )
    }
}

impl<T: Thread> Reference<T> {
    /// Creates a machine with these threads, interleaved according to `seed`.
    pub fn new(
        image: &Image,
        synchronisation: &Synchronisation,
        threads: Vec<T>,
        order: Order,
        seed: u64,
    ) -> Self {
        let mut memory = vec![0; image.words as usize];
        for (first, values) in &image.runs {
            let first = first.0 as usize;
            memory[first..first + values.len()].copy_from_slice(values);
        }
        let running = |source| Running {
            source,
            op: None,
            state: State::Runs,
            buffer: VecDeque::new(),
            done: 0,
            seen: None,
        };
        Self {
            memory,
            threads: threads.into_iter().map(running).collect(),
            owners: vec![None; synchronisation.locks.len()],
            barriers: synchronisation
                .barriers
                .iter()
                .map(|barrier| (0, barrier.threads))
                .collect(),
            conditions: vec![VecDeque::new(); synchronisation.conditions.len()],
            event_counts: vec![0; synchronisation.event_counts as usize],
            order,
            random: Random::new(seed),
            counts: Counts::default(),
            touches: Touches::new(image.words),
            limit: u64::MAX,
            anybody_unlocks: false,
        }
    }

    /// Sets the number of operations after which a run fails.
    #[must_use]
    pub fn with_limit(mut self, limit: u64) -> Self {
        self.limit = limit;
        self
    }

    /// Lets a thread release a lock that is free or that another thread holds, as a recorded
    /// program may do. Otherwise this is an [error](ReferenceError::NotOwner), since a correct
    /// program must not do so.
    #[must_use]
    pub fn with_locks_of_others(mut self) -> Self {
        self.anybody_unlocks = true;
        self
    }

    /// Runs until all threads have ended and all stores are visible. Returns the operation counts.
    ///
    /// # Errors
    ///
    /// If the threads cannot all end, or one makes an error.
    pub fn run(&mut self) -> Result<Counts, ReferenceError> {
        let mut ready = Vec::new();
        let mut left = self.limit;
        loop {
            self.ready(&mut ready);
            if ready.is_empty() {
                // A waiting thread may wait for an entry that has not left a buffer.
                for thread in 0..self.threads.len() {
                    self.drain_all(thread)?;
                }
                self.ready(&mut ready);
            }
            if ready.is_empty() {
                break;
            }
            let thread = ready[self.random.below(ready.len() as u64) as usize];
            let burst = 1 << self.random.below(BURST);
            for _ in 0..=self.random.below(burst) {
                if left == 0 {
                    return Err(ReferenceError::Limit { limit: self.limit });
                }
                left -= 1;
                self.drain_some(thread)?;
                self.step(thread)?;
                if self.threads[thread].state != State::Runs {
                    break;
                }
            }
            // Stores also become visible while their threads do nothing.
            self.drain_some(thread)?;
            let any = self.random.below(self.threads.len() as u64);
            self.drain_some(any as usize)?;
        }
        if self.threads.iter().any(|one| one.state != State::Ended) {
            return Err(ReferenceError::Deadlock(self.waits()));
        }
        Ok(self.counts())
    }

    /// Returns a word of the machine's memory; stores in buffers are not included.
    pub fn word(&self, word: Word) -> u64 {
        self.memory[word.0 as usize]
    }

    /// Returns the counts of the operations so far.
    pub fn counts(&self) -> Counts {
        Counts {
            stores_to_touched_by_several: self.touches.stores_to_touched_by_several(),
            ..self.counts
        }
    }

    /// Returns the lines that one thread alone has touched, never by an atomic, and that thread.
    pub(super) fn touched_by_one(&self) -> impl Iterator<Item = (LineAddress, u16)> + '_ {
        self.touches.by_one()
    }

    /// Returns the waiting threads, and the objects that they wait for.
    pub fn waits(&self) -> Waits {
        let wait = |(thread, running): (usize, &Running<T>)| {
            let wait = match running.state {
                State::Runs | State::Ended => return None,
                State::Lock(lock) => Wait::Lock {
                    lock,
                    owner: self.owners[lock.0 as usize]
                        .map(|owner| (owner, self.threads[owner].state == State::Ended)),
                },
                State::Barrier(barrier) => Wait::Barrier {
                    barrier: super::BarrierId(barrier),
                    arrived: self.barriers[barrier as usize].0 as usize,
                    threads: self.barriers[barrier as usize].1 as usize,
                },
                State::Condition(condition) => Wait::Condition {
                    condition: super::ConditionId(condition),
                },
                State::EventCount(count, wanted) => Wait::EventCount {
                    count: super::EventCountId(count),
                    is: self.event_counts[count as usize],
                    wanted,
                },
            };
            Some((thread, wait))
        };
        Waits(self.threads.iter().enumerate().filter_map(wait).collect())
    }

    fn ready(&self, ready: &mut Vec<usize>) {
        ready.clear();
        let threads = self.threads.iter().enumerate();
        ready.extend(
            threads.filter_map(|(thread, one)| (one.state == State::Runs).then_some(thread)),
        );
    }

    /// Makes some of the entries in the thread's buffer visible, or none.
    #[inline]
    fn drain_some(&mut self, thread: usize) -> Result<(), ReferenceError> {
        if self.threads[thread].buffer.is_empty() {
            return Ok(());
        }
        while self.random.below(4) == 0 || self.threads[thread].buffer.len() == BUFFER {
            if !self.drain(thread)? {
                break;
            }
        }
        Ok(())
    }

    pub(super) fn drain_all(&mut self, thread: usize) -> Result<(), ReferenceError> {
        while self.drain(thread)? {}
        Ok(())
    }

    /// Makes the oldest entry of the thread's buffer visible. Returns whether there was one.
    pub(super) fn drain(&mut self, thread: usize) -> Result<bool, ReferenceError> {
        let Some(entry) = self.threads[thread].buffer.pop_front() else {
            return Ok(false);
        };
        self.commit(thread, entry)?;
        Ok(true)
    }
}
