//! Loads: their accesses overlap, and their values are bound in program order.
//!
//! A load requests its line as soon as it begins. It is *bound* when all older loads are, at a
//! moment at which the line is readable in the node; if the line came and went before, it is
//! requested again. A bound value is delivered to the thread at the tick at which it is available
//! by the local time.

use std::collections::VecDeque;

use super::event::Event;
use super::misses::PENDING;
use super::reorder_buffer::Kind;
use super::{Breakage, Cluster};
use crate::engine::{EventQueue, Time};
use crate::program::{Thread, Word};

/// A load that has begun and is not bound.
#[derive(Clone, Copy, Debug)]
struct Unbound {
    word: Word,
    /// Its group in the reorder buffer.
    number: u64,
    /// The tick from which its line was available in the node, or at which it began.
    ready: u64,
    /// Its line has been there or was requested.
    asked: bool,
    /// The value that a broken machine bound before that of an older load.
    early: Option<u64>,
}

/// The load queue of a core.
#[derive(Clone, Debug)]
pub(super) struct LoadQueue {
    size: usize,
    /// The number of loads that have begun and not retired.
    held: usize,
    unbound: VecDeque<Unbound>,
    /// The number of unbound loads whose lines are not requested.
    unasked: usize,
    /// Counted over all loads that began unbound: the number of loads before the first whose line
    /// may not be requested, and the number of loads that are bound.
    first_unasked: u64,
    taken: u64,
    /// Values that have not been delivered, and the ticks at which they are available.
    bound: VecDeque<(u64, u64)>,
}

impl LoadQueue {
    pub fn new(size: usize) -> LoadQueue {
        LoadQueue {
            size,
            held: 0,
            unbound: VecDeque::with_capacity(size),
            unasked: 0,
            first_unasked: 0,
            taken: 0,
            bound: VecDeque::with_capacity(2 * size),
        }
    }

    pub fn is_full(&self) -> bool {
        self.held == self.size
    }

    pub fn hold(&mut self) {
        self.held += 1;
    }

    pub fn retire(&mut self) {
        self.held -= 1;
    }

    pub fn unasked(&self) -> usize {
        self.unasked
    }

    /// Queues a value for the thread, which is available at tick `done`.
    pub fn bind(&mut self, value: u64, done: u64) {
        self.bound.push_back((value, done));
    }

    /// Removes and returns the next value, if it is available by `tick`.
    #[inline]
    pub fn deliver(&mut self, tick: u64) -> Option<u64> {
        let (value, done) = *self.bound.front()?;
        if done > tick {
            return None;
        }
        self.bound.pop_front();
        Some(value)
    }

    pub fn next_delivery(&self) -> Option<u64> {
        self.bound.front().map(|(_, done)| *done)
    }
}

impl<T: Thread> Cluster<T> {
    pub(super) fn load(
        &mut self,
        c: usize,
        word: Word,
        now: Time,
        queue: &mut EventQueue<Event>,
    ) -> bool {
        self.check_word(word);
        let core = &mut self.cores[c];
        if !core.has_room_for_load() {
            return false;
        }
        core.loads.hold();
        core.counts.loads += 1;
        core.counts.shared_loads += 1;
        let (tick, number) = (core.tick, core.rob.next());
        let in_order = core.loads.unbound.is_empty();
        let early = self.broken == Some(Breakage::LoadsBoundOutOfOrder);
        if (in_order || early)
            && let Some((value, done)) = self.access(c, word, number, tick)
        {
            if in_order {
                self.cores[c].loads.bind(value, done);
                self.begin(c, Kind::Load, done);
            } else {
                self.cores[c].loads.unbound.push_back(Unbound {
                    word,
                    number,
                    ready: done,
                    asked: true,
                    early: Some(value),
                });
                self.begin(c, Kind::Load, PENDING);
            }
            return true;
        }
        self.begin(c, Kind::Load, PENDING);
        let mut ready = tick;
        let mut asked = true;
        let core = &mut self.cores[c];
        if core.stores.forward(word, number).is_some() {
            ready += self.timing.l1;
        } else if let Some(hit) = self.nodes[core.node as usize]
            .caches
            .read(core.place, word.line())
        {
            ready += self.timing.of(hit.level);
            core.counts.hit(hit.level);
        } else {
            asked = self.ask(c, word.line(), false, tick, now, queue);
        }
        let loads = &mut self.cores[c].loads;
        loads.unasked += usize::from(!asked);
        loads.unbound.push_back(Unbound {
            word,
            number,
            ready,
            asked,
            early: None,
        });
        true
    }

    /// Reads a word at `tick`. Returns its value and the tick at which it is available, or `None`
    /// if the node cannot read it.
    fn access(&mut self, c: usize, word: Word, number: u64, tick: u64) -> Option<(u64, u64)> {
        let core = &mut self.cores[c];
        if let Some(value) = core.stores.forward(word, number) {
            core.counts.forwarded += 1;
            self.judge_forwarded(c, word, number, value);
            return Some((value, tick + self.timing.l1));
        }
        let caches = &mut self.nodes[core.node as usize].caches;
        let hit = caches.read(core.place, word.line())?;
        let value = caches.line(hit.slot)[word.place()];
        core.counts.hit(hit.level);
        self.judge_bound(c, word, number, value);
        Some((value, tick + self.timing.of(hit.level)))
    }

    /// Binds loads at `tick`, oldest first, up to the first that must wait.
    pub(super) fn bind_loads(
        &mut self,
        c: usize,
        tick: u64,
        now: Time,
        queue: &mut EventQueue<Event>,
    ) {
        if self.broken == Some(Breakage::LoadsBoundOutOfOrder) {
            self.bind_early(c, tick);
        }
        let forwards = self.broken != Some(Breakage::ForwardsNothing);
        while let Some(&load) = self.cores[c].loads.unbound.front() {
            let core = &mut self.cores[c];
            let caches = &mut self.nodes[core.node as usize].caches;
            let value = if let Some(value) = load.early {
                value
            } else if forwards && let Some(value) = core.stores.forward(load.word, load.number) {
                core.counts.forwarded += 1;
                self.judge_forwarded(c, load.word, load.number, value);
                value
            } else if let Some(hit) = caches.read(core.place, load.word.line()) {
                let value = caches.line(hit.slot)[load.word.place()];
                self.judge_bound(c, load.word, load.number, value);
                value
            } else {
                // The line has not come yet, or is gone again.
                let asked = self.ask(c, load.word.line(), false, tick, now, queue);
                let loads = &mut self.cores[c].loads;
                loads.unasked += usize::from(load.asked) * usize::from(!asked);
                loads.unasked -= usize::from(!load.asked) * usize::from(asked);
                loads.unbound[0].asked = asked;
                if !asked {
                    loads.first_unasked = loads.taken;
                }
                return;
            };
            let done = load.ready.max(tick);
            let core = &mut self.cores[c];
            core.loads.unasked -= usize::from(!load.asked);
            core.loads.unbound.pop_front();
            core.loads.taken += 1;
            core.loads.bind(value, done);
            core.rob.finish(load.number, done);
        }
    }

    /// Binds all readable loads, in any order: a deliberate fault.
    fn bind_early(&mut self, c: usize, tick: u64) {
        for place in 0..self.cores[c].loads.unbound.len() {
            let load = self.cores[c].loads.unbound[place];
            if load.early.is_none()
                && let Some((value, _)) = self.access(c, load.word, load.number, tick)
            {
                self.cores[c].loads.unbound[place].early = Some(value);
            }
        }
    }

    /// Requests the lines of loads that found no free miss entry.
    pub(super) fn ask_for_loads(
        &mut self,
        c: usize,
        tick: u64,
        now: Time,
        queue: &mut EventQueue<Event>,
    ) {
        let loads = &mut self.cores[c].loads;
        loads.first_unasked = loads.first_unasked.max(loads.taken);
        let mut place = (loads.first_unasked - loads.taken) as usize;
        while self.cores[c].loads.unasked > 0 && place < self.cores[c].loads.unbound.len() {
            let load = self.cores[c].loads.unbound[place];
            if !load.asked {
                let core = &self.cores[c];
                let caches = &mut self.nodes[core.node as usize].caches;
                let ready = match caches.read(core.place, load.word.line()) {
                    Some(hit) => tick + self.timing.of(hit.level),
                    None if self.ask(c, load.word.line(), false, tick, now, queue) => load.ready,
                    None => return,
                };
                let loads = &mut self.cores[c].loads;
                loads.unbound[place].asked = true;
                loads.unbound[place].ready = ready;
                loads.unasked -= 1;
            }
            place += 1;
            self.cores[c].loads.first_unasked += 1;
        }
        // The oldest may have been found in the node.
        self.bind_loads(c, tick, now, queue);
    }
}
