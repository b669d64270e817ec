//! The execution of a core.
//!
//! A core that is woken runs ahead in local time, at most a quantum beyond the event that woke it,
//! and without events as long as its node's caches have the lines that it needs. All its actions on
//! values take effect at once, in the order in which the host simulates them. That order is the one
//! order of all accesses to shared memory, whatever the quantum is. The quantum shifts only time:
//! an access may come after another that is up to a quantum later by its own core's clock.
//!
//! In local time an instruction begins one tick after the one before, if it has a free entry of the
//! reorder buffer and of its queue. It retires, in order, when it is done. This results in x86-TSO:
//!
//! * values of loads are [bound](super::loads) in program order, each at one moment at which the
//!   node may read the line, or come from the core's own older stores;
//! * a store enters the store buffer when it retires, so when all older loads are bound, and the
//!   entries are [committed](super::stores) in order, each at one moment at which only this core
//!   may write the line;
//! * a [serialised](super::serialised) operation (an atomic or a fence) begins when all
//!   instructions before it are retired and committed, and nothing after it begins before it is
//!   done.

use std::collections::VecDeque;

use super::Cluster;
use super::event::Event;
use super::loads::LoadQueue;
use super::misses::Misses;
use super::reorder_buffer::{Group, Kind, ReorderBuffer};
use super::serialised::Serial;
use super::statistics::CoreCounts;
use super::store_buffer::{ALL_BYTES, Retired, StoreBuffer};
use crate::description::{Coalescing, Description, Protocol};
use crate::engine::{EventQueue, Time};
use crate::line::LineAddress;
use crate::program::{Next, Op, Thread};

/// Whether an event will continue a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Activity {
    /// It continues at this time.
    Sleeping(Time),
    /// It waits for an event that another part causes.
    Parked,
    /// Its thread has ended, and all its actions are done.
    Finished,
}

/// The state of a core, without its private caches.
#[derive(Clone, Debug)]
pub(super) struct Core {
    pub node: u16,
    /// Its number in its node.
    pub place: u8,
    pub activity: Activity,
    /// Its node takes part in the recovery from a death: the core begins nothing.
    pub halted: bool,
    /// The local time: when the next instruction can begin.
    pub tick: u64,
    pub rob: ReorderBuffer,
    pub loads: LoadQueue,
    pub stores: StoreBuffer,
    pub misses: Misses,
    /// A request that must be made found no free miss entry.
    pub wants_room: bool,
    /// Lines to be fetched for stores as soon as a miss entry is free.
    pub prefetches: VecDeque<LineAddress>,
    /// The maximum number of `prefetches`, one per store. (A clone has another capacity.)
    pub most_prefetches: usize,
    /// The thread's next operation, which cannot begin yet.
    pub held: Option<Op>,
    /// The progress of `held`, if it is serialised.
    pub serial: Serial,
    /// The thread waits for a value.
    pub waits: bool,
    pub ended: bool,
    /// The tick since which retirement waits for a free entry of the store buffer.
    pub stalled: Option<u64>,
    /// The number of REPLs that it has sent, which numbers the next.
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

    /// Returns whether a load can begin.
    #[inline]
    pub fn has_room_for_load(&self) -> bool {
        self.rob.free() > 0 && !self.loads.is_full()
    }

    /// Returns whether a store can begin.
    #[inline]
    pub fn has_room_for_store(&self) -> bool {
        self.rob.free() > 0 && !self.stores.queue_is_full()
    }

    /// Returns whether all that has begun is retired and committed.
    pub fn is_drained(&self) -> bool {
        self.rob.is_empty() && self.stores.is_empty()
    }
}

impl<T: Thread> Cluster<T> {
    /// Runs a core from `now` until it has nothing to do, or has run ahead by a quantum.
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

    /// Makes requests for which miss entries are free, and retires and commits the operations that
    /// are due by the core's local time.
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

    /// Retires the groups that are due. Returns whether a store waits for the store buffer.
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

    /// Returns the next tick at which an action is known to become possible.
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

    /// Begins the thread's next instruction. Returns `false` if none exists or none can begin.
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
        // Small pieces while older ones retire would make many groups for no benefit.
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

    /// Begins one instruction of a kind, which is done at tick `done`.
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
