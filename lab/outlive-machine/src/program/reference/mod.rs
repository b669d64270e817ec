//! A machine without time: it says what programs may do, and whether what they computed is right.

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

/// In which order stores become visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// At once: sequential consistency.
    Sequential,
    /// Through a store buffer of each thread, in order, at any later time; its own loads look there first: x86-TSO.
    TotalStore,
}

/// How much a store buffer holds.
const BUFFER: usize = 56;

/// A thread does less than two to the power of this operations on end: mostly few, at times many.
const BURST: u64 = 6;

/// A machine without time. It interleaves threads at random and repeats for a seed; loads are answered at once.
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
    /// How many have arrived, of how many.
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

/// A thread and where it is.
#[derive(Clone, Debug)]
pub(super) struct Running<T> {
    source: T,
    /// What it does next, if it was asked already.
    op: Option<Op>,
    pub state: State,
    pub buffer: VecDeque<Entry>,
    /// How many operations it did, and what its loads got if that is kept.
    pub done: u64,
    pub seen: Option<Vec<u64>>,
}

/// What stands in a store buffer: others see it when it leaves, and what leaves before it earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Entry {
    Store(Word, u64),
    Unlock(LockId),
    Advance(EventCountId),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum State {
    Runs,
    /// Until a lock is given back.
    Lock(LockId),
    Barrier(u32),
    Condition(u32),
    /// Until the event count is this.
    EventCount(u32, u64),
    Ended,
}

impl Reference<Coroutine> {
    /// A machine for a workload, sequentially consistent.
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
    /// A machine with these threads, which interleaves them as `seed` says.
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

    /// Gives up with an error after so many operations.
    #[must_use]
    pub fn with_limit(mut self, limit: u64) -> Self {
        self.limit = limit;
        self
    }

    /// A thread may give a lock back that another has, or nobody: a recorded program may have done so. Else that is an
    /// [error](ReferenceError::NotOwner), for a program that was written to be right must not.
    #[must_use]
    pub fn with_locks_of_others(mut self) -> Self {
        self.anybody_unlocks = true;
        self
    }

    /// Runs until all threads have ended and all stores are visible, and says what they did.
    ///
    /// # Errors
    ///
    /// If they cannot all end, or one does what it must not.
    pub fn run(&mut self) -> Result<Counts, ReferenceError> {
        let mut ready = Vec::new();
        let mut left = self.limit;
        loop {
            self.ready(&mut ready);
            if ready.is_empty() {
                // Who waits may wait for what has not left a buffer.
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
            // Stores become visible also while their threads do nothing.
            self.drain_some(thread)?;
            let any = self.random.below(self.threads.len() as u64);
            self.drain_some(any as usize)?;
        }
        if self.threads.iter().any(|one| one.state != State::Ended) {
            return Err(ReferenceError::Deadlock(self.waits()));
        }
        Ok(self.counts())
    }

    /// What a word is, as the machine's memory says: stores in buffers are not there yet.
    pub fn word(&self, word: Word) -> u64 {
        self.memory[word.0 as usize]
    }

    /// What the threads have done so far.
    pub fn counts(&self) -> Counts {
        Counts {
            stores_to_touched_by_several: self.touches.stores_to_touched_by_several(),
            ..self.counts
        }
    }

    /// Lines that one thread has touched so far, and never by an atomic, and which thread that is.
    pub(super) fn touched_by_one(&self) -> impl Iterator<Item = (LineAddress, u16)> + '_ {
        self.touches.by_one()
    }

    /// Who waits for what.
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

    /// Lets others see some of what stands in the thread's buffer, or nothing.
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

    /// Lets others see what is oldest in the thread's buffer, if there is anything.
    pub(super) fn drain(&mut self, thread: usize) -> Result<bool, ReferenceError> {
        let Some(entry) = self.threads[thread].buffer.pop_front() else {
            return Ok(false);
        };
        self.commit(thread, entry)?;
        Ok(true)
    }
}
