//! Messages on their way: from a port over the switch to another port, two events each.

use super::Cluster;
use super::event::{Event, Message, Stage, What};
use crate::engine::{EventQueue, Time};
use crate::parts::Port;
use crate::program::Thread;
use crate::protocol::ToNode;

impl<T: Thread> Cluster<T> {
    /// A message is so far.
    pub(super) fn message(&mut self, message: Message, now: Time, queue: &mut EventQueue<Event>) {
        match message.stage {
            Stage::Ready => self.send(message, now, queue),
            Stage::Switch => self.forward(message, now, queue),
            Stage::There => self.arrive(message, now, queue),
        }
    }

    /// A message leaves its sender, behind all that were sent before.
    pub(super) fn send(&mut self, message: Message, now: Time, queue: &mut EventQueue<Event>) {
        let (node, home) = self.ports(message);
        let from = if message.what.is_upward() { node } else { home };
        let bytes = self.sizes.bytes(message.what.content());
        self.messages.count(message.what.kind(), bytes);
        if let Some(life) = &mut self.life {
            life.sent(now, message);
        }
        let at = self.fabric.leave(now, from, bytes);
        queue.schedule_at(at, message.at(Stage::Switch));
    }

    /// A message is at the switch; the event after this is that its receiver has looked it up.
    fn forward(&mut self, message: Message, now: Time, queue: &mut EventQueue<Event>) {
        let (node, home) = self.ports(message);
        let to = if message.what.is_upward() { home } else { node };
        let bytes = self.sizes.bytes(message.what.content());
        let lookup = match message.what {
            What::Up(_) | What::WriteThrough { .. } => self.timing.directory,
            // A demand goes through the L3; what answers a request is waited for.
            What::Down(ToNode::Inv | ToNode::RecallShared | ToNode::RecallExclusive) => {
                self.timing.lookup
            }
            What::Down(_) | What::WrittenThrough { .. } => Time::ZERO,
        };
        let at = self.fabric.forward(now, to, bytes) + lookup;
        queue.schedule_at(at, message.at(Stage::There));
    }

    fn arrive(&mut self, message: Message, now: Time, queue: &mut EventQueue<Event>) {
        match message.what {
            What::Up(what) => self.arrive_up(message, what, now, queue),
            What::Down(what) => self.arrive_down(message, what, now, queue),
            What::WriteThrough { core, words } => {
                self.write_through(message, core, words, now, queue);
            }
            What::WrittenThrough { core } => self.written_through(message, core, now, queue),
        }
    }

    fn ports(&self, message: Message) -> (Port, Port) {
        let home = self.home(message.line) as u16;
        (
            self.fabric.compute_node(u16::from(message.node)),
            self.fabric.memory_node(home),
        )
    }
}
