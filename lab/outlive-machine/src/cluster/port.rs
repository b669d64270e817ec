//! Messages on their way: from a port over the switch to another port, in two events each.

use super::Cluster;
use super::event::{Event, Message, Stage, What};
use super::under_way::Payload;
use crate::engine::{EventQueue, Time};
use crate::parts::Port;
use crate::program::Thread;
use crate::protocol::{NodeId, ToNode};

impl<T: Thread> Cluster<T> {
    /// Handles a message that has reached its stage.
    pub(super) fn message(&mut self, message: Message, now: Time, queue: &mut EventQueue<Event>) {
        match message.stage {
            Stage::Ready => self.leave(message, now, queue),
            Stage::Switch => self.forward(message, now, queue),
            Stage::There => self.arrive(message, now, queue),
        }
    }

    /// Sends a message now: it leaves behind all that were sent before.
    pub(super) fn send(&mut self, message: Message, now: Time, queue: &mut EventQueue<Event>) {
        let (from, to) = self.ways(message);
        self.tally.send(from, to);
        self.leave(message, now, queue);
    }

    /// Schedules a message to be sent at this time.
    pub(super) fn send_later(&mut self, message: Message, at: Time, queue: &mut EventQueue<Event>) {
        let (from, to) = self.ways(message);
        self.tally.send(from, to);
        queue.schedule_at(at, message.at(Stage::Ready));
    }

    fn leave(&mut self, message: Message, now: Time, queue: &mut EventQueue<Event>) {
        let (from, _) = self.ways(message);
        let bytes = self.sizes.bytes(message.what.content());
        self.messages.count(message.what.kind(), bytes);
        if let Some(oracle) = &self.oracle
            && message.what.is_upward()
            && message.payload != Payload::NONE
        {
            oracle.shown(NodeId::new(usize::from(message.node)), message.line);
        }
        if let Some(life) = &mut self.life {
            life.sent(now, message);
        }
        let at = self.fabric.leave(now, from, bytes);
        queue.schedule_at(at, message.at(Stage::Switch));
    }

    /// Forwards a message at the switch. Its next event is that its receiver has looked it up.
    fn forward(&mut self, message: Message, now: Time, queue: &mut EventQueue<Event>) {
        let (from, to) = self.ways(message);
        if self.is_lost_at_switch(from) {
            self.lose_message(message);
            return;
        }
        self.tally.pass(from, to);
        let bytes = self.sizes.bytes(message.what.content());
        let lookup = match message.what {
            What::Up(_) | What::WriteThrough { .. } => self.timing.directory,
            // A demand is looked up in the L3; for an answer, the receiver already waits.
            What::Down(ToNode::Inv | ToNode::RecallShared | ToNode::RecallExclusive) => {
                self.timing.lookup
            }
            What::Down(_) | What::WrittenThrough { .. } => Time::ZERO,
        };
        let at = self.fabric.forward(now, to, bytes) + lookup;
        queue.schedule_at(at, message.at(Stage::There));
    }

    fn arrive(&mut self, message: Message, now: Time, queue: &mut EventQueue<Event>) {
        let (from, to) = self.ways(message);
        self.tally.get(from, to);
        match message.what {
            What::Up(what) => self.arrive_up(message, what, now, queue),
            What::Down(what) => self.arrive_down(message, what, now, queue),
            What::WriteThrough { core, words } => {
                self.write_through(message, core, words, now, queue);
            }
            What::WrittenThrough { core } => self.written_through(message, core, now, queue),
        }
    }

    /// Returns the sending and the receiving port.
    fn ways(&self, message: Message) -> (Port, Port) {
        let node = self.fabric.compute_node(u16::from(message.node));
        let home = self.fabric.memory_node(self.home(message.line) as u16);
        match message.what.is_upward() {
            true => (node, home),
            false => (home, node),
        }
    }
}
