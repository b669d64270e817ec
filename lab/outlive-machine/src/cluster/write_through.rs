//! Write-through: a store is done when persistent memory has it.
//!
//! The oldest entry of a store buffer gets exclusive access to its line, as it would to write it
//! back, and pins it. Then its words go to the memory node and into persistent memory, and when
//! that has answered, the store is committed and the line is unpinned. So memory is written only by
//! the owner of a line, in the order of the stores to it; the line stays clean (`E`), and a core
//! has one store under way. A node's commits are in persistent memory whatever happens to the node.

use super::Cluster;
use super::event::{Event, Message, Stage, What};
use super::under_way::Payload;
use crate::engine::{EventQueue, Time};
use crate::program::Thread;
use crate::protocol::Epoch;

impl<T: Thread> Cluster<T> {
    /// Sends the words of the oldest entry, whose line is pinned, to persistent memory.
    pub(super) fn send_through(
        &mut self,
        c: usize,
        at: u64,
        now: Time,
        queue: &mut EventQueue<Event>,
    ) {
        let core = &self.cores[c];
        let Some(head) = core.stores.front() else {
            return;
        };
        let message = Message {
            line: head.line,
            payload: self.payloads.put(head.values),
            epoch: Epoch::default(),
            node: core.node as u8,
            stage: Stage::Ready,
            what: What::WriteThrough {
                core: core.place,
                words: head.words,
            },
        };
        // It takes the path of a miss to the port.
        let at = self.timing.time(at + self.timing.l3).max(now);
        self.send_later(message, at, queue);
    }

    /// Handles words to be persisted that have come to their memory node.
    pub(super) fn write_through(
        &mut self,
        message: Message,
        core: u8,
        words: u8,
        now: Time,
        queue: &mut EventQueue<Event>,
    ) {
        let (line, home) = (message.line, self.home(message.line));
        let values = self.payloads.take(message.payload);
        let contents = self.memory.line_mut(line);
        for place in (0..8).filter(|place| words & 1 << place != 0) {
            contents[place] = values[place];
        }
        let done = self.memories[home].pmem.access(now, line);
        let answer = Message {
            payload: Payload::NONE,
            what: What::WrittenThrough { core },
            ..message
        };
        self.send_later(answer, done, queue);
    }

    /// Commits a store whose words are persistent.
    pub(super) fn written_through(
        &mut self,
        message: Message,
        core: u8,
        now: Time,
        queue: &mut EventQueue<Event>,
    ) {
        let n = message.node as usize;
        let c = n * self.cores_per_node + core as usize;
        let tick = self.timing.tick(now);
        let Some((slot, waited)) = self.taken_again(c, message.line) else {
            panic!("{} was pinned in node {n}, but is not there", message.line);
        };
        self.commit(c, 0, slot, tick + waited, now, queue);
        self.unpin(n, slot, now, queue);
        self.after_commit(c, now, queue);
    }
}
