//! Locks, barriers, conditions and event counts: their owners and waiters.
//!
//! The threads' operations read and write the words of these objects like all others; but the
//! continuation of a thread is decided here, at the moment at which its atomic is committed. So
//! waiting needs no events, and the words' values only matter to readers of memory. A released lock
//! goes to the thread whose atomic commits first: the thread that has waited longest is notified,
//! makes a new atomic, and waits at the front if another thread was faster.

use std::collections::VecDeque;

use crate::program::{BarrierId, ConditionId, EventCountId, LockId, Synchronisation, Word};

/// The result of a thread's atomic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Turn {
    /// The thread continues.
    #[default]
    Go,
    /// The thread waits until it is notified.
    Waits,
    /// The thread is the last to arrive at a barrier, and opens it.
    Last,
}

#[derive(Clone, Debug)]
struct Lock {
    word: Word,
    owner: Option<u16>,
    /// The threads that have taken it and have not seen it released: the owner, unless the machine
    /// has given one thread's lock to another.
    takers: Vec<u16>,
    waiting: VecDeque<u16>,
    /// The thread that was notified of the lock's release, and has not come yet.
    called: Option<u16>,
}

#[derive(Clone, Debug)]
struct Barrier {
    counter: Word,
    threads: u32,
    arrived: u32,
    /// The number of times that all have arrived.
    round: u64,
    /// The threads that wait, each with the round in which it has arrived: others may arrive anew
    /// before the flag of a round is written.
    waiting: Vec<(u16, u64)>,
    openings: Vec<Opening>,
    /// The threads that have ever arrived, one element for each thread; all threads, if all take
    /// part. Dead threads that had ended are removed, since no thread waits for them.
    members: Vec<bool>,
}

/// A round whose last thread has arrived, and whose store to the flag is not committed.
#[derive(Clone, Copy, Debug)]
struct Opening {
    opener: u16,
    round: u64,
    /// The original opener has died. This one, which has waited, has yet to arrive again to open.
    again: bool,
}

#[derive(Clone, Debug)]
struct Condition {
    word: Word,
    waiting: VecDeque<u16>,
}

#[derive(Clone, Debug)]
struct EventCount {
    is: u64,
    /// The threads that wait, each with the count that it waits for.
    waiting: Vec<(u16, u64)>,
}

impl Barrier {
    /// Removes dead threads. Returns the threads that must arrive again: one for each round that a
    /// dead thread was to open, and one to complete the present round, if all others are here.
    fn bury(&mut self, is_dead: &impl Fn(u16) -> bool) -> Vec<u16> {
        for (thread, member) in self.members.iter_mut().enumerate() {
            if *member && is_dead(thread as u16) {
                *member = false;
                self.threads = self.threads.saturating_sub(1);
            }
        }
        let Self {
            waiting, openings, ..
        } = self;
        let mut again = Vec::new();
        waiting.retain(|(thread, _)| !is_dead(*thread));
        openings.retain_mut(|opening| {
            if is_dead(opening.opener) {
                let Some(heir) = waiting
                    .iter()
                    .rposition(|(_, round)| *round == opening.round)
                else {
                    return false;
                };
                (opening.opener, opening.again) = (waiting.remove(heir).0, true);
                again.push(opening.opener);
            }
            true
        });
        let arrived = |(_, round): &&(u16, u64)| *round == self.round;
        self.arrived = waiting.iter().filter(arrived).count() as u32;
        if self.arrived > 0 && self.arrived >= self.threads {
            let last = waiting.iter().rposition(|(_, round)| *round == self.round);
            again.extend(last.map(|last| waiting.remove(last).0));
            self.arrived -= 1;
        }
        again
    }

    /// Returns whether this thread must open a round in which it has waited.
    fn is_heir(&self, thread: u16) -> bool {
        let mut openings = self.openings.iter();
        openings.any(|opening| opening.opener == thread && opening.again)
    }
}

/// All objects of a workload. Threads are identified by the numbers of their cores.
#[derive(Clone, Debug)]
pub(super) struct Objects {
    locks: Vec<Lock>,
    barriers: Vec<Barrier>,
    conditions: Vec<Condition>,
    event_counts: Vec<EventCount>,
    /// A thread has died before its end.
    missing: bool,
    /// That is settled: event counts are not known any more, and no thread waits for them.
    abandoned: bool,
}

/// The threads that waited for dead ones, by how they continue.
#[derive(Clone, Default, Debug)]
pub(super) struct Settled {
    /// They continue.
    pub released: Vec<u16>,
    /// They waited at a barrier, and must arrive there once more, as the last.
    pub arrive_again: Vec<u16>,
}

impl Objects {
    pub fn new(synchronisation: &Synchronisation, threads: usize) -> Objects {
        let lock = |word: &Word| Lock {
            word: *word,
            owner: None,
            takers: Vec::with_capacity(1),
            waiting: VecDeque::with_capacity(4),
            called: None,
        };
        let barrier = |barrier: &crate::program::Barrier| Barrier {
            counter: barrier.counter,
            threads: barrier.threads,
            arrived: 0,
            round: 0,
            waiting: Vec::with_capacity(threads),
            openings: Vec::with_capacity(2),
            members: vec![barrier.threads as usize == threads; threads],
        };
        let condition = |word: &Word| Condition {
            word: *word,
            waiting: VecDeque::with_capacity(threads),
        };
        Objects {
            locks: synchronisation.locks.iter().map(lock).collect(),
            barriers: synchronisation.barriers.iter().map(barrier).collect(),
            conditions: synchronisation.conditions.iter().map(condition).collect(),
            event_counts: (0..synchronisation.event_counts)
                .map(|_| EventCount {
                    is: 0,
                    waiting: Vec::with_capacity(4),
                })
                .collect(),
            missing: false,
            abandoned: false,
        }
    }

    pub fn lock_word(&self, lock: LockId) -> Word {
        self.locks[lock.0 as usize].word
    }

    pub fn condition_word(&self, condition: ConditionId) -> Word {
        self.conditions[condition.0 as usize].word
    }

    pub fn barrier_counter(&self, barrier: BarrierId) -> Word {
        self.barriers[barrier.0 as usize].counter
    }

    /// Returns the first word of the line after the counter's.
    pub fn barrier_flag(&self, barrier: BarrierId) -> Word {
        Word((self.barrier_counter(barrier).line().0 + 1) * Word::PER_LINE)
    }

    /// Called when a thread's atomic on a lock is committed. If the thread already has the lock, it
    /// waits, for ever unless another releases it.
    pub fn lock(&mut self, lock: LockId, thread: u16) -> Turn {
        let lock = &mut self.locks[lock.0 as usize];
        let called = lock.called == Some(thread);
        if called {
            lock.called = None;
        }
        if lock.owner.is_none() {
            lock.owner = Some(thread);
            lock.takers.push(thread);
            return Turn::Go;
        }
        match called {
            true => lock.waiting.push_front(thread),
            false => lock.waiting.push_back(thread),
        }
        Turn::Waits
    }

    /// Called when the store by which a thread releases a lock is committed. Returns the thread
    /// that is to try next. A program may release a lock that another of its threads has taken.
    pub fn unlock(&mut self, lock: LockId, thread: u16) -> Option<u16> {
        let taken = &mut self.locks[lock.0 as usize].takers;
        match taken.iter().position(|taker| *taker == thread) {
            Some(place) => _ = taken.swap_remove(place),
            None => taken.clear(),
        }
        self.free(lock)
    }

    fn free(&mut self, lock: LockId) -> Option<u16> {
        let lock = &mut self.locks[lock.0 as usize];
        lock.owner = None;
        // A thread that was notified before and has not come yet will find it free.
        if lock.called.is_none() {
            lock.called = lock.waiting.pop_front();
            return lock.called;
        }
        None
    }

    /// Checks the release of a lock: a thread that has taken it must have owned it since.
    pub fn judge_unlock(&self, lock: LockId, thread: u16) {
        let Lock { owner, takers, .. } = &self.locks[lock.0 as usize];
        assert!(
            *owner == Some(thread) || !takers.contains(&thread),
            "thread {thread} releases lock {}, which it no longer holds; the owner is {owner:?}",
            lock.0
        );
    }

    /// Returns whether a thread that arrives at a barrier now is the last.
    pub fn is_last(&self, barrier: BarrierId, thread: u16) -> bool {
        let barrier = &self.barriers[barrier.0 as usize];
        barrier.is_heir(thread) || barrier.arrived + 1 == barrier.threads
    }

    /// Called when a thread's atomic on a barrier is committed.
    pub fn arrive(&mut self, barrier: BarrierId, thread: u16) -> Turn {
        let barrier = &mut self.barriers[barrier.0 as usize];
        barrier.members[usize::from(thread)] = true;
        if barrier.is_heir(thread) {
            let mut openings = barrier.openings.iter_mut();
            openings
                .find(|opening| opening.opener == thread)
                .into_iter()
                .for_each(|opening| opening.again = false);
            return Turn::Last;
        }
        barrier.arrived += 1;
        if barrier.arrived == barrier.threads {
            barrier.openings.push(Opening {
                opener: thread,
                round: barrier.round,
                again: false,
            });
            (barrier.arrived, barrier.round) = (0, barrier.round + 1);
            return Turn::Last;
        }
        barrier.waiting.push((thread, barrier.round));
        Turn::Waits
    }

    /// Returns the word that the last thread of a round writes, and its value.
    pub fn open_next(&self, barrier: BarrierId, opener: u16) -> (Word, u64) {
        let flag = self.barrier_flag(barrier);
        let barrier = &self.barriers[barrier.0 as usize];
        let opening = barrier.openings.iter().find(|one| one.opener == opener);
        (
            flag,
            opening.map_or(barrier.round, |opening| opening.round + 1),
        )
    }

    /// Called when that store is committed. Returns the threads that waited in this round. An
    /// opener arrives nowhere again before, so it has one round to open.
    pub fn open(&mut self, barrier: BarrierId, opener: u16) -> impl Iterator<Item = u16> {
        let barrier = &mut self.barriers[barrier.0 as usize];
        let place = barrier.openings.iter().position(|one| one.opener == opener);
        let round = place.map(|place| barrier.openings.remove(place).round);
        let opened = barrier
            .waiting
            .extract_if(.., move |(_, of)| Some(*of) == round);
        opened.map(|(thread, _)| thread)
    }

    /// Adds a thread to the waiters of a condition.
    pub fn wait(&mut self, condition: ConditionId, thread: u16) {
        self.conditions[condition.0 as usize]
            .waiting
            .push_back(thread);
    }

    /// Removes and returns the thread that has waited longest for a condition.
    pub fn signal(&mut self, condition: ConditionId) -> Option<u16> {
        self.conditions[condition.0 as usize].waiting.pop_front()
    }

    /// Returns whether an event count has reached `wanted`; else adds the thread to its waiters.
    pub fn await_count(&mut self, count: EventCountId, wanted: u64, thread: u16) -> bool {
        let count = &mut self.event_counts[count.0 as usize];
        let goes_on = count.is >= wanted || self.abandoned;
        if !goes_on {
            count.waiting.push((thread, wanted));
        }
        goes_on
    }

    /// Advances an event count by one.
    pub fn advance(&mut self, count: EventCountId) {
        self.event_counts[count.0 as usize].is += 1;
    }

    /// Removes and returns a thread that has waited for no more than the event count's value.
    pub fn next_awaited(&mut self, count: EventCountId) -> Option<u16> {
        let EventCount { is, waiting } = &mut self.event_counts[count.0 as usize];
        let place = waiting.iter().position(|(_, wanted)| wanted <= is)?;
        Some(waiting.remove(place).0)
    }

    /// Records that a dead thread had ended before its node died: no barrier waits for it.
    pub fn had_ended(&mut self, thread: u16) {
        for barrier in &mut self.barriers {
            barrier.members[usize::from(thread)] = false;
        }
    }

    /// Records that a thread has died before its end: its remaining actions will not happen.
    pub fn has_died(&mut self) {
        self.missing = true;
    }

    /// Settles the holdings and obligations of dead threads. A repeated call has no further effect.
    pub fn bury(&mut self, is_dead: impl Fn(u16) -> bool) -> Settled {
        let mut settled = Settled::default();
        for lock in &mut self.locks {
            lock.waiting.retain(|thread| !is_dead(*thread));
            lock.takers.retain(|thread| !is_dead(*thread));
            let called = lock.called.is_some_and(&is_dead);
            if lock.owner.is_some_and(&is_dead) {
                lock.owner = None;
            }
            if called {
                lock.called = None;
            }
            if lock.owner.is_none() && lock.called.is_none() {
                lock.called = lock.waiting.pop_front();
                settled.released.extend(lock.called);
            }
        }
        for barrier in &mut self.barriers {
            settled.arrive_again.extend(barrier.bury(&is_dead));
        }
        for condition in &mut self.conditions {
            let living = condition
                .waiting
                .drain(..)
                .filter(|thread| !is_dead(*thread));
            settled.released.extend(living);
        }
        if self.missing {
            for count in &mut self.event_counts {
                let living = count.waiting.drain(..).map(|(thread, _)| thread);
                settled
                    .released
                    .extend(living.filter(|thread| !is_dead(*thread)));
            }
            self.abandoned = true;
        }
        settled
    }

    /// Frees all locks: a deliberate fault. Returns the threads that are to try next.
    pub fn free_all_locks(&mut self) -> Vec<u16> {
        let all = 0..self.locks.len() as u32;
        all.filter_map(|lock| self.free(LockId(lock))).collect()
    }

    /// Checks that, when no event is pending, no thread waits for an object that it could have.
    pub fn check_waits(&self) -> Result<(), String> {
        for (number, lock) in self.locks.iter().enumerate() {
            let Lock {
                owner,
                called,
                waiting,
                ..
            } = lock;
            if let (None, None, Some(thread)) = (owner, called, waiting.front()) {
                return Err(format!(
                    "thread {thread} waits for lock {number}, which is free"
                ));
            }
        }
        for (number, barrier) in self.barriers.iter().enumerate() {
            if barrier.arrived > 0 && barrier.arrived >= barrier.threads {
                return Err(format!(
                    "all threads have arrived at barrier {number}, but still wait"
                ));
            }
            let opens = |round: u64| barrier.openings.iter().any(|one| one.round == round);
            let mut waiting = barrier.waiting.iter();
            let late = waiting.find(|(_, round)| *round < barrier.round && !opens(*round));
            if let Some((thread, _)) = late {
                return Err(format!(
                    "thread {thread} waits at barrier {number} for a round that has been opened"
                ));
            }
        }
        for (number, count) in self.event_counts.iter().enumerate() {
            let mut waiting = count.waiting.iter();
            if let Some((thread, wanted)) =
                waiting.find(|(_, wanted)| self.abandoned || *wanted <= count.is)
            {
                return Err(format!(
                    "thread {thread} waits for event count {number} to be {wanted}, which it has \
                     reached"
                ));
            }
        }
        Ok(())
    }

    /// Returns the object that a thread waits for here.
    pub fn waits_for(&self, thread: u16) -> Option<String> {
        let place = |what: &str, number: usize| Some(format!("{what} {number}"));
        for (number, lock) in self.locks.iter().enumerate() {
            if lock.waiting.contains(&thread) {
                return place("lock", number);
            }
        }
        for (number, barrier) in self.barriers.iter().enumerate() {
            if barrier
                .waiting
                .iter()
                .any(|(waiting, _)| *waiting == thread)
            {
                return place("barrier", number);
            }
        }
        for (number, condition) in self.conditions.iter().enumerate() {
            if condition.waiting.contains(&thread) {
                return place("condition", number);
            }
        }
        for (number, count) in self.event_counts.iter().enumerate() {
            let wanted = count.waiting.iter().find(|(waiting, _)| *waiting == thread);
            if let Some((_, wanted)) = wanted {
                let is = count.is;
                return Some(format!(
                    "event count {number} to be {wanted}, which is {is}"
                ));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A barrier of two, which four threads use.
    fn of_two() -> (Objects, BarrierId) {
        let synchronisation = Synchronisation {
            barriers: vec![crate::program::Barrier {
                counter: Word(0),
                threads: 2,
            }],
            ..Synchronisation::default()
        };
        (Objects::new(&synchronisation, 4), BarrierId(0))
    }

    fn opened(objects: &mut Objects, opener: u16) -> Vec<u16> {
        objects.open(BarrierId(0), opener).collect()
    }

    #[test]
    fn who_arrives_before_the_flag_is_written_waits_for_the_next_round() {
        let (mut objects, barrier) = of_two();
        let turns = [0, 1, 2].map(|thread| objects.arrive(barrier, thread));
        assert_eq!(turns, [Turn::Waits, Turn::Last, Turn::Waits]);
        assert_eq!(objects.open_next(barrier, 1).1, 1);
        assert_eq!(opened(&mut objects, 1), [0]);
        assert_eq!(objects.arrive(barrier, 3), Turn::Last);
        assert_eq!(objects.open_next(barrier, 3).1, 2);
        assert_eq!(opened(&mut objects, 3), [2]);
    }

    #[test]
    fn each_round_that_a_dead_one_was_to_open_has_an_heir() {
        let (mut objects, barrier) = of_two();
        for thread in 0..4 {
            objects.arrive(barrier, thread);
        }
        let dead = |thread| thread == 1 || thread == 3;
        assert_eq!(objects.bury(dead).arrive_again, [0, 2]);
        assert_eq!(objects.bury(dead).arrive_again, [0; 0]);
        for heir in [0, 2] {
            assert!(objects.is_last(barrier, heir));
            assert_eq!(objects.arrive(barrier, heir), Turn::Last);
            assert_eq!(opened(&mut objects, heir), [0; 0]);
        }
        // A living opener opens, though a thread that has arrived since is dead.
        let (mut objects, barrier) = of_two();
        for thread in 0..3 {
            objects.arrive(barrier, thread);
        }
        assert_eq!(objects.bury(|thread| thread == 2).arrive_again, [0; 0]);
        assert_eq!(opened(&mut objects, 1), [0]);
    }

    #[test]
    fn who_waits_for_what_is_there_is_found() {
        let synchronisation = Synchronisation {
            locks: vec![Word(0)],
            event_counts: 1,
            ..Synchronisation::default()
        };
        let objects = || {
            let mut objects = Objects::new(&synchronisation, 3);
            objects.lock(LockId(0), 0);
            objects.lock(LockId(0), 1);
            objects.await_count(EventCountId(0), 1, 2);
            assert_eq!(objects.check_waits(), Ok(()));
            objects
        };
        let said = |objects: &Objects| objects.check_waits().unwrap_err();
        let mut free = objects();
        free.locks[0].owner = None;
        assert!(said(&free).contains("lock 0, which is free"));
        let mut advanced = objects();
        advanced.advance(EventCountId(0));
        assert!(said(&advanced).contains("event count 0 to be 1, which it has reached"));
        let mut abandoned = objects();
        abandoned.abandoned = true;
        assert!(said(&abandoned).contains("which it has reached"));
        // A death settles all of this.
        let mut settled = objects();
        settled.has_died();
        assert_eq!(settled.bury(|thread| thread == 0).released, [1, 2]);
        assert_eq!(settled.check_waits(), Ok(()));

        let (mut objects, barrier) = of_two();
        objects.arrive(barrier, 0);
        assert_eq!(objects.check_waits(), Ok(()));
        let mut alone = objects.clone();
        alone.barriers[0].threads = 1;
        assert!(said(&alone).contains("all threads have arrived"));
        objects.arrive(barrier, 1);
        assert_eq!(objects.check_waits(), Ok(()));
        objects.barriers[0].openings.clear();
        assert!(said(&objects).contains("a round that has been opened"));
    }

    /// Threads 0 and 1 meet at a barrier of two, and end; then 2 and 3 do.
    #[test]
    fn the_dead_who_had_ended_are_missing_at_no_barrier() {
        for ended in [true, false] {
            let (mut objects, barrier) = of_two();
            assert_eq!(objects.arrive(barrier, 0), Turn::Waits);
            assert_eq!(objects.arrive(barrier, 1), Turn::Last);
            assert_eq!(opened(&mut objects, 1), [0]);
            if ended {
                [0, 1]
                    .into_iter()
                    .for_each(|thread| objects.had_ended(thread));
            }
            objects.bury(|thread| thread < 2);
            // Else the barrier does not know that they will not come again.
            let first = objects.arrive(barrier, 2);
            assert_eq!(first == Turn::Waits && objects.is_last(barrier, 3), ended);
        }
    }
}
