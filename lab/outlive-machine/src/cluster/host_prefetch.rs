//! Prefetches on the host the data of the next event, while the present one is handled. No
//! simulated result depends on it.
//!
//! A cluster has hundreds of megabytes of caches and memory, and nearly every event begins at a
//! random place of them.

use super::Cluster;
use super::event::{Event, Message, Stage, What};
use crate::engine::prefetch;
use crate::line::LineAddress;
use crate::program::Thread;

impl<T: Thread> Cluster<T> {
    /// Called with the next event, unless the present one causes an earlier one.
    pub(super) fn look_ahead(&self, event: &Event) {
        match *event {
            Event::Wake(c) | Event::Released(c) => prefetch(&self.cores[c as usize]),
            Event::Request { core, line } => {
                self.look_into_node(self.cores[core as usize].node as usize, line);
            }
            Event::Message(Message {
                stage: Stage::There,
                what,
                line,
                node,
                ..
            }) => match what {
                What::Up(_) | What::WriteThrough { .. } => self.memory.look_ahead(line),
                What::Down(_) | What::WrittenThrough { .. } => {
                    self.look_into_node(node as usize, line);
                }
            },
            Event::Packet(packet) => self.look_into_packet(packet),
            Event::Message(_) | Event::NextPiece { .. } | Event::DumpPeriod | Event::Silent(_) => {}
        }
    }

    fn look_into_node(&self, node: usize, line: LineAddress) {
        self.nodes[node].caches.look_ahead(line);
    }
}
