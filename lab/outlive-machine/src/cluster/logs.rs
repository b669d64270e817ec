//! The logging units, the logs in the memory nodes, and the rounds in which the units dump to the
//! memory nodes.
//!
//! [`logging`](crate::logging) describes the behaviour of each part. This module notifies the parts
//! of arriving messages and sends their answers. A unit that is in a line's group and in the
//! requester's own node is notified without a link in between. A unit saves in the memory node of
//! its own number, modulo the number of memory nodes; the first memory node leads the rounds.
//! `truncation.rs` describes when an archive is truncated.

use super::event::Event;
use super::packet::Says;
use super::truncation::Truncation;
use super::{Breakage, Cluster};
use crate::description::Description;
use crate::engine::{EventQueue, Time};
use crate::line::LineAddress;
use crate::logging::{
    Advance, Archive, Begin, Begun, Clear, DumpBarrier, LoggingError, LoggingUnit, Numbering, Repl,
    ReplAck, ReplicaGroups, Share, Val,
};
use crate::parts::Port;
use crate::program::Thread;
use crate::protocol::{NodeId, NodeSet};

/// The state for logging in a machine that replicates.
#[derive(Clone, Debug)]
pub(super) struct Logs {
    pub groups: ReplicaGroups,
    /// The unit of each compute node.
    pub units: Box<[LoggingUnit]>,
    /// The numbering of commits of each compute node.
    pub numbering: Box<[Numbering]>,
    /// The log in each memory node.
    pub archives: Box<[Archive]>,
    /// The progress of the truncation of each archive.
    pub truncations: Box<[Truncation]>,
    barrier: DumpBarrier,
    /// The share that each unit is about to save, and the time since which it reads it.
    shares: Box<[Option<(Time, Share)>]>,
    period: Time,
}

impl Logs {
    pub fn new(description: &Description) -> Logs {
        let groups = ReplicaGroups::new(description);
        let nodes = description.system.compute_nodes as usize;
        let memories = description.system.memory_nodes as usize;
        let unit = |node| LoggingUnit::new(description, groups.clone(), NodeId::new(node));
        Logs {
            units: (0..nodes).map(unit).collect(),
            numbering: vec![Numbering::default(); nodes].into(),
            archives: vec![Archive::default(); memories].into(),
            truncations: vec![Truncation::default(); memories].into(),
            barrier: DumpBarrier::new(groups.living()),
            shares: vec![None; nodes].into(),
            period: description.logging_unit.dump_period,
            groups,
        }
    }

    fn groups_without(&self, dead: NodeSet) -> ReplicaGroups {
        let all = (0..self.units.len()).map(NodeId::new);
        self.groups
            .regrouped(all.filter(|node| !dead.contains(*node)).collect())
    }

    /// Returns whether no round of dumps is under way.
    pub fn is_between_rounds(&self) -> bool {
        self.barrier.is_idle()
    }

    /// Drops the share of a node that has died with its unit.
    pub fn lose_share(&mut self, node: NodeId) {
        self.shares[node.index()] = None;
    }

    /// Checks that no work is left, though nothing is under way.
    pub fn check_quiet(&self, dead: NodeSet) -> Result<(), String> {
        for unit in self.units.iter().filter(|unit| !dead.contains(unit.node())) {
            if unit.waiting() > 0 {
                let (node, waiting) = (unit.node(), unit.waiting());
                return Err(format!("{waiting} entries of {node} are not validated"));
            }
            if !unit.is_idle() {
                return Err(format!("the unit of {} waits in a round", unit.node()));
            }
        }
        if !self.barrier.is_idle() || self.archives.iter().any(Archive::is_taking_in) {
            return Err("a dump has not ended".into());
        }
        Ok(())
    }
}

/// The message for a machine without logging units.
const LOGS: &str = "only a machine with logging units receives messages of replication";

impl<T: Thread> Cluster<T> {
    pub(super) fn logs_mut(&mut self) -> &mut Logs {
        self.logs.as_mut().expect(LOGS)
    }

    /// Handles a REPL that has come to a logging unit.
    pub(super) fn log(
        &mut self,
        port: Port,
        repl: &Repl,
        now: Time,
        queue: &mut EventQueue<Event>,
    ) {
        let logged = told(
            self.logs_mut().units[usize::from(port.0)].log(now, repl),
            now,
        );
        let answer = Says::ReplAck {
            line: repl.line,
            ack: ReplAck {
                from: NodeId::new(usize::from(port.0)),
                requester: repl.requester,
                sequence: repl.sequence,
            },
        };
        let ways = (port, self.compute_port(repl.requester.node));
        self.say(logged.ack, ways, answer, queue);
    }

    /// Handles a VAL that has come to a logging unit.
    pub(super) fn validate(
        &mut self,
        port: Port,
        val: &Val,
        now: Time,
        queue: &mut EventQueue<Event>,
    ) {
        let unit = &mut self.logs_mut().units[usize::from(port.0)];
        let validated = told(unit.validate(now, val), now);
        if validated.full {
            self.say(validated.done, (port, self.leader()), Says::Asked, queue);
        }
    }

    /// Handles the event that a dump is due.
    pub(super) fn dump_period(&mut self, now: Time, queue: &mut EventQueue<Event>) {
        // Nothing else is pending: all threads have ended, or wait for each other for ever.
        if self.is_finished() || queue.is_empty() {
            return;
        }
        let held = self.dumps_are_held();
        let logs = self.logs_mut();
        queue.schedule_at(now + logs.period, Event::DumpPeriod);
        if !held {
            let begin = logs.barrier.begin();
            self.begin_round(begin, now, queue);
        }
    }

    /// Requests a dump as soon as one can begin.
    pub(super) fn dump_asked(&mut self, now: Time, queue: &mut EventQueue<Event>) {
        let begin = self.logs_mut().barrier.ask();
        self.begin_round(begin, now, queue);
    }

    /// Requests, in a recovery, a dump that begins from now on.
    pub(super) fn dump_anew(&mut self, now: Time, queue: &mut EventQueue<Event>) {
        let begin = self.logs_mut().barrier.begin_anew();
        self.begin_round(begin, now, queue);
    }

    fn begin_round(&mut self, begin: Option<Begin>, now: Time, queue: &mut EventQueue<Event>) {
        let Some(begin) = begin else { return };
        self.dump_begins();
        for node in begin.members.iter() {
            let ways = (self.leader(), self.compute_port(node));
            self.say(now, ways, Says::Begin(begin), queue);
        }
    }

    fn go_on(&mut self, advance: Option<Advance>, now: Time, queue: &mut EventQueue<Event>) {
        match advance {
            None => {}
            Some(Advance::Begin(begin)) => self.begin_round(Some(begin), now, queue),
            Some(Advance::Clear(clear)) => self.clear_all(&clear, now, queue),
        }
    }

    fn clear_all(&mut self, clear: &Clear, now: Time, queue: &mut EventQueue<Event>) {
        for node in clear.members.iter() {
            let ways = (self.leader(), self.compute_port(node));
            self.say(now, ways, Says::Clear(clear.clone()), queue);
        }
    }

    /// Handles a message of a dump that has come to a port.
    pub(super) fn dump_message(
        &mut self,
        port: Port,
        says: Says,
        now: Time,
        queue: &mut EventQueue<Event>,
    ) {
        let (leader, n) = (self.leader(), usize::from(port.0));
        let logs = self.logs_mut();
        match says {
            Says::Asked => self.dump_asked(now, queue),
            Says::Begin(begin) => match told(logs.units[n].begin(&begin), now) {
                Begun::Save(share) => {
                    let ready = now + share.ready(0);
                    logs.shares[n] = Some((now, share));
                    self.tally.send(port, port);
                    let first = Event::NextPiece {
                        node: n as u8,
                        index: 0,
                    };
                    queue.schedule_at(ready, first);
                }
                Begun::Nothing { saved, read } => {
                    self.say(now + read, (port, leader), Says::Saved(saved), queue);
                }
            },
            Says::Piece(piece) => {
                let archive = n - self.nodes.len();
                let stored = self.logs_mut().archives[archive].receive(&piece);
                let stored = told(stored, now);
                // Pieces are stored consecutively in memory.
                let place = LineAddress(u64::from(piece.index));
                let written = self.memories[archive].dram.access(now, place);
                if let Some(stored) = stored {
                    let ways = (port, self.compute_port(stored.node));
                    self.say(written, ways, Says::Stored(stored), queue);
                    self.archive_has_grown(archive, now, queue);
                }
            }
            Says::Stored(stored) => {
                let saved = told(logs.units[n].stored(&stored), now);
                self.say(now, (port, leader), Says::Saved(saved), queue);
            }
            Says::Saved(saved) => {
                let advance = told(logs.barrier.saved(&saved), now);
                self.go_on(advance, now, queue);
            }
            Says::Clear(clear) => {
                let cleared = told(logs.units[n].clear(&clear), now);
                self.say(now, (port, leader), Says::Cleared(cleared), queue);
            }
            Says::Cleared(cleared) => {
                let advance = told(logs.barrier.cleared(&cleared), now);
                self.go_on(advance, now, queue);
                self.saved_all(now, queue);
            }
            _ => unreachable!("it is not a part of a dump"),
        }
    }

    /// Sends a piece of a unit's dump.
    pub(super) fn next_piece(
        &mut self,
        node: u8,
        index: u32,
        now: Time,
        queue: &mut EventQueue<Event>,
    ) {
        let port = self.fabric.compute_node(u16::from(node));
        self.tally.get(port, port);
        let slot = &mut self.logs_mut().shares[usize::from(node)];
        let (begun, share) = slot.as_ref().expect("it is sent until all of it is");
        let piece = share.piece(index);
        let next = index + 1;
        if next < share.piece_count() {
            let ready = *begun + share.ready(next);
            queue.schedule_at(ready.max(now), Event::NextPiece { node, index: next });
            self.tally.send(port, port);
        } else {
            *slot = None;
        }
        let from = self.fabric.compute_node(u16::from(node));
        let home = usize::from(node) % self.memories.len();
        let to = self.fabric.memory_node(home as u16);
        self.say(now, (from, to), Says::Piece(piece), queue);
    }

    /// In a recovery: a unit drops all entries that are not validated, of every node.
    pub(super) fn forget_unvalidated(&mut self, n: usize, now: Time) {
        let nodes = self.nodes.len();
        let keeps = self.broken == Some(Breakage::ForgetsNothing);
        if let Some(logs) = self.logs.as_mut().filter(|_| !keeps) {
            for node in (0..nodes).map(NodeId::new) {
                told(logs.units[n].forget(now, node), now);
            }
        }
    }

    /// In a recovery: a memory node no longer waits for dumps of dead nodes.
    pub(super) fn lose_dumps_of(
        &mut self,
        dead: NodeSet,
        m: usize,
        now: Time,
        queue: &mut EventQueue<Event>,
    ) {
        for node in dead.iter() {
            let Some(logs) = &mut self.logs else { return };
            logs.archives[m].lose(node);
            if m == 0 {
                let advance = logs.barrier.lose(node);
                self.go_on(advance, now, queue);
                if self.broken == Some(Breakage::DumpsInRepair) {
                    self.dump_asked(now, queue);
                }
            }
        }
    }

    /// At the end of a recovery: a unit's lines are assigned to groups of the living nodes.
    pub(super) fn regroup_unit(&mut self, n: usize, dead: NodeSet, now: Time) {
        if let Some(logs) = &mut self.logs {
            let groups = logs.groups_without(dead);
            told(logs.units[n].regroup(groups), now);
        }
    }

    /// At the end of a recovery: the requesters use the groups of the living nodes.
    pub(super) fn form_groups(&mut self, dead: NodeSet) {
        let keeps = self.broken == Some(Breakage::KeepsGroups);
        if let Some(logs) = &mut self.logs
            && !keeps
        {
            logs.groups = logs.groups_without(dead);
        }
    }

    /// Returns the port of the memory node that leads the rounds.
    fn leader(&self) -> Port {
        self.fabric.memory_node(0)
    }
}

/// Returns the answer of a part of logging. An error is a fault of this machine.
pub(super) fn told<V>(answer: Result<V, LoggingError>, now: Time) -> V {
    match answer {
        Ok(value) => value,
        Err(error) => panic!("at {now}: {error}"),
    }
}
