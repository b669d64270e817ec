//! Stores: begun with an exclusive prefetch, committed in order.
//!
//! A store requests its line, to be written, as soon as it begins. The oldest entry of the store
//! buffer is *committed* when its node may write the line. Its values are then in the node's L3,
//! visible to all; one entry is committed per cycle.

use super::event::Event;
use super::misses::PENDING;
use super::reorder_buffer::Kind;
use super::store_buffer::{ALL_BYTES, Store, Then};
use super::{Breakage, Cluster};
use crate::description::{Protocol, Synchronising};
use crate::engine::{EventQueue, Time};
use crate::line::LineAddress;
use crate::parts::Slot;
use crate::program::{LockId, Thread, Word};
use crate::protocol::{NodeAction, NodeInput};

impl<T: Thread> Cluster<T> {
    pub(super) fn store(
        &mut self,
        c: usize,
        word: Word,
        value: u64,
        bytes: u8,
        now: Time,
        queue: &mut EventQueue<Event>,
    ) -> bool {
        self.store_part(c, word, (value, bytes), Then::Nothing, now, queue)
    }

    /// Releases a lock by a store like any other.
    pub(super) fn unlock(
        &mut self,
        c: usize,
        lock: LockId,
        now: Time,
        queue: &mut EventQueue<Event>,
    ) -> bool {
        let word = self.objects.lock_word(lock);
        self.store_then(c, word, 0, Then::Unlock(lock), now, queue)
    }

    /// Begins a store of a whole word of a lock, a barrier or a condition, whose commit has the
    /// effect `then`.
    pub(super) fn store_then(
        &mut self,
        c: usize,
        word: Word,
        value: u64,
        then: Then,
        now: Time,
        queue: &mut EventQueue<Event>,
    ) -> bool {
        if self.synchronisation == Synchronising::Events {
            if !self.cores[c].has_room_for_store() {
                return false;
            }
            let mark = self.mark(c, then);
            let core = &mut self.cores[c];
            core.stores.begin(mark);
            let done = core.tick + self.timing.cycle;
            self.begin(c, Kind::Store, done);
            return true;
        }
        self.store_part(c, word, (value, ALL_BYTES), then, now, queue)
    }

    /// Returns a store that only takes a place among the core's stores: it needs no line of the
    /// shared memory, and has no value that a load could find.
    pub(super) fn mark(&self, c: usize, then: Then) -> Store {
        let core = &self.cores[c];
        Store {
            line: LineAddress(0),
            place: 0,
            bytes: ALL_BYTES,
            private: true,
            value: 0,
            then,
            number: core.rob.next(),
            ready: core.tick,
        }
    }

    fn store_part(
        &mut self,
        c: usize,
        word: Word,
        (value, bytes): (u64, u8),
        then: Then,
        now: Time,
        queue: &mut EventQueue<Event>,
    ) -> bool {
        self.check_word(word);
        let core = &mut self.cores[c];
        if !core.has_room_for_store() {
            return false;
        }
        let (tick, number, line) = (core.tick, core.rob.next(), word.line());
        let ready = self.prefetch(c, line, tick, now, queue);
        self.cores[c].counts.shared_stores += 1;
        let store = Store {
            line,
            place: word.place() as u8,
            bytes,
            private: false,
            value,
            then,
            number,
            ready,
        };
        self.begin_store(c, store);
        true
    }

    /// Begins a store, shared or private.
    pub(super) fn begin_store(&mut self, c: usize, store: Store) {
        let core = &mut self.cores[c];
        core.counts.stores += 1;
        core.stores.begin(store);
        if let Some(oracle) = &mut self.oracle {
            oracle.began(c, &store);
        }
        let done = core.tick + self.timing.cycle;
        self.begin(c, Kind::Store, done);
    }

    /// Gets a line to be written, or requests it. Returns the tick from which it is available, as
    /// far as that is known.
    pub(super) fn prefetch(
        &mut self,
        c: usize,
        line: LineAddress,
        tick: u64,
        now: Time,
        queue: &mut EventQueue<Event>,
    ) -> u64 {
        let core = &mut self.cores[c];
        let caches = &mut self.nodes[core.node as usize].caches;
        if let Some(hit) = caches.write(core.place, line) {
            return tick + self.timing.of(hit.level) - self.timing.l1;
        }
        let wanted = self.cores[c].wants_room;
        if !self.ask(c, line, true, tick, now, queue) {
            let core = &mut self.cores[c];
            core.wants_room = wanted;
            if core.prefetches.back() != Some(&line) && core.prefetches.len() < core.most_prefetches
            {
                core.prefetches.push_back(line);
            }
        }
        tick
    }

    /// Requests a line that the node does not have (to be written, or to be read). Returns `false`
    /// if no miss entry is free.
    pub(super) fn ask(
        &mut self,
        c: usize,
        line: LineAddress,
        write: bool,
        tick: u64,
        now: Time,
        queue: &mut EventQueue<Event>,
    ) -> bool {
        let core = &mut self.cores[c];
        if let Some(miss) = core.misses.find(line) {
            miss.write |= write;
            return true;
        }
        if !core.misses.has_room(tick) {
            core.wants_room = true;
            return false;
        }
        core.misses.push(super::misses::Miss {
            line,
            write,
            since: tick,
            until: PENDING,
        });
        core.counts.misses += 1;
        let at = self.timing.time(tick + self.timing.l3).max(now);
        let core = c as u16;
        queue.schedule_at(at, Event::Request { core, line });
        true
    }

    /// Called when a miss entry may be free again: it goes to the oldest store, to the loads, and
    /// then to prefetches.
    pub(super) fn ask_for_more(
        &mut self,
        c: usize,
        tick: u64,
        now: Time,
        queue: &mut EventQueue<Event>,
    ) {
        self.cores[c].wants_room = false;
        let stores = &self.cores[c].stores;
        if stores.missing
            && let Some(line) = stores.front().map(|head| head.line)
        {
            self.ask(c, line, true, tick, now, queue);
        }
        if self.cores[c].loads.unasked() > 0 {
            self.ask_for_loads(c, tick, now, queue);
        }
        while let Some(&line) = self.cores[c].prefetches.front() {
            let core = &mut self.cores[c];
            if core.wants_room || !core.misses.has_room(tick) {
                return;
            }
            core.prefetches.pop_front();
            self.prefetch(c, line, tick, now, queue);
        }
    }

    /// Commits entries that are due by the core's local time. Returns whether any was committed.
    pub(super) fn drain(&mut self, c: usize, now: Time, queue: &mut EventQueue<Event>) -> bool {
        let mut any = false;
        while let Some(due) = self.cores[c].stores.due(self.timing.cycle) {
            if due > self.cores[c].tick || !self.commit_oldest(c, due, now, queue) {
                break;
            }
            any = true;
        }
        if self.broken == Some(Breakage::StoresDrainedOutOfOrder) {
            any |= self.commit_any(c, now, queue);
        }
        any
    }

    /// Commits the oldest entry at `due`, if its line may be written; else requests the line. In a
    /// machine that writes through or replicates, the values are sent off, and the commit comes
    /// later.
    pub(super) fn commit_oldest(
        &mut self,
        c: usize,
        due: u64,
        now: Time,
        queue: &mut EventQueue<Event>,
    ) -> bool {
        let Some(head) = self.cores[c].stores.front() else {
            return false;
        };
        // Not the whole entry: it is large, and this runs often.
        let (line, then, entered, private) = (head.line, head.then, head.entered, head.private);
        let replicated = self.is_replicated(head);
        let core = &mut self.cores[c];
        if private {
            core.stores.commit(0, due);
            if then == Then::Nothing {
                core.counts.buffer_ticks += due - entered;
                core.counts.commits += 1;
            }
            let at = self.timing.time(due).max(now);
            self.follow_up(c, then, at, queue);
            self.store_is_oldest(c, due, now, queue);
            return true;
        }
        let caches = &mut self.nodes[core.node as usize].caches;
        let Some(hit) = caches.write(core.place, line) else {
            core.stores.missing = true;
            match replicated {
                true => self.line_is_missing(c, due, now, queue),
                false => {
                    self.ask(c, line, true, due, now, queue);
                }
            }
            return false;
        };
        let at = due + self.timing.of(hit.level) - self.timing.l1;
        match self.protocol {
            Protocol::WriteBack => self.commit(c, 0, hit.slot, at, now, queue),
            Protocol::WriteThrough => {
                self.pin(c, hit.slot, at);
                self.send_through(c, at, now, queue);
                return false;
            }
            _ if replicated => return self.line_is_here(c, hit.slot, at, now, queue),
            _ => {
                self.commit(c, 0, hit.slot, at, now, queue);
                self.store_is_oldest(c, at, now, queue);
            }
        }
        true
    }

    /// Pins the line of the oldest entry, which the node may write, until the entry is durable.
    pub(super) fn pin(&mut self, c: usize, slot: Slot, at: u64) {
        let core = &mut self.cores[c];
        let caches = &mut self.nodes[core.node as usize].caches;
        caches.held_mut(slot).pinned = core.place;
        if let Some(head) = core.stores.front_mut() {
            (head.pinned_at, head.sealed) = (Some(at), true);
        }
    }

    /// Commits an entry whose line is there and may be written, at this tick.
    pub(super) fn commit(
        &mut self,
        c: usize,
        place: usize,
        slot: Slot,
        at: u64,
        now: Time,
        queue: &mut EventQueue<Event>,
    ) {
        let core = &mut self.cores[c];
        let Some(entry) = core.stores.commit(place, at) else {
            return;
        };
        core.counts.commits += 1;
        core.counts.buffer_ticks += at.saturating_sub(entry.entered);
        let n = core.node as usize;
        self.judge_order(c, &entry);
        if self.oracle.is_some()
            && let Some(old) = self.cores[c].serial.has_read()
        {
            let place = u64::from(entry.words.trailing_zeros());
            self.judge_atomic(Word(entry.line.0 * Word::PER_LINE + place), old);
        }
        let caches = &mut self.nodes[n].caches;
        let held = caches.held_mut(slot);
        // Written through, memory has the values too: the line is as clean as before.
        if self.protocol != Protocol::WriteThrough {
            let step = self
                .tables
                .node
                .step(held.agent, NodeInput::Store, Some(()));
            match step {
                Ok(step) if step.actions().eq([NodeAction::Perform]) => held.agent = step.state(),
                Ok(step) => panic!("a store to {} in {:?}: {step:?}", entry.line, held.agent),
                Err(error) => panic!("{} at {now}: {error}", entry.line),
            }
        }
        let values = caches.line_mut(slot);
        for place in (0..8).filter(|place| entry.words & 1 << place != 0) {
            values[place] = entry.values[place];
        }
        if self.oracle.is_some() {
            self.judge_commit(n, &entry);
            self.judge_sent(n);
        }
        let at = self.timing.time(at).max(now);
        self.follow_up(c, entry.then, at, queue);
    }

    /// Applies the effect of a commit at this time.
    fn follow_up(&mut self, c: usize, then: Then, at: Time, queue: &mut EventQueue<Event>) {
        match then {
            Then::Nothing => {}
            Then::Take(lock) => {
                let turn = self.objects.lock(lock, c as u16);
                self.takes_turn(c, turn);
            }
            Then::Arrive(barrier) => {
                let turn = self.objects.arrive(barrier, c as u16);
                self.takes_turn(c, turn);
            }
            Then::Signal(condition) => {
                if let Some(next) = self.objects.signal(condition) {
                    queue.schedule_at(at, Event::Released(next));
                }
            }
            Then::Broadcast(condition) => {
                while let Some(next) = self.objects.signal(condition) {
                    queue.schedule_at(at, Event::Released(next));
                }
            }
            Then::Unlock(lock) => {
                if self.oracle.is_some() {
                    self.objects.judge_unlock(lock, c as u16);
                }
                if let Some(next) = self.objects.unlock(lock, c as u16) {
                    queue.schedule_at(at, Event::Released(next));
                }
            }
            Then::Open(barrier) => {
                for next in self.objects.open(barrier, c as u16) {
                    queue.schedule_at(at, Event::Released(next));
                }
            }
            Then::Advance(count) => {
                self.objects.advance(count);
                while let Some(next) = self.objects.next_awaited(count) {
                    queue.schedule_at(at, Event::Released(next));
                }
            }
        }
    }

    /// Commits any entry whose line may be written: a deliberate fault.
    fn commit_any(&mut self, c: usize, now: Time, queue: &mut EventQueue<Event>) -> bool {
        let core = &mut self.cores[c];
        let tick = core.tick;
        for place in 1..core.stores.len() {
            let Some(entry) = core.stores.get(place) else {
                return false;
            };
            let (private, line, then) = (entry.private, entry.line, entry.then);
            if matches!(then, Then::Advance(_)) {
                let missing = core.stores.missing;
                core.stores.commit(place, tick);
                core.stores.missing = missing;
                self.follow_up(c, then, now, queue);
                return true;
            }
            let caches = &mut self.nodes[core.node as usize].caches;
            if !private && let Some(hit) = caches.write(core.place, line) {
                let missing = core.stores.missing;
                self.commit(c, place, hit.slot, tick, now, queue);
                self.cores[c].stores.missing = missing;
                return true;
            }
        }
        false
    }
}
