//! What is serialised: atomics, fences, and what threads synchronise by.
//!
//! Such an operation begins when all instructions before it have retired and all stores before it are committed, and nothing
//! after it begins before it is done. (A lock that is taken by a store goes behind the stores before it, and is done when it is
//! committed.) An atomic binds the old value and writes the new one at one moment, at which its node may write the line: its
//! store goes into the (empty) store buffer and is committed at once. In a machine that writes through or replicates, the line
//! is pinned from that moment to the commit.
//!
//! Locks, barriers and conditions make real accesses to their words, and when these are committed the machine's
//! [objects](super::objects) decide who has to wait: an atomic that is not committed has changed nothing. Who waits costs nothing;
//! when it may go on it makes a new access, as one who spun would. (Where they are events, they take the same steps without accesses.)

use super::event::Event;
use super::objects::Turn;
use super::store_buffer::Then;
use super::{Breakage, Cluster};
use crate::description::{Protocol, Synchronising};
use crate::engine::{EventQueue, Time};
use crate::program::{LockId, Op, Thread, Update, Word};

/// How far the operation that a core holds is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Serial {
    step: Step,
    /// The core has come to it, and its line has been asked for.
    begun: bool,
    /// It waits for somebody else.
    pub waits: bool,
    /// What its atomic has got it, since that is committed.
    pub turn: Turn,
    /// When the core first came to it.
    pub since: Option<u64>,
}

impl Serial {
    /// Whether the core has come to an operation that is serialised.
    pub fn is_begun(&self) -> bool {
        self.begun
    }

    /// Whether an atomic has read, and its write may be in the store buffer.
    pub fn is_committing(&self) -> bool {
        matches!(self.step, Step::Committing(_))
    }

    /// What an atomic in the store buffer has read.
    pub fn has_read(&self) -> Option<u64> {
        match self.step {
            Step::Committing(old) => Some(old),
            _ => None,
        }
    }

    /// The atomic of the operation `held` is undone: it will be begun again.
    pub fn start_over(&mut self, held: Option<Op>) {
        self.step = match held {
            // Its first step is not an atomic, and is behind it.
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
    /// Its atomic has read this, and is not committed yet or has just been.
    Committing(u64),
    /// Somebody has let it go on: it reads the word by which it would have seen that.
    Look,
    /// A condition's waiter that takes its lock again.
    Retake,
}

impl<T: Thread> Cluster<T> {
    /// Goes on with an operation that is serialised; `false` if it cannot now.
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
                // The last sets it back for the next time. From the atomic to its commit nobody else can arrive, for the
                // line does not leave, and no other core writes it.
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

    /// Whether locks, barriers and conditions are no accesses.
    fn has_events(&self) -> bool {
        self.synchronisation == Synchronising::Events
    }

    /// The word by which an operation begins, if that is to be written.
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

    /// A line is not here: it is asked for, and the operation waits.
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

    /// Takes a lock by a store. It is an exchange, but what it writes is known and nobody asks what it reads, for the machine's objects say
    /// who has the lock: so it goes behind the stores that are there, and is replicated while its line is on the way. That nothing
    /// follows before it is committed makes it a fence.
    fn take(&mut self, c: usize, lock: LockId, now: Time, queue: &mut EventQueue<Event>) -> bool {
        let word = self.objects.lock_word(lock);
        let core = &mut self.cores[c];
        if core.stores.is_full() {
            let tick = core.tick;
            self.no_store_follows(c, tick, now, queue);
            return false;
        }
        // It would read first.
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

    /// Reads and writes a word at one moment, if that can be now.
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

    /// The commit of an operation's atomic has got its thread this.
    pub(super) fn takes_turn(&mut self, c: usize, turn: Turn) {
        let serial = &mut self.cores[c].serial;
        serial.turn = turn;
        // Whoever lets it go on may do so before it looks at this.
        serial.waits = turn == Turn::Waits;
    }

    /// An operation's atomic is committed, and if it had to wait, it may go on.
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
            // It has waited, and somebody has let it go on.
            (Turn::Waits, Op::Barrier(_)) => core.serial.step = Step::Look,
            (Turn::Waits, Op::Wait(..)) => core.serial.step = Step::Retake,
            (Turn::Waits, _) => core.serial.step = Step::Begin,
            (Turn::Last, Op::Barrier(barrier)) => {
                self.done(c);
                let (flag, generation) = self.objects.open_next(barrier, c as u16);
                let begun = self.store_then(c, flag, generation, Then::Open(barrier), now, queue);
                assert!(begun, "nothing is under way, so there is room for a store");
            }
            _ => {
                self.done(c);
            }
        }
    }

    /// Reads a word for the operation's own use; `false` if that cannot be now.
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

    /// The operation is done.
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

    /// What a thread waited for may be had.
    pub(super) fn released(&mut self, c: usize, now: Time, queue: &mut EventQueue<Event>) {
        self.cores[c].serial.waits = false;
        if self.cores[c].activity == super::core::Activity::Parked {
            self.run(c, now, queue);
        }
    }
}
