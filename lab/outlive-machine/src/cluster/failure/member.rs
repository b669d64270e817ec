//! What a compute node does in a recovery: it halts, starts over, and goes on.
//!
//! A node that is halted only answers. Its agents and its logging unit do so as ever; its cores begin nothing, commit nothing
//! and ask for nothing. What they waited for is forgotten, and when they go on, they ask for what they still need.

use crate::cluster::caches::NOBODY;
use crate::cluster::core::Activity;
use crate::cluster::event::Event;
use crate::cluster::{Breakage, Cluster};
use crate::engine::{EventQueue, Time};
use crate::program::Thread;
use crate::protocol::{NodeId, StoreInput};

impl<T: Thread> Cluster<T> {
    /// The cores of a node that have threads.
    pub(super) fn cores_of(&self, n: usize) -> std::ops::Range<usize> {
        let first = n * self.cores_per_node;
        first.min(self.cores.len())..(first + self.cores_per_node).min(self.cores.len())
    }

    /// Interrupt: the cores halt. What they hold back for a store that waits for its replicas goes, since one of them may be dead
    /// and somebody who is awaited may want it.
    pub(super) fn halt(&mut self, n: usize, now: Time, queue: &mut EventQueue<Event>) {
        for c in self.cores_of(n) {
            self.cores[c].halted = true;
        }
        if !self.protocol.replicates() || self.broken == Some(Breakage::KeepsPins) {
            // What is written through waits for a memory node, and those do not fail.
            return;
        }
        for c in self.cores_of(n) {
            let core = &mut self.cores[c];
            let Some(head) = core.stores.front_mut() else {
                continue;
            };
            let (line, pinned) = (head.line, head.pinned_at.take());
            if pinned.is_none() {
                continue;
            }
            if core.serial.is_committing() && self.broken != Some(Breakage::KeepsAtomics) {
                // What it stores depends on what it has read, and that will not be true any more.
                core.stores.withdraw();
                core.serial.start_over(core.held);
                if let Some(oracle) = &mut self.oracle {
                    oracle.withdrawn(c);
                }
            } else if self.broken == Some(Breakage::DropsAStore) {
                let last_commit = core.stores.last_commit;
                core.stores.commit(0, last_commit);
            } else {
                self.tell_halted(c, 0, StoreInput::Lost, now);
            }
            if let Some(slot) = self.nodes[n].caches.find(line) {
                debug_assert_ne!(self.nodes[n].caches.held(slot).pinned, NOBODY);
                self.unpin(n, slot, now, queue);
            }
        }
    }

    /// Stores that have not committed start over: all units forget them, and nothing that they have sent is under way.
    pub(super) fn start_over(&mut self, n: usize, now: Time) {
        if !self.protocol.replicates() || self.broken == Some(Breakage::DoesNotStartOver) {
            return;
        }
        for c in self.cores_of(n) {
            for place in 0..self.cores[c].stores.len() {
                self.tell_halted(c, place, StoreInput::Restart, now);
            }
        }
    }

    /// Tells a store of a halted core something that makes it want nothing.
    fn tell_halted(&mut self, c: usize, place: usize, input: StoreInput, now: Time) {
        let Some(entry) = self.cores[c]
            .stores
            .get_mut(place)
            .filter(|entry| !entry.private)
        else {
            return;
        };
        match self.stores.step(&entry.replication, input) {
            Ok(step) => {
                debug_assert_eq!(step.actions().count(), 0);
                entry.replication = step.store;
            }
            Err(error) => panic!("core {c}, {}, at {now}: {error}", entry.line),
        }
    }

    /// The cores go on.
    pub(super) fn go_on_with(&mut self, n: usize, now: Time, queue: &mut EventQueue<Event>) {
        let tick = self.timing.tick(now);
        for c in self.cores_of(n) {
            let core = &mut self.cores[c];
            if !std::mem::take(&mut core.halted) || core.activity == Activity::Finished {
                continue;
            }
            core.stores.missing = false;
            core.wants_room = true;
            self.bind_loads(c, tick, now, queue);
            self.replicate_again(c, tick, now, queue);
            let wakes = self.broken != Some(Breakage::LeavesCoresAsleep);
            if self.cores[c].activity == Activity::Parked && wakes {
                self.cores[c].activity = Activity::Sleeping(now);
                queue.schedule_at(now, Event::Wake(c as u16));
            }
        }
    }

    /// Replicates what would have been replicated by now.
    fn replicate_again(&mut self, c: usize, tick: u64, now: Time, queue: &mut EventQueue<Event>) {
        for place in 0..self.due(c) {
            self.replicate(c, place, tick, now, queue);
        }
    }

    /// A node has died: what it has is gone.
    pub(super) fn lose_node(&mut self, node: NodeId) {
        let n = node.index();
        self.nodes[n].clear();
        for c in self.cores_of(n) {
            let core = &mut self.cores[c];
            match core.activity {
                // All that it has stored is committed: a barrier that it has come to last is open.
                Activity::Finished => self.objects.had_ended(c as u16),
                _ => {
                    core.activity = Activity::Finished;
                    self.unfinished -= 1;
                    self.objects.has_died();
                }
            }
            core.held = None;
            core.ended = true;
            core.misses.clear();
            core.stores.clear();
            if let Some(oracle) = &mut self.oracle {
                oracle.owes_nothing(c);
            }
        }
    }
}
