//! Does again what was recorded, as a thread of a simulated machine.

use super::pages::Pages;
use super::read::Cursor;
use super::{Event, Trace, TraceError};
use crate::program::{
    EventCountId, Image, LockId, Next, Op, Synchronisation, Thread, Update, Word,
};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// What of the recorded order a replay keeps to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// What the trace says must be kept to. Of recorded programs: threads begin after they were made; those who waited
    /// at a condition variable or semaphore go on after what they waited for; atomic variables that threads may
    /// synchronise by keep to their order, and if threads were seen to spin, counters, too. Locks go to whoever the
    /// machine gives them to, but for those that condition variables were used with, and those that were held while something was
    /// done that keeps to its order: who took such a lock too early would wait for those who need it.
    #[default]
    Needed,
    /// All locks and atomics go in the recorded order. In a program without data races, each word then gets the values
    /// that it got in the recorded run, in the same order.
    Recorded,
}

/// How stores to a part of a word are done again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Parts {
    /// One [store](Op::StorePart) that leaves the whole word as it was then. If another thread writes another part of that word meanwhile, what
    /// it wrote may be overwritten: the right times, and in such words perhaps not the right values.
    #[default]
    Whole,
    /// The same, but in words of which several threads wrote a part each, two atomics, of which the first makes the
    /// bytes zero and the second puts the new ones there: always the right values, and more time than a store takes.
    Exact,
}

/// How a trace is done again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replay {
    /// What of the recorded order is kept to.
    pub order: Order,
    /// How stores to a part of a word are done.
    pub parts: Parts,
}

/// Words of the largest shared memory that a machine has whole, touched or not.
const MOST_WHOLE: u64 = 1 << 27;

/// What a machine needs to do a trace again.
#[derive(Clone, Debug)]
pub struct Replayed {
    /// Its threads, ready to begin.
    pub threads: Vec<TraceThread>,
    /// What shared memory holds at the beginning.
    pub image: Image,
    /// What threads wait for each other by.
    pub synchronisation: Synchronisation,
}

impl Trace {
    /// Its threads, ready to be done again. All of the trace is read for this, once.
    ///
    /// # Errors
    ///
    /// If anything in the trace is damaged or cannot be read.
    pub fn threads(&self, replay: Replay) -> Result<Vec<TraceThread>, TraceError> {
        self.threads_on(Pages::all(self.about()), replay)
    }

    /// All that a machine needs to do it again. If its shared memory is larger than a gibibyte, this is without the pages of 4 KiB
    /// that nothing in the trace touches, and the others are numbered anew, in the same order: programs allocate what they
    /// never come to, and have it from their kernels for nothing. The trace is then read twice.
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

/// What is the same for all threads of a replay.
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

    /// Keeps the order of locks, too, that are held while something is awaited.
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

    /// What has to be done for an event.
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
            // Whatever it was: the sum of all differences is the difference that they made together, in whatever order they
            // are done again. A compare-and-swap done as such would fail in another order, and an exchange would leave
            // what an earlier one left in the recorded run.
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
            // Nobody waits there, since who waited takes the lock in its turn: this is for the access.
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

/// A recorded thread that is done again. A clone is a position: the block that is being read is shared.
///
/// The trace has been read once when there is such a thread. If the file changes after that, its next operation panics
/// with what is wrong.
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

    /// Nothing follows from it: what a recorded thread does is known.
    fn deliver(&mut self, _: u64) {}
}
