//! A compute node's actions in a recovery: it halts, starts over, and continues.
//!
//! A halted node only answers. Its agents and its logging unit do so as usual; its cores begin
//! nothing, commit nothing and request nothing. The requests that they waited for are forgotten,
//! and when they continue, they request again the lines that they still need.

use crate::cluster::caches::NOBODY;
use crate::cluster::core::Activity;
use crate::cluster::event::Event;
use crate::cluster::{Breakage, Cluster};
use crate::engine::{EventQueue, Time};
use crate::program::Thread;
use crate::protocol::{NodeId, StoreInput};

impl<T: Thread> Cluster<T> {
    /// Returns the cores of a node that have threads.
    pub(super) fn cores_of(&self, n: usize) -> std::ops::Range<usize> {
        let first = n * self.cores_per_node;
        first.min(self.cores.len())..(first + self.cores_per_node).min(self.cores.len())
    }

    /// Handles Interrupt: the cores halt. A line that is pinned for a store that waits for its
    /// replicas is released, since a replica may be dead, and a node whose answer is awaited may
    /// need the line.
    pub(super) fn halt(&mut self, n: usize, now: Time, queue: &mut EventQueue<Event>) {
        for c in self.cores_of(n) {
            self.cores[c].halted = true;
        }
        if !self.protocol.replicates() || self.broken == Some(Breakage::KeepsPins) {
            // A write-through waits for a memory node, and memory nodes do not fail.
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
                // The value that it stores depends on the value that it read, which gets outdated.
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

    /// Restarts the stores that have not committed. All units forget them, and no message of theirs
    /// is under way.
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

    /// Notifies a store of a halted core of an input that must cause no action.
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

    /// Lets the cores continue.
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

    /// Replicates the stores whose replication is due by now.
    fn replicate_again(&mut self, c: usize, tick: u64, now: Time, queue: &mut EventQueue<Event>) {
        for place in 0..self.due(c) {
            self.replicate(c, place, tick, now, queue);
        }
    }

    /// Drops the state of a node that has died.
    pub(super) fn lose_node(&mut self, node: NodeId) {
        let n = node.index();
        self.nodes[n].clear();
        for c in self.cores_of(n) {
            let core = &mut self.cores[c];
            match core.activity {
                // All its stores are committed: a barrier at which it arrived last is open.
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
