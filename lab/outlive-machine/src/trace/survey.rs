//! Reads all of a trace: checks it, and counts its events.

use super::{About, Event, Flaw, Trace, TraceError};
use crate::program::{EventCountId, LockId, Word};
use std::collections::{BTreeMap, BTreeSet};

/// Numbers of events, of a thread or of all. An access that reads or writes several words counts
/// once for each word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All events.
    pub events: u64,
    /// Instructions: those between events, and one for each access, fence and operation on a lock,
    /// barrier or condition variable.
    pub instructions: u64,
    /// Reads of shared words.
    pub loads: u64,
    /// Writes of shared words, including those of a part of a word.
    pub stores: u64,
    /// Writes of a part of a shared word.
    pub part_stores: u64,
    /// Atomic instructions on shared words.
    pub atomics: u64,
    /// Reads of private data.
    pub private_loads: u64,
    /// Writes of private data.
    pub private_stores: u64,
    /// Acquisitions of locks, including those after waits.
    pub locks: u64,
    /// Arrivals at barriers.
    pub barriers: u64,
    /// Waits at condition variables.
    pub waits: u64,
    /// Full fences.
    pub fences: u64,
}

impl Counts {
    fn add(&mut self, event: &Event) {
        self.events += 1;
        self.instructions += event.instructions();
        match event {
            Event::Load { .. } => self.loads += 1,
            Event::Store { .. } => self.stores += 1,
            Event::StorePart { .. } => {
                (self.stores, self.part_stores) = (self.stores + 1, self.part_stores + 1)
            }
            Event::Atomic { .. } => self.atomics += 1,
            Event::Fence => self.fences += 1,
            Event::PrivateLoad(_) => self.private_loads += 1,
            Event::PrivateStore(_) => self.private_stores += 1,
            Event::Lock { .. } | Event::WaitEnd { .. } => self.locks += 1,
            Event::Barrier(_) => self.barriers += 1,
            Event::WaitBegin { .. } => self.waits += 1,
            _ => {}
        }
    }

    fn add_all(&mut self, other: &Self) {
        self.events += other.events;
        self.instructions += other.instructions;
        self.loads += other.loads;
        self.stores += other.stores;
        self.part_stores += other.part_stores;
        self.atomics += other.atomics;
        self.private_loads += other.private_loads;
        self.private_stores += other.private_stores;
        self.locks += other.locks;
        self.barriers += other.barriers;
        self.waits += other.waits;
        self.fences += other.fences;
    }
}

/// A summary of a whole trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// The counts of each thread.
    pub threads: Vec<Counts>,
    /// The counts of all threads together.
    pub total: Counts,
    /// Words in the image, most of which are not zero.
    pub image_words: u64,
    /// Words of which several threads each wrote a part. [`Parts::Exact`](super::Parts::Exact)
    /// replays stores to them in its own way.
    pub in_parts: BTreeSet<Word>,
    /// Event counts that several threads await, advance, or use with a lock. The others order
    /// nothing: a thread's own events are in order.
    pub between_threads: BTreeSet<EventCountId>,
    /// Pairs of a lock and an event count that was awaited while the lock was held; the event
    /// counts of locks that were taken are among them.
    pub within: BTreeSet<(LockId, EventCountId)>,
}

/// The most locks that a thread may hold at once: each is paired with each count that it awaits.
pub(super) const MOST_HELD: usize = 1024;

/// The locks that a thread holds after each event.
#[derive(Default)]
struct Held(Vec<LockId>);

impl Held {
    /// Pairs the event count that the event awaits, if any, with all locks that are held.
    fn follow(
        &mut self,
        event: &Event,
        about: &About,
        within: &mut BTreeSet<(LockId, EventCountId)>,
    ) {
        let awaited = match event {
            Event::Await(count, _) => Some(*count),
            Event::Lock { lock, .. } | Event::WaitEnd { lock, .. } => {
                about.locks[lock.0 as usize].order
            }
            _ => None,
        };
        if let Some(count) = awaited {
            within.extend(self.0.iter().map(|lock| (*lock, count)));
        }
        match event {
            // The lock can be held already: another thread may have released it.
            Event::Lock { lock, .. } | Event::WaitEnd { lock, .. } if !self.0.contains(lock) => {
                self.0.push(*lock);
            }
            Event::Unlock(lock) | Event::WaitBegin { lock, .. } => {
                self.0.retain(|held| held != lock);
            }
            _ => {}
        }
    }
}

impl Trace {
    /// Returns whether no thread has an instruction. Reads only until it finds one.
    ///
    /// # Errors
    ///
    /// If the part that is read is damaged or cannot be read.
    pub fn is_empty(&self) -> Result<bool, TraceError> {
        let threads = 0..self.about().threads;
        for event in threads.flat_map(|thread| self.events(thread)) {
            if event?.instructions() > 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads all of the trace. After that, reading it causes no error unless the file changes.
    ///
    /// # Errors
    ///
    /// If anything in it is damaged or cannot be read.
    pub fn survey(&self) -> Result<Survey, TraceError> {
        let mut survey = Survey {
            image_words: self.image_words()?,
            ..Survey::default()
        };
        let (mut writers, mut users) = (BTreeMap::new(), BTreeMap::new());
        for thread in 0..self.about().threads {
            let (mut counts, mut held) = (Counts::default(), Held::default());
            let mut events = self.events(thread);
            while let Some(event) = events.next() {
                let event = event?;
                counts.add(&event);
                held.follow(&event, self.about(), &mut survey.within);
                if held.0.len() > MOST_HELD {
                    return Err(events.damaged(Flaw::Holds));
                }
                let count = match event {
                    Event::Await(count, _) | Event::Advance(count) => Some(count),
                    Event::Lock { lock, .. }
                    | Event::Unlock(lock)
                    | Event::WaitBegin { lock, .. }
                    | Event::WaitEnd { lock, .. } => self.about().locks[lock.0 as usize].order,
                    _ => None,
                };
                if let Some(count) = count
                    && *users.entry(count).or_insert(thread) != thread
                {
                    survey.between_threads.insert(count);
                }
                let part = match event {
                    Event::StorePart { word, .. } => Some(word),
                    Event::Atomic { word, mask, .. } if mask != 0xff => Some(word),
                    _ => None,
                };
                if let Some(word) = part
                    && *writers.entry(word).or_insert(thread) != thread
                {
                    survey.in_parts.insert(word);
                }
            }
            survey.total.add_all(&counts);
            survey.threads.push(counts);
        }
        Ok(survey)
    }
}
