//! Packets: messages between nodes about replication and logs. They take the same path as
//! [messages](super::port), over the same links and the same switch, but from any node to any node.
//!
//! Packets from a node's core to the node's own logging unit pass no link and take only the unit's
//! time.

use std::sync::Arc;

use super::Cluster;
use super::event::{Event, MessageKind, Stage};
use super::failure::{self, Recovery};
use super::under_way::Payload;
use crate::engine::{EventQueue, Time};
use crate::line::LineAddress;
use crate::logging::{Begin, Clear, Cleared, Piece, Repl, ReplAck, Saved, Standing, Stored, Val};
use crate::parts::{Content, Port};
use crate::program::Thread;
use crate::protocol::NodeId;

/// A packet under way. Its contents are stored separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    says: Payload,
    bytes: u32,
    from: Port,
    to: Port,
    kind: MessageKind,
    stage: Stage,
}

impl Packet {
    pub(super) fn stage(self) -> Stage {
        self.stage
    }

    pub(super) fn says(self) -> Payload {
        self.says
    }

    pub(super) fn from(self) -> Port {
        self.from
    }

    pub(super) fn to(self) -> Port {
        self.to
    }

    fn at(self, stage: Stage) -> Event {
        Event::Packet(Packet { stage, ..self })
    }
}

/// The contents of a packet.
#[derive(Clone, Debug)]
pub(super) enum Says {
    Repl(Repl),
    ReplAck {
        line: LineAddress,
        ack: ReplAck,
    },
    Val {
        line: LineAddress,
        val: Val,
    },
    /// A log is full.
    Asked,
    Begin(Begin),
    Piece(Piece),
    Stored(Stored),
    Saved(Saved),
    Clear(Clear),
    Cleared(Cleared),
    /// From one memory node to another: requests the directories' state of these lines.
    AskStandings(Arc<[LineAddress]>),
    /// The answer, in the order of the request.
    TellStandings(Arc<[(LineAddress, Standing)]>),
    Recovery(Recovery),
}

impl Says {
    fn kind(&self) -> MessageKind {
        match self {
            Says::Repl(_) => MessageKind::Repl,
            Says::ReplAck { .. } => MessageKind::ReplAck,
            Says::Val { .. } => MessageKind::Val,
            Says::Asked => MessageKind::DumpAsked,
            Says::Begin(_) => MessageKind::DumpBegin,
            Says::Piece(_) => MessageKind::DumpPiece,
            Says::Stored(_) => MessageKind::DumpStored,
            Says::Saved(_) => MessageKind::DumpSaved,
            Says::Clear(_) => MessageKind::DumpClear,
            Says::Cleared(_) => MessageKind::DumpCleared,
            Says::AskStandings(_) => MessageKind::StandingsAsked,
            Says::TellStandings(_) => MessageKind::StandingsTold,
            Says::Recovery(recovery) => recovery.says.kind(),
        }
    }

    /// Returns its payload, in a machine with this number of compute nodes.
    fn content(&self, nodes: usize) -> Content {
        match self {
            Says::Repl(repl) => Content::Words(repl.mask),
            Says::Val { .. } => Content::Validation,
            Says::Piece(_) => Content::Line,
            Says::Saved(_) => Content::Numbers(nodes as u32),
            Says::Clear(clear) => Content::Numbers((clear.saved.len() * nodes) as u32),
            // An address is two numbers of 4 bytes; so are an epoch and an owner.
            Says::AskStandings(lines) => Content::Numbers(2 * lines.len() as u32),
            Says::TellStandings(standings) => Content::Numbers(2 * standings.len() as u32),
            Says::Recovery(recovery) => recovery.says.content(),
            Says::ReplAck { .. }
            | Says::Asked
            | Says::Begin(_)
            | Says::Stored(_)
            | Says::Cleared(_) => Content::Nothing,
        }
    }

    /// Returns the line that it is about, if it is about one.
    fn line(&self) -> Option<LineAddress> {
        match self {
            Says::Repl(repl) => Some(repl.line),
            Says::ReplAck { line, .. } | Says::Val { line, .. } => Some(*line),
            _ => None,
        }
    }
}

impl<T: Thread> Cluster<T> {
    /// Sends a packet at a time, from a port to a port.
    pub(super) fn say(
        &mut self,
        at: Time,
        ways: (Port, Port),
        says: Says,
        queue: &mut EventQueue<Event>,
    ) {
        let packet = self.packed(at, ways, says);
        queue.schedule_at(at, Event::Packet(packet));
    }

    /// Sends a packet before any other that may be sent.
    pub(super) fn say_at_once(
        &mut self,
        ways: (Port, Port),
        says: Says,
        now: Time,
        queue: &mut EventQueue<Event>,
    ) {
        let packet = self.packed(now, ways, says);
        self.post(packet, now, queue);
    }

    fn packed(&mut self, at: Time, (from, to): (Port, Port), says: Says) -> Packet {
        if let Some(life) = &mut self.life
            && let Some(line) = says.line()
        {
            life.said(at, line, says.kind(), from, to);
        }
        let kind = says.kind();
        if failure::is_counted(kind) {
            self.tally.send(from, to);
        }
        Packet {
            bytes: self.sizes.bytes(says.content(self.nodes.len())) as u32,
            kind,
            says: self.said.put(says),
            from,
            to,
            stage: Stage::Ready,
        }
    }

    /// Prefetches on the host the data of a packet's event.
    pub(super) fn look_into_packet(&self, packet: Packet) {
        if packet.stage == Stage::There {
            self.said.look_ahead(packet.says);
        }
    }

    /// Handles a packet that has reached its stage.
    pub(super) fn packet(&mut self, packet: Packet, now: Time, queue: &mut EventQueue<Event>) {
        match packet.stage {
            Stage::Ready => self.post(packet, now, queue),
            Stage::Switch => self.switched(packet, now, queue),
            Stage::There => self.delivered(packet, now, queue),
        }
    }

    /// Lets a packet leave its sender, behind all that were sent before.
    fn post(&mut self, packet: Packet, now: Time, queue: &mut EventQueue<Event>) {
        if let Some(oracle) = &mut self.oracle
            && packet.kind == MessageKind::Val
        {
            oracle.val_leaves(NodeId::new(usize::from(packet.from.0)));
        }
        if packet.from == packet.to {
            self.delivered(packet, now, queue);
            return;
        }
        let bytes = u64::from(packet.bytes);
        self.messages.count(packet.kind, bytes);
        let at = self.fabric.leave(now, packet.from, bytes);
        queue.schedule_at(at, packet.at(Stage::Switch));
    }

    /// Handles a packet at the switch.
    fn switched(&mut self, packet: Packet, now: Time, queue: &mut EventQueue<Event>) {
        if self.is_lost_at_switch(packet.from) {
            self.said.take(packet.says);
            return;
        }
        if failure::is_counted(packet.kind) {
            self.tally.pass(packet.from, packet.to);
        }
        let at = self.fabric.forward(now, packet.to, u64::from(packet.bytes));
        queue.schedule_at(at, packet.at(Stage::There));
    }

    /// Handles a packet at its receiver.
    fn delivered(&mut self, packet: Packet, now: Time, queue: &mut EventQueue<Event>) {
        if failure::is_counted(packet.kind) {
            self.tally.get(packet.from, packet.to);
        }
        match self.said.take(packet.says) {
            Says::Repl(repl) => self.log(packet.to, &repl, now, queue),
            Says::ReplAck { ack, .. } => self.acknowledged(&ack, now, queue),
            Says::Val { val, .. } => self.validate(packet.to, &val, now, queue),
            Says::Recovery(recovery) => {
                self.recovery((packet.from, packet.to), recovery, now, queue);
            }
            Says::AskStandings(lines) => {
                self.standings_asked((packet.from, packet.to), &lines, now, queue);
            }
            Says::TellStandings(standings) => self.standings_told(packet.to, &standings, now),
            dump => self.dump_message(packet.to, dump, now, queue),
        }
    }

    /// Sends a message from the switch itself to a core.
    pub(super) fn interrupt_core(
        &mut self,
        port: Port,
        recovery: Recovery,
        now: Time,
        queue: &mut EventQueue<Event>,
    ) {
        let packet = self.packed(now, (port, port), Says::Recovery(recovery));
        let bytes = u64::from(packet.bytes);
        self.messages.count(packet.kind, bytes);
        let at = self.fabric.forward(now, port, bytes);
        queue.schedule_at(at, packet.at(Stage::There));
    }

    /// Returns the port of a compute node.
    pub(super) fn compute_port(&self, node: NodeId) -> Port {
        self.fabric.compute_node(node.index() as u16)
    }
}
