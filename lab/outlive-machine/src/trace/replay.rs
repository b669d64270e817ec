//! Replays recorded threads on a simulated machine.

use super::pages::Pages;
use super::read::Cursor;
use super::{Event, Trace, TraceError};
use crate::program::{
    EventCountId, Image, LockId, Next, Op, Synchronisation, Thread, Update, Word,
};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// The part of the recorded order that a replay keeps to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The order that the trace marks as needed. For recorded programs: threads begin after they
    /// were created; waiters at a condition variable or semaphore continue after the event that
    /// they waited for; atomic variables by which threads may synchronise keep to their order, and
    /// so do counters if threads were seen to spin. The machine decides which thread gets a lock,
    /// except for two kinds of locks, which keep to their order: those that condition variables
    /// were used with, and those that were held during an operation that keeps to its order. A
    /// thread that took such a lock too early would wait for threads that need it.
    #[default]
    Needed,
    /// All locks and atomics go in the recorded order. In a program without data races, each word
    /// then gets the values that it got in the recorded run, in the same order.
    Recorded,
}

/// How stores to a part of a word are replayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Parts {
    /// One [store](Op::StorePart) that leaves the whole word as it was in the recorded run. If
    /// another thread writes another part of that word at the same time, its bytes may be
    /// overwritten: timing is right, but values in such words may be wrong.
    #[default]
    Whole,
    /// The same, except in words of which several threads each wrote a part. There, two atomics:
    /// the first clears the bytes, and the second sets the new ones. Values are always right, but
    /// this takes more time than a store.
    Exact,
}

/// The options of a replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replay {
    /// The part of the recorded order that is kept.
    pub order: Order,
    /// How stores to a part of a word are replayed.
    pub parts: Parts,
}

/// The most words of shared memory that a machine has in full, whether they are touched or not.
const MOST_WHOLE: u64 = 1 << 27;

/// A trace in the form that a machine runs.
#[derive(Clone, Debug)]
pub struct Replayed {
    /// The threads, at their beginnings.
    pub threads: Vec<TraceThread>,
    /// The initial contents of shared memory.
    pub image: Image,
    /// The variables by which threads wait for each other.
    pub synchronisation: Synchronisation,
}

impl Trace {
    /// Returns the trace's threads, at their beginnings. Reads all of the trace once.
    ///
    /// # Errors
    ///
    /// If anything in the trace is damaged or cannot be read.
    pub fn threads(&self, replay: Replay) -> Result<Vec<TraceThread>, TraceError> {
        self.threads_on(Pages::all(self.about()), replay)
    }

    /// Returns all that a machine needs for a replay. If shared memory is larger than one gibibyte,
    /// the pages of 4 KiB that nothing in the trace touches are left out, and the others are
    /// renumbered in the same order: programs allocate memory that they never touch, which costs
    /// them nothing. The trace is then read twice.
    ///
    /// # Errors
    ///
    /// If anything in the trace is damaged or cannot be read.
    pub fn replayed(&self, replay: Replay) -> Result<Replayed, TraceError> {
        let image = self.image()?;
        let pages = match self.about().words > MOST_WHOLE {
            true => self.touched_pages(&image)?,
            false => Pages::all(self.about()),
        };
        Ok(Replayed {
            image: pages.image(image),
            synchronisation: pages.synchronisation(self.about()),
            threads: self.threads_on(pages, replay)?,
        })
    }

    fn threads_on(&self, pages: Pages, replay: Replay) -> Result<Vec<TraceThread>, TraceError> {
        let survey = self.survey()?;
        let about = self.about();
        let mut plan = Plan {
            replay,
            pages,
            in_parts: survey.in_parts,
            locks: about.locks.iter().map(|lock| lock.order).collect(),
            kept: (0..)
                .map(EventCountId)
                .zip(&about.event_counts)
                .map(|(count, must)| {
                    (*must || replay.order == Order::Recorded)
                        && survey.between_threads.contains(&count)
                })
                .collect(),
        };
        plan.keep_around(&survey.within);
        let plan = Arc::new(plan);
        let thread = |thread| TraceThread {
            cursor: Cursor::new(self.clone(), thread),
            plan: plan.clone(),
            ready: VecDeque::with_capacity(4),
        };
        Ok((0..about.threads).map(thread).collect())
    }
}

/// The state that all threads of a replay share.
#[derive(Debug)]
struct Plan {
    replay: Replay,
    pages: Pages,
    in_parts: BTreeSet<Word>,
    locks: Vec<Option<EventCountId>>,
    kept: Vec<bool>,
}

impl Plan {
    fn keeps(&self, count: EventCountId) -> bool {
        self.kept[count.0 as usize]
    }

    /// Additionally keeps the order of locks that are held while something is awaited.
    fn keep_around(&mut self, within: &BTreeSet<(LockId, EventCountId)>) {
        loop {
            let free = |count: &EventCountId| !self.keeps(*count);
            let found = within.iter().find_map(|(lock, count)| {
                let order = self.locks[lock.0 as usize].filter(free)?;
                self.keeps(*count).then_some(order)
            });
            match found {
                Some(order) => self.kept[order.0 as usize] = true,
                None => return,
            }
        }
    }

    fn order_of(&self, lock: LockId) -> Option<EventCountId> {
        self.locks[lock.0 as usize].filter(|count| self.keeps(*count))
    }

    fn take(&self, lock: LockId, turn: u64, ready: &mut VecDeque<Op>) {
        if let Some(count) = self.order_of(lock) {
            ready.push_back(Op::Await(count, turn));
        }
        ready.push_back(Op::Lock(lock));
    }

    fn give(&self, lock: LockId, ready: &mut VecDeque<Op>) {
        ready.push_back(Op::Unlock(lock));
        if let Some(count) = self.order_of(lock) {
            ready.push_back(Op::Advance(count));
        }
    }

    /// Appends the operations that replay an event.
    fn ops(&self, event: Event, ready: &mut VecDeque<Op>) {
        let at = |word| self.pages.word(word);
        match event {
            Event::Compute(count) => ready.push_back(Op::Compute(count)),
            Event::Load { word, .. } => ready.push_back(Op::Load(at(word))),
            Event::Store { word, value } => ready.push_back(Op::Store(at(word), value)),
            Event::StorePart { word, mask, value } => {
                let bits = super::event::bits(mask);
                if self.replay.parts == Parts::Exact && self.in_parts.contains(&word) {
                    ready.push_back(Op::Atomic(at(word), Update::And(!bits)));
                    ready.push_back(Op::Atomic(at(word), Update::Or(value & bits)));
                } else {
                    ready.push_back(Op::StorePart(at(word), value, mask));
                }
            }
            // Of any kind: the sum of all differences is the difference that the atomics made
            // together, in any order of the replay. A compare-and-swap replayed as one would fail
            // in another order, and an exchange replayed as one would leave the value of an earlier
            // one in the recorded run.
            Event::Atomic {
                word,
                read,
                written,
                ..
            } => {
                let update = Update::Add(written.wrapping_sub(read));
                ready.push_back(Op::Atomic(at(word), update));
            }
            Event::Fence => ready.push_back(Op::Fence),
            Event::PrivateLoad(address) => ready.push_back(Op::PrivateLoad(address)),
            Event::PrivateStore(address) => ready.push_back(Op::PrivateStore(address)),
            Event::Lock { lock, turn } | Event::WaitEnd { lock, turn, .. } => {
                self.take(lock, turn, ready)
            }
            Event::Unlock(lock) | Event::WaitBegin { lock, .. } => self.give(lock, ready),
            Event::Barrier(barrier) => ready.push_back(Op::Barrier(barrier)),
            // No thread waits there, since a recorded waiter takes the lock in its turn: this is
            // for the access.
            Event::Signal(condition) => ready.push_back(Op::Signal(condition)),
            Event::Broadcast(condition) => ready.push_back(Op::Broadcast(condition)),
            Event::Acquire(word) => ready.push_back(Op::Acquire(at(word))),
            Event::Release(word) => ready.push_back(Op::Release(at(word))),
            Event::Await(count, value) if self.keeps(count) => {
                ready.push_back(Op::Await(count, value))
            }
            Event::Advance(count) if self.keeps(count) => ready.push_back(Op::Advance(count)),
            Event::Await(..) | Event::Advance(_) | Event::RegionBegin | Event::RegionEnd => {}
        }
    }
}

/// A recorded thread in a replay. A clone is a position: both share the block that is being read.
///
/// The whole trace was read once before such a thread exists. If the file changes after that, the
/// thread's next operation panics with the error.
#[derive(Clone, Debug)]
pub struct TraceThread {
    cursor: Cursor,
    plan: Arc<Plan>,
    ready: VecDeque<Op>,
}

impl Thread for TraceThread {
    fn next(&mut self) -> Next {
        loop {
            if let Some(op) = self.ready.pop_front() {
                return Next::Op(op);
            }
            match self.cursor.next() {
                Ok(Some(event)) => self.plan.ops(event, &mut self.ready),
                Ok(None) => return Next::Ended,
                Err(error) => panic!("the trace was whole when it was opened: {error}"),
            }
        }
    }

    /// Does nothing: the operations of a recorded thread do not depend on the values.
    fn deliver(&mut self, _: u64) {}
}
