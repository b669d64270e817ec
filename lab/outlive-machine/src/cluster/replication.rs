//! The requester's side of replication: when a store is replicated, and when it is committed.
//!
//! The state of a store is at its entry of the store buffer, and each step of it is one of the
//! [protocol's table](crate::protocol::STORE). The configurations differ only in when a store gets
//! its `Replicate` input:
//!
//! * baseline: when it is the oldest and its node may write the line;
//! * parallel: when it is the oldest;
//! * proactive: when the next store has entered the buffer and has not joined it, or when it is the
//!   oldest. After that nothing joins it. A serialised operation counts as the next store when its
//!   core comes to it, since it waits for all stores.
//! * without coalescing: when it enters the buffer.
//! * adaptive: when it enters the buffer and finds few before it; else as proactive. The operation
//!   that takes a lock is a store like any other.
//!
//! From the moment at which the oldest store may write its line until its last replica has
//! answered, the line is *pinned*: demands wait in the node. (The paper does not specify this. The
//! table would also allow releasing the line and requesting it again.) No demand waits for ever,
//! since logging units answer independently of the state of any line.
//!
//! VALs leave at the moment of the commit, in the order in which the host simulates commits, which
//! is the order in which other nodes may see them. In the core's local time that may be up to a
//! quantum later; but if VALs left then, a node that died in between would have shown a store to
//! others and taken its VALs with it.
//!
//! The write of an atomic is the oldest store from the beginning, on a line that may be written; so
//! it is replicated at once, and its line is pinned until it is committed.

use super::core::Activity;
use super::event::Event;
use super::packet::Says;
use super::store_buffer::Entry;
use super::{Breakage, Cluster};
use crate::description::{Protocol, Synchronising};
use crate::engine::{EventQueue, Time};
use crate::line::LineAddress;
use crate::logging::{Commit, Epoch, Repl, ReplAck, Requester, Val};
use crate::parts::Slot;
use crate::program::Thread;
use crate::protocol::{NodeId, NodeSet, StoreAction, StoreInput};

impl<T: Thread> Cluster<T> {
    /// Called when a store has entered the store buffer as an entry of its own, at this tick.
    pub(super) fn store_entered(
        &mut self,
        c: usize,
        at: u64,
        now: Time,
        queue: &mut EventQueue<Event>,
    ) {
        let last = self.cores[c].stores.len() - 1;
        // All entries before these two became due when they entered.
        for place in last.saturating_sub(1)..self.due(c) {
            self.replicate(c, place, at, now, queue);
        }
    }

    /// Returns the number of entries of a core, from the oldest, that must be replicated by now,
    /// without regard to lines.
    pub(super) fn due(&self, c: usize) -> usize {
        let core = &self.cores[c];
        let (length, oldest) = (core.stores.len(), core.stores.len().min(1));
        let complete = length.saturating_sub(1).max(oldest);
        match self.protocol {
            Protocol::WriteBack | Protocol::WriteThrough | Protocol::Baseline => 0,
            Protocol::Parallel => oldest,
            _ if !core.stores.coalesces() || self.waits_for_stores(c) => length,
            Protocol::Adaptive if length <= self.eager_stores => length,
            Protocol::Proactive | Protocol::Uncoalesced | Protocol::Adaptive => complete,
        }
    }

    /// Called when a core has come to a serialised operation, so no store follows: replicates the
    /// last entry if it is due by this tick.
    pub(super) fn no_store_follows(
        &mut self,
        c: usize,
        at: u64,
        now: Time,
        queue: &mut EventQueue<Event>,
    ) {
        if let Some(last) = self.cores[c].stores.len().checked_sub(1)
            && last < self.due(c)
        {
            self.replicate(c, last, at, now, queue);
        }
    }

    /// Called when another store may be the oldest from this tick on.
    pub(super) fn store_is_oldest(
        &mut self,
        c: usize,
        at: u64,
        now: Time,
        queue: &mut EventQueue<Event>,
    ) {
        if self.protocol.replicates()
            && self.protocol != Protocol::Baseline
            && let Some(head) = self.cores[c].stores.front()
        {
            let at = at.max(head.entered);
            self.replicate(c, 0, at, now, queue);
        }
    }

    /// Returns whether other nodes log an entry.
    pub(super) fn is_replicated(&self, entry: &Entry) -> bool {
        let left_out =
            self.synchronisation == Synchronising::LeftOut && entry.then.is_of_synchronisation();
        self.protocol.replicates() && !entry.private && !left_out
    }

    /// Returns whether a core can begin nothing before all its stores are committed.
    fn waits_for_stores(&self, c: usize) -> bool {
        let core = &self.cores[c];
        core.rob.is_empty() && core.serial.is_begun()
    }

    /// Replicates an entry, unless that has been done or it is private. If that commits the entry,
    /// returns the tick.
    pub(super) fn replicate(
        &mut self,
        c: usize,
        place: usize,
        at: u64,
        now: Time,
        queue: &mut EventQueue<Event>,
    ) -> Option<u64> {
        let entry = self.cores[c].stores.get(place)?;
        if !self.is_replicated(entry) || entry.replication.is_sealed() {
            return None;
        }
        let line = entry.line;
        let core = &mut self.cores[c];
        let node = NodeId::new(core.node as usize);
        let sequence = core.repls;
        core.repls = core.repls.wrapping_add(1);
        core.stores.replicate(place, sequence);
        core.counts.replicated += 1;
        core.counts.replicated_oldest += u64::from(place == 0);
        let replicas = self.logs_mut().groups.replicas(line, node);
        let input = StoreInput::Replicate { sequence, replicas };
        self.step_store(c, place, input, at, now, queue)
    }

    /// Called at a tick at which the oldest entry is of a line that the node may not write.
    pub(super) fn line_is_missing(
        &mut self,
        c: usize,
        at: u64,
        now: Time,
        queue: &mut EventQueue<Event>,
    ) {
        if !self.head_is_told(c) {
            let input = StoreInput::Head { writable: false };
            self.step_store(c, 0, input, at, now, queue);
        }
        self.step_store(c, 0, StoreInput::Idle, at, now, queue);
    }

    /// Called at a tick at which the oldest entry is of a line that the node may write. Returns
    /// whether it is committed now.
    pub(super) fn line_is_here(
        &mut self,
        c: usize,
        slot: Slot,
        at: u64,
        now: Time,
        queue: &mut EventQueue<Event>,
    ) -> bool {
        let input = match self.head_is_told(c) {
            true => StoreInput::Gained,
            false => StoreInput::Head { writable: true },
        };
        // With an empty group it would be committed at once; but a group has a living unit, if only
        // the node's own.
        let committed = self.step_store(c, 0, input, at, now, queue);
        if let Some(at) = committed.or_else(|| self.replicate(c, 0, at, now, queue)) {
            self.store_is_oldest(c, at, now, queue);
            return true;
        }
        self.pin(c, slot, at);
        false
    }

    /// Returns whether the oldest entry has got its `Head` input.
    fn head_is_told(&self, c: usize) -> bool {
        let head = self.cores[c].stores.front();
        head.is_some_and(|head| head.replication.state().is_head())
    }

    /// Handles a replica's answer.
    pub(super) fn acknowledged(&mut self, ack: &ReplAck, now: Time, queue: &mut EventQueue<Event>) {
        let ReplAck {
            from,
            requester,
            sequence,
        } = *ack;
        let n = requester.node.index();
        let c = n * self.cores_per_node + usize::from(requester.core);
        let early = self.broken == Some(Breakage::CommitsBeforeLastAck);
        let Some(place) = self.cores[c].stores.replicated_as(sequence) else {
            // An interrupted atomic is undone.
            assert!(
                early || self.cores[c].halted,
                "{requester} has no store of REPL {sequence}"
            );
            return;
        };
        let Some(entry) = self.cores[c].stores.get(place) else {
            return;
        };
        let (line, pinned_at) = (entry.line, entry.pinned_at);
        let answers = match early {
            true => entry.replication.awaited(),
            false => NodeSet::only(from),
        };
        let slot = pinned_at.and_then(|_| self.nodes[n].caches.find(line));
        let at = self.timing.tick(now).max(pinned_at.unwrap_or(0));
        let mut committed = None;
        for from in answers.iter() {
            let input = StoreInput::Ack { from, sequence };
            committed = self.step_store(c, place, input, at, now, queue);
        }
        let Some(at) = committed else {
            return;
        };
        self.cores[c].counts.replica_ticks += at - pinned_at.unwrap_or(at);
        self.store_is_oldest(c, at, now, queue);
        if let Some(slot) = slot {
            self.unpin(n, slot, now, queue);
        }
        self.after_commit(c, now, queue);
    }

    /// Called when an event has committed a store of a core: the core does what it can do now.
    pub(super) fn after_commit(&mut self, c: usize, now: Time, queue: &mut EventQueue<Event>) {
        match self.cores[c].activity {
            _ if self.cores[c].halted => {}
            Activity::Parked => self.run(c, now, queue),
            // It has run ahead and is woken later, but the next store need not wait for that.
            Activity::Sleeping(_) => {
                self.drain(c, now, queue);
            }
            Activity::Finished => {}
        }
    }

    /// Takes a line that is pinned for a core's store, or has just been found, from the other cores
    /// of the node, which may have read it since. Returns its place, and the number of ticks that
    /// this takes longer than if only the core has it. `None` if the node may not write it.
    pub(super) fn taken_again(&mut self, c: usize, line: LineAddress) -> Option<(Slot, u64)> {
        let core = &self.cores[c];
        let caches = &mut self.nodes[core.node as usize].caches;
        let hit = caches.write(core.place, line)?;
        Some((hit.slot, self.timing.of(hit.level) - self.timing.l1))
    }

    /// Gives an entry an input at this tick and executes its actions. If the entry is committed,
    /// returns the tick.
    fn step_store(
        &mut self,
        c: usize,
        place: usize,
        input: StoreInput,
        mut at: u64,
        now: Time,
        queue: &mut EventQueue<Event>,
    ) -> Option<u64> {
        let entry = self.cores[c].stores.get_mut(place)?;
        let step = match self.stores.step(&entry.replication, input) {
            Ok(step) => step,
            Err(error) => panic!("core {c}, {}, at {now}: {error}", entry.line),
        };
        entry.replication = step.store;
        entry.sealed |= step.store.is_sealed();
        let entry = *entry;
        let mut commit = None;
        for action in step.actions() {
            match action {
                StoreAction::Repl(to) => self.send_repls(c, &entry, to, at, now, queue),
                StoreAction::Ask => {
                    self.ask(c, entry.line, true, at, now, queue);
                }
                StoreAction::Commit => {
                    let (slot, waited) = self
                        .taken_again(c, entry.line)
                        .expect("it is committed on a line that may be written");
                    at += waited;
                    let n = self.cores[c].node as usize;
                    let epoch = self.nodes[n].caches.held(slot).epoch;
                    let number = self.logs_mut().numbering[n].commit();
                    if self.oracle.is_some() {
                        self.judge_replicas(c, &entry, number, epoch);
                    }
                    self.commit(c, place, slot, at, now, queue);
                    commit = Some((number, epoch));
                }
                StoreAction::Val(to) => {
                    let (number, epoch) = commit.expect("a store is committed, and then validated");
                    self.send_vals(c, &entry, to, (number, epoch), at, now, queue);
                }
            }
        }
        if commit.is_some() {
            self.judge_sent(self.cores[c].node as usize);
        }
        commit.map(|_| at)
    }

    pub(super) fn requester(&self, c: usize) -> Requester {
        let core = &self.cores[c];
        Requester {
            node: NodeId::new(core.node as usize),
            core: core.place,
        }
    }

    fn send_repls(
        &mut self,
        c: usize,
        entry: &Entry,
        to: NodeSet,
        at: u64,
        now: Time,
        queue: &mut EventQueue<Event>,
    ) {
        let requester = self.requester(c);
        let repl = Repl {
            requester,
            sequence: entry.replication.sequence().unwrap_or_default(),
            line: entry.line,
            mask: entry.words,
            values: entry.values,
        };
        // A REPL takes the path of a miss to the port of its node. (VALs leave at once, since no
        // store waits for them.)
        let (at, from) = (
            self.timing.time(at + self.timing.l3).max(now),
            self.compute_port(requester.node),
        );
        for node in to.iter() {
            let ways = (from, self.compute_port(node));
            self.say(at, ways, Says::Repl(repl), queue);
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn send_vals(
        &mut self,
        c: usize,
        entry: &Entry,
        to: NodeSet,
        (commit, epoch): (Commit, Epoch),
        at: u64,
        now: Time,
        queue: &mut EventQueue<Event>,
    ) {
        let requester = self.requester(c);
        let late = self.broken == Some(Breakage::ValsLeaveLate);
        let last = to.iter().last();
        for node in to.iter() {
            if self.broken == Some(Breakage::ForgetsVal) && Some(node) == last {
                continue;
            }
            let numbering = &mut self.logs_mut().numbering[requester.node.index()];
            let val = Val {
                requester,
                sequence: entry.replication.sequence().unwrap_or_default(),
                timestamp: numbering.timestamp(node),
                commit,
                epoch,
            };
            let ways = (self.compute_port(requester.node), self.compute_port(node));
            let line: LineAddress = entry.line;
            if let Some(oracle) = &mut self.oracle {
                oracle.owes_val(requester.node);
            }
            match late {
                true => {
                    let at = self.timing.time(at).max(now);
                    self.say(at, ways, Says::Val { line, val }, queue);
                }
                false => self.say_at_once(ways, Says::Val { line, val }, now, queue),
            }
        }
    }
}
