//! Serialised operations: atomics, fences, and the threads' synchronisation.
//!
//! Such an operation begins when all instructions before it have retired and all stores before it
//! are committed, and nothing after it begins before it is done. (A store that takes a lock goes
//! behind the stores before it, and the operation is done when it is committed.) An atomic binds
//! the old value and writes the new one at one moment, at which its node may write the line: its
//! store goes into the (empty) store buffer and is committed at once. In a machine that writes
//! through or replicates, the line is pinned from that moment to the commit.
//!
//! Locks, barriers and conditions make real accesses to their words, and when these are committed
//! the machine's [objects](super::objects) decide which threads wait: an atomic that is not
//! committed has changed nothing. Waiting costs nothing; a thread that may continue makes a new
//! access, as a spinning thread would. (Where they are events, they take the same steps without
//! accesses.)

use super::event::Event;
use super::objects::Turn;
use super::store_buffer::Then;
use super::{Breakage, Cluster};
use crate::description::{Protocol, Synchronising};
use crate::engine::{EventQueue, Time};
use crate::program::{LockId, Op, Thread, Update, Word};

/// The progress of the operation that a core holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Serial {
    step: Step,
    /// The core has come to it, and its line has been requested.
    begun: bool,
    /// It waits for another thread.
    pub waits: bool,
    /// The result of its atomic, once that is committed.
    pub turn: Turn,
    /// The tick at which the core first came to it.
    pub since: Option<u64>,
}

impl Serial {
    /// Returns whether the core has come to a serialised operation.
    pub fn is_begun(&self) -> bool {
        self.begun
    }

    /// Returns whether an atomic has read, and its write may be in the store buffer.
    pub fn is_committing(&self) -> bool {
        matches!(self.step, Step::Committing(_))
    }

    /// Returns the value that an atomic in the store buffer has read.
    pub fn has_read(&self) -> Option<u64> {
        match self.step {
            Step::Committing(old) => Some(old),
            _ => None,
        }
    }

    /// Undoes the atomic of the operation `held`: it will be begun again.
    pub fn start_over(&mut self, held: Option<Op>) {
        self.step = match held {
            // Its first step is not an atomic, and is done.
            Some(Op::Wait(..)) => Step::Retake,
            _ => Step::Begin,
        };
        self.begun = false;
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Step {
    #[default]
    Begin,
    /// The store that takes its lock is in the store buffer, or has just been committed.
    Taking,
    /// Its atomic has read this value, and is not committed yet or has just been.
    Committing(u64),
    /// Another thread has let it continue: it reads the word by which it would have seen that.
    Look,
    /// A condition's waiter takes its lock again.
    Retake,
}

impl<T: Thread> Cluster<T> {
    /// Continues a serialised operation. Returns `false` if it cannot continue now.
    pub(super) fn serialise(
        &mut self,
        c: usize,
        op: Op,
        now: Time,
        queue: &mut EventQueue<Event>,
    ) -> bool {
        self.cores[c].held = Some(op);
        let serial = self.cores[c].serial;
        if serial.waits {
            return false;
        }
        let tick = self.cores[c].tick;
        if !serial.begun {
            let serial = &mut self.cores[c].serial;
            serial.begun = true;
            serial.since.get_or_insert(tick);
            let word = self.word_of(op);
            if let Some(word) = word.filter(|_| matches!(op, Op::Atomic(..)) || !self.has_events())
            {
                self.check_word(word);
                self.prefetch(c, word.line(), tick, now, queue);
            }
        }
        if self.cores[c].rob.is_empty() {
            match (op, serial.step) {
                (Op::Lock(lock), Step::Begin) | (Op::Wait(_, lock), Step::Retake)
                    if self.protocol == Protocol::Adaptive && !self.has_events() =>
                {
                    return self.take(c, lock, now, queue);
                }
                _ => self.no_store_follows(c, tick, now, queue),
            }
        }
        if !self.cores[c].is_drained() {
            let passes =
                serial.step == Step::Taking && self.broken == Some(Breakage::LocksAreNoFences);
            if passes {
                self.done(c);
            }
            return passes;
        }
        let core = &mut self.cores[c];
        core.tick = tick.max(core.stores.last_commit);
        match (op, serial.step) {
            (_, Step::Committing(old)) => {
                self.after_atomic(c, op, old, now, queue);
                true
            }
            (_, Step::Taking) => {
                self.after_atomic(c, op, 0, now, queue);
                true
            }
            (Op::Atomic(word, update), _) => {
                self.atomic(c, word, update, Then::Nothing, now, queue)
            }
            (Op::Lock(lock), _) | (Op::Wait(_, lock), Step::Retake) => {
                let word = self.objects.lock_word(lock);
                self.atomic(c, word, Update::Exchange(1), Then::Take(lock), now, queue)
            }
            (Op::Barrier(barrier), Step::Begin) => {
                let word = self.objects.barrier_counter(barrier);
                // The last resets it for the next round. From the atomic to its commit no other
                // thread can arrive, for the line does not leave, and no other core writes it.
                let update = match self.objects.is_last(barrier, c as u16) {
                    true => Update::Exchange(0),
                    false => Update::Add(1),
                };
                self.atomic(c, word, update, Then::Arrive(barrier), now, queue)
            }
            (Op::Barrier(barrier), _) => {
                let flag = self.objects.barrier_flag(barrier);
                self.look(c, flag, now, queue) && self.done(c)
            }
            (Op::Wait(condition, lock), Step::Begin) => {
                let word = self.objects.condition_word(condition);
                if !self.look(c, word, now, queue) {
                    return false;
                }
                self.objects.wait(condition, c as u16);
                let serial = &mut self.cores[c].serial;
                (serial.step, serial.waits) = (Step::Look, true);
                let word = self.objects.lock_word(lock);
                self.store_then(c, word, 0, Then::Unlock(lock), now, queue)
            }
            (Op::Wait(condition, _), _) => {
                let word = self.objects.condition_word(condition);
                if !self.look(c, word, now, queue) {
                    return false;
                }
                self.cores[c].serial.step = Step::Retake;
                true
            }
            (Op::Signal(condition), _) => {
                let word = self.objects.condition_word(condition);
                self.atomic(c, word, Update::Add(1), Then::Signal(condition), now, queue)
            }
            (Op::Broadcast(condition), _) => {
                let word = self.objects.condition_word(condition);
                let then = Then::Broadcast(condition);
                self.atomic(c, word, Update::Add(1), then, now, queue)
            }
            // A fence: all before it is done.
            _ => self.done(c),
        }
    }

    /// Returns whether locks, barriers and conditions make no accesses.
    fn has_events(&self) -> bool {
        self.synchronisation == Synchronising::Events
    }

    /// Returns the word by which an operation begins, if it is to be written.
    fn word_of(&self, op: Op) -> Option<Word> {
        match op {
            Op::Atomic(word, _) => Some(word),
            Op::Lock(lock) => Some(self.objects.lock_word(lock)),
            Op::Barrier(barrier) => Some(self.objects.barrier_counter(barrier)),
            Op::Signal(condition) | Op::Broadcast(condition) => {
                Some(self.objects.condition_word(condition))
            }
            _ => None,
        }
    }

    /// Requests a line that is not here; the operation waits.
    fn wait_for(
        &mut self,
        c: usize,
        word: Word,
        write: bool,
        now: Time,
        queue: &mut EventQueue<Event>,
    ) -> bool {
        let tick = self.cores[c].tick;
        self.ask(c, word.line(), write, tick, now, queue);
        false
    }

    /// Takes a lock by a store. It is an exchange, but the value written is known, and the value
    /// read is not used, for the machine's objects decide which thread has the lock. So it goes
    /// behind the stores that are there, and is replicated while its line is on the way. It is a
    /// fence, since nothing follows before it is committed.
    fn take(&mut self, c: usize, lock: LockId, now: Time, queue: &mut EventQueue<Event>) -> bool {
        let word = self.objects.lock_word(lock);
        let core = &mut self.cores[c];
        if core.stores.is_full() {
            let tick = core.tick;
            self.no_store_follows(c, tick, now, queue);
            return false;
        }
        // An exchange would read first.
        let at = core.tick + self.timing.l1;
        core.stores.enter(word, 1, Then::Take(lock), at);
        (core.serial.step, core.serial.turn) = (Step::Taking, Turn::Go);
        core.counts.atomics += 1;
        core.counts.shared_stores += 1;
        self.judge_retired(c, true, 0);
        if self.protocol.replicates() {
            self.store_entered(c, at, now, queue);
        }
        true
    }

    /// Reads and writes a word at one moment, if that is possible now.
    fn atomic(
        &mut self,
        c: usize,
        word: Word,
        update: Update,
        then: Then,
        now: Time,
        queue: &mut EventQueue<Event>,
    ) -> bool {
        let has_events = self.has_events();
        let core = &mut self.cores[c];
        let tick = core.tick;
        if has_events && then.is_of_synchronisation() {
            core.stores.enter_mark(then, tick);
            (core.serial.step, core.serial.turn) = (Step::Committing(0), Turn::Go);
            self.commit_oldest(c, tick, now, queue);
            return true;
        }
        let caches = &mut self.nodes[core.node as usize].caches;
        let Some(hit) = caches.write(core.place, word.line()) else {
            return self.wait_for(c, word, true, now, queue);
        };
        let old = caches.line(hit.slot)[word.place()];
        if let Some(oracle) = &self.oracle {
            oracle.bound(word, old);
        }
        let at = tick + self.timing.of(hit.level);
        core.stores.enter(word, update.apply(old), then, at);
        (core.serial.step, core.serial.turn) = (Step::Committing(old), Turn::Go);
        core.counts.atomics += 1;
        core.counts.shared_stores += 1;
        core.counts.hit(hit.level);
        self.judge_retired(c, true, 0);
        self.commit_oldest(c, at, now, queue);
        true
    }

    /// Records the result of the commit of an operation's atomic.
    pub(super) fn takes_turn(&mut self, c: usize, turn: Turn) {
        let serial = &mut self.cores[c].serial;
        serial.turn = turn;
        // The notification to continue may come before the operation checks this.
        serial.waits = turn == Turn::Waits;
    }

    /// Continues an operation whose atomic is committed and which, if it had to wait, may go on.
    fn after_atomic(
        &mut self,
        c: usize,
        op: Op,
        old: u64,
        now: Time,
        queue: &mut EventQueue<Event>,
    ) {
        let core = &mut self.cores[c];
        if let Op::Atomic(..) = op {
            core.loads.bind(old, core.tick);
        }
        match (core.serial.turn, op) {
            // It has waited, and another thread has let it continue.
            (Turn::Waits, Op::Barrier(_)) => core.serial.step = Step::Look,
            (Turn::Waits, Op::Wait(..)) => core.serial.step = Step::Retake,
            (Turn::Waits, _) => core.serial.step = Step::Begin,
            (Turn::Last, Op::Barrier(barrier)) => {
                self.done(c);
                let (flag, generation) = self.objects.open_next(barrier, c as u16);
                let begun = self.store_then(c, flag, generation, Then::Open(barrier), now, queue);
                assert!(begun, "nothing is under way, so the store buffer has space");
            }
            _ => {
                self.done(c);
            }
        }
    }

    /// Reads a word for the operation's own use. Returns `false` if that is not possible now.
    fn look(&mut self, c: usize, word: Word, now: Time, queue: &mut EventQueue<Event>) -> bool {
        if self.has_events() {
            return true;
        }
        let core = &mut self.cores[c];
        let caches = &mut self.nodes[core.node as usize].caches;
        let Some(hit) = caches.read(core.place, word.line()) else {
            return self.wait_for(c, word, false, now, queue);
        };
        if let Some(oracle) = &self.oracle {
            oracle.bound(word, caches.line(hit.slot)[word.place()]);
        }
        core.tick += self.timing.of(hit.level);
        core.counts.hit(hit.level);
        true
    }

    /// Ends the operation.
    fn done(&mut self, c: usize) -> bool {
        let core = &mut self.cores[c];
        let op = core.held.take();
        let since = core.serial.since.unwrap_or(core.tick);
        core.serial = Serial::default();
        core.tick += 1;
        let taken = core.tick.saturating_sub(since);
        match op {
            Some(Op::Lock(_)) => core.counts.lock_ticks += taken,
            Some(Op::Barrier(_) | Op::Wait(..)) => core.counts.meeting_ticks += taken,
            _ => {}
        }
        core.counts.instructions += 1;
        core.rob.retired = core.rob.retired.max(core.tick);
        true
    }

    /// Called when the object that a thread waited for may be available.
    pub(super) fn released(&mut self, c: usize, now: Time, queue: &mut EventQueue<Event>) {
        self.cores[c].serial.waits = false;
        if self.cores[c].activity == super::core::Activity::Parked {
            self.run(c, now, queue);
        }
    }
}
