//! A core: how it goes on.
//!
//! A core that is woken runs ahead in local time, at most a quantum beyond the event that woke it, and without events as long
//! as its node's caches have what it wants. Everything that it does to values it does at once, in the order in which the
//! host comes to it, and that order is the one order of all accesses to shared memory, whatever the quantum is. What
//! the quantum moves is time: an access may come after another that is up to a quantum later by its own core's clock.
//!
//! In local time an instruction begins one tick after the one before, if it has a free entry of the reorder buffer
//! and of its queue. It retires, in order, when it is done. That makes x86-TSO:
//!
//! * values of loads are [bound](super::loads) in program order, each at one moment at which the node may read the
//!   line, or come from the core's own older stores;
//! * a store enters the store buffer when it retires, so when all older loads are bound, and the entries are
//!   [committed](super::stores) in order, each at one moment at which the core alone may write the line;
//! * what is to be [serialised](super::serial) (atomics, fences) begins when all before it is retired and committed, and
//!   nothing after it begins before it is done.

use std::collections::VecDeque;

use super::Cluster;
use super::event::Event;
use super::loads::LoadQueue;
use super::misses::Misses;
use super::reorder_buffer::{Group, Kind, ReorderBuffer};
use super::serial::Serial;
use super::statistics::CoreCounts;
use super::store_buffer::{ALL_BYTES, Retired, StoreBuffer};
use crate::description::{Coalescing, Description, Protocol};
use crate::engine::{EventQueue, Time};
use crate::line::LineAddress;
use crate::program::{Next, Op, Thread};

/// Whether a core has an event to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Activity {
    /// At this time it goes on.
    Sleeping(Time),
    /// It waits for somebody else's event.
    Parked,
    /// Its thread has ended, and all that it did is done.
    Finished,
}

/// The state of a core, but for its private caches.
#[derive(Clone, Debug)]
pub(super) struct Core {
    pub node: u16,
    /// Its number in its node.
    pub place: u8,
    pub activity: Activity,
    /// Its node recovers from others' death: it begins nothing.
    pub halted: bool,
    /// The local time: when the next instruction can begin.
    pub tick: u64,
    pub rob: ReorderBuffer,
    pub loads: LoadQueue,
    pub stores: StoreBuffer,
    pub misses: Misses,
    /// Something that must go on found no room for a miss.
    pub wants_room: bool,
    /// Lines that are to be fetched for stores as soon as there is room for a miss.
    pub prefetches: VecDeque<LineAddress>,
    /// At most so many: one for each store. (A capacity would not do, a clone has another.)
    pub most_prefetches: usize,
    /// What the thread wants next and cannot begin yet.
    pub held: Option<Op>,
    /// How far `held` is, if it is to be serialised.
    pub serial: Serial,
    /// The thread waits for a value.
    pub waits: bool,
    pub ended: bool,
    /// Retirement waits for room in the store buffer since then.
    pub stalled: Option<u64>,
    /// How many REPLs it has sent to the group of a line: the number of the next.
    pub repls: u32,
    pub counts: CoreCounts,
}

impl Core {
    pub fn new(description: &Description, node: u16, place: u8) -> Core {
        let (system, core) = (&description.system, &description.ours.core);
        let coalesces = core.coalescing == Coalescing::Lines
            && description.ours.coherence.protocol != Protocol::Uncoalesced;
        let (queue, buffer) = (system.store_queue as usize, core.store_buffer as usize);
        Core {
            node,
            place,
            activity: Activity::Parked,
            halted: false,
            tick: 0,
            rob: ReorderBuffer::new(core.reorder_buffer),
            loads: LoadQueue::new(system.load_queue as usize),
            stores: StoreBuffer::new(queue, buffer, coalesces),
            misses: Misses::new(core.l1_misses.min(core.l2_misses) as usize),
            wants_room: false,
            prefetches: VecDeque::with_capacity(queue + buffer),
            most_prefetches: queue + buffer,
            held: None,
            serial: Serial::default(),
            waits: false,
            ended: false,
            stalled: None,
            repls: 0,
            counts: CoreCounts::default(),
        }
    }

    /// Whether a load can begin.
    #[inline]
    pub fn has_room_for_load(&self) -> bool {
        self.rob.free() > 0 && !self.loads.is_full()
    }

    /// Whether a store can begin.
    #[inline]
    pub fn has_room_for_store(&self) -> bool {
        self.rob.free() > 0 && !self.stores.queue_is_full()
    }

    /// Whether all that has begun is retired and committed.
    pub fn is_drained(&self) -> bool {
        self.rob.is_empty() && self.stores.is_empty()
    }
}

impl<T: Thread> Cluster<T> {
    /// Lets a core go on from `now` until it has nothing to do, or has run ahead by a quantum.
    pub(super) fn run(&mut self, c: usize, now: Time, queue: &mut EventQueue<Event>) {
        if self.cores[c].halted {
            self.cores[c].activity = Activity::Parked;
            return;
        }
        let begin = self.timing.tick(now);
        let horizon = begin + self.timing.quantum;
        let core = &mut self.cores[c];
        core.tick = core.tick.max(begin);
        loop {
            let tick = self.cores[c].tick;
            if tick > horizon {
                let at = self.timing.time(tick);
                queue.schedule_at(at, Event::Wake(c as u16));
                self.cores[c].activity = Activity::Sleeping(at);
                return;
            }
            self.settle(c, now, queue);
            if self.dispatch(c, now, queue) {
                continue;
            }
            match self.next_known(c) {
                Some(next) => {
                    debug_assert!(next > tick, "core {c} stays at tick {tick}");
                    self.cores[c].tick = next;
                }
                None => {
                    let core = &mut self.cores[c];
                    core.activity = Activity::Parked;
                    if core.ended && core.is_drained() {
                        self.finish(c);
                    }
                    return;
                }
            }
        }
    }

    fn finish(&mut self, c: usize) {
        let core = &mut self.cores[c];
        core.activity = Activity::Finished;
        let end = core.rob.retired.max(core.stores.last_commit);
        core.counts.finished = self.timing.time(end);
        self.unfinished -= 1;
    }

    /// Asks for what there is room for, and retires and commits what is due by the core's local time.
    fn settle(&mut self, c: usize, now: Time, queue: &mut EventQueue<Event>) {
        if self.cores[c].wants_room {
            let tick = self.cores[c].tick;
            self.ask_for_more(c, tick, now, queue);
        }
        loop {
            let full = self.retire(c, now, queue);
            let committed = self.drain(c, now, queue);
            if !(full && committed) {
                return;
            }
        }
    }

    /// Retires what is due; whether a store waits for room in the store buffer.
    fn retire(&mut self, c: usize, now: Time, queue: &mut EventQueue<Event>) -> bool {
        while let Some((group, due)) = self.cores[c].rob.front() {
            let core = &mut self.cores[c];
            if due > core.tick {
                return false;
            }
            let mut at = due;
            match group.kind {
                Kind::Compute => {}
                Kind::Load => core.loads.retire(),
                Kind::Store => {
                    if let Some(since) = core.stalled {
                        at = at.max(core.stores.last_commit);
                        core.counts.buffer_full_ticks += at.saturating_sub(since);
                    }
                    let retired = core.stores.retire(at);
                    match retired {
                        Retired::NoRoom => {
                            if core.stalled.is_none() {
                                core.stalled = Some(due);
                                core.counts.buffer_full += 1;
                            } else {
                                // It still waits, and is counted up to now.
                                core.stalled = Some(at);
                            }
                            return true;
                        }
                        Retired::Joined { shared } => {
                            core.counts.coalesced += 1;
                            core.counts.shared_coalesced += u64::from(shared);
                        }
                        Retired::Entered => {}
                    }
                    core.stalled = None;
                    if self.oracle.is_some() {
                        self.judge_retired(c, retired == Retired::Entered, 1);
                    }
                    if retired == Retired::Entered && self.protocol.replicates() {
                        self.store_entered(c, at, now, queue);
                    }
                }
            }
            self.cores[c].rob.pop(at);
        }
        false
    }

    /// The next tick at which something is known to become possible.
    fn next_known(&mut self, c: usize) -> Option<u64> {
        let cycle = self.timing.cycle;
        let core = &mut self.cores[c];
        let mut next = u64::MAX;
        if let Some((_, due)) = core.rob.front()
            && core.stalled.is_none()
        {
            next = due;
        }
        if let Some(due) = core.stores.due(cycle) {
            next = next.min(due);
        }
        if let Some(due) = core.loads.next_delivery() {
            next = next.min(due);
        }
        if core.wants_room
            && let Some(end) = core.misses.next_end()
        {
            next = next.min(end.max(core.tick + 1));
        }
        (next != u64::MAX).then_some(next)
    }

    /// Begins the thread's next instruction; `false` if it has none, or none that can begin.
    fn dispatch(&mut self, c: usize, now: Time, queue: &mut EventQueue<Event>) -> bool {
        let (core, thread) = (&mut self.cores[c], &mut self.threads[c]);
        while let Some(value) = core.loads.deliver(core.tick) {
            thread.deliver(value);
            core.waits = false;
        }
        let op = match core.held.take() {
            Some(op) => op,
            None if core.waits || core.ended => return false,
            None => match thread.next() {
                Next::Op(op) => op,
                Next::Waits => {
                    core.waits = true;
                    return false;
                }
                Next::Ended => {
                    core.ended = true;
                    return false;
                }
            },
        };
        let begun = match op {
            Op::Compute(0) | Op::Acquire(_) | Op::Release(_) => true,
            Op::Compute(count) => return self.compute(c, count),
            Op::Load(word) => self.load(c, word, now, queue),
            Op::Store(word, value) => self.store(c, word, value, ALL_BYTES, now, queue),
            Op::StorePart(word, value, bytes) => self.store(c, word, value, bytes, now, queue),
            Op::PrivateLoad(address) => self.private_load(c, address, now, queue),
            Op::PrivateStore(address) => self.private_store(c, address, now, queue),
            Op::Unlock(lock) => self.unlock(c, lock, now, queue),
            Op::Await(count, wanted) => self.await_count(c, count, wanted),
            Op::Advance(count) => self.advance(c, count),
            Op::Atomic(..)
            | Op::Fence
            | Op::Lock(_)
            | Op::Barrier(_)
            | Op::Wait(..)
            | Op::Signal(_)
            | Op::Broadcast(_) => return self.serialise(c, op, now, queue),
        };
        if !begun {
            self.cores[c].held = Some(op);
        }
        begun
    }

    fn compute(&mut self, c: usize, count: u32) -> bool {
        let cycle = self.timing.cycle;
        let core = &mut self.cores[c];
        // Not a few at a time while older ones retire: that would be many groups for nothing.
        let free = core.rob.free();
        if free < count.min(core.rob.size().div_ceil(4)) {
            core.held = Some(Op::Compute(count));
            return false;
        }
        let begun = count.min(free);
        core.rob.push(Group {
            done: core.tick + u64::from(begun) + cycle,
            count: begun,
            kind: Kind::Compute,
        });
        core.tick += u64::from(begun);
        core.counts.instructions += u64::from(begun);
        core.held = (begun < count).then(|| Op::Compute(count - begun));
        true
    }

    /// One more instruction of a kind has begun, done at this tick.
    #[inline]
    pub(super) fn begin(&mut self, c: usize, kind: Kind, done: u64) {
        let core = &mut self.cores[c];
        core.rob.push(Group {
            done,
            count: 1,
            kind,
        });
        core.tick += 1;
        core.counts.instructions += 1;
    }
}
