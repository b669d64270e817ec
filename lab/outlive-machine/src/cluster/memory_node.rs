//! A memory node: the directory of its lines, its DRAM, its persistent memory.
//!
//! A message is handled when the directory's latency has passed since its arrival; directories are
//! pipelined, and have no other limit. A message of a directory with contents from memory leaves
//! when the DRAM has them. If the message that is being answered brought the contents, they are
//! sent at once and written to DRAM at the same time.

use super::Cluster;
use super::event::{Event, Message, Stage, What};
use super::under_way::Payload;
use crate::description::Description;
use crate::engine::{EventQueue, Time};
use crate::line::{Line, LineAddress};
use crate::parts::Memory;
use crate::program::Thread;
use crate::protocol::{DirectoryAction, Epoch, NodeId, ToDirectory, ToNode};

/// A memory node without contents and records, which `SharedMemory` holds for all nodes.
#[derive(Clone, Debug)]
pub(super) struct MemoryNode {
    pub dram: Memory,
    pub pmem: Memory,
}

impl MemoryNode {
    pub fn new(description: &Description) -> MemoryNode {
        let (cxl, ours) = (&description.cxl, &description.ours.memory);
        MemoryNode {
            dram: Memory::new(cxl.dram_latency, ours.dram_banks),
            pmem: Memory::new(cxl.pmem_latency, ours.pmem_banks),
        }
    }

    /// Reads or writes `bytes` bytes of the log that is here. Returns when that is done.
    pub fn go_through(&mut self, bytes: u64, now: Time) -> Time {
        let places = 0..bytes.div_ceil(size_of::<Line>() as u64);
        let done = places.map(|place| self.dram.access(now, LineAddress(place)));
        done.max().unwrap_or(now)
    }
}

impl<T: Thread> Cluster<T> {
    /// Returns the memory node of a line.
    #[inline]
    pub(super) fn home(&self, line: LineAddress) -> usize {
        let (piece, _) = self.interleave.divide(line.0);
        self.homes.divide(piece).1 as usize
    }

    /// Handles a node's message whose directory entry has been looked up.
    pub(super) fn arrive_up(
        &mut self,
        message: Message,
        what: ToDirectory<()>,
        now: Time,
        queue: &mut EventQueue<Event>,
    ) {
        let line = message.line;
        let home = self.home(line);
        let directory = self.memory.directory(line);
        let from = NodeId::new(message.node as usize);
        let step = self.tables.directory.step(&directory, from, what, ());
        // By reference: it is large.
        let step = match &step {
            Ok(step) => step,
            Err(error) => panic!("{line} at {now}: {error}"),
        };
        if let Some(life) = &mut self.life {
            life.directory(now, line, from, what, &directory, &step.directory);
        }
        self.memory.set_directory(line, step.directory);
        let mut at_hand = false;
        for action in step.actions() {
            match action {
                DirectoryAction::WriteMemory(()) => {
                    *self.memory.line_mut(line) = self.payloads.take(message.payload);
                    self.memories[home].dram.access(now, line);
                    at_hand = true;
                }
                DirectoryAction::Send(to, what) => {
                    let exclusive = matches!(
                        what,
                        ToNode::GrantE(()) | ToNode::GrantM(()) | ToNode::GrantUpgrade
                    );
                    let epoch = match exclusive {
                        true => step.directory.epoch(),
                        false => Epoch::default(),
                    };
                    for node in to.iter() {
                        let mut answer = Message {
                            line,
                            payload: Payload::NONE,
                            epoch,
                            node: node.index() as u8,
                            stage: Stage::Ready,
                            what: What::Down(what),
                        };
                        if what.data().is_none() {
                            self.send(answer, now, queue);
                            continue;
                        }
                        answer.payload = self.payloads.put(*self.memory.line(line));
                        if at_hand {
                            self.send(answer, now, queue);
                        } else {
                            let ready = self.memories[home].dram.access(now, line);
                            self.send_later(answer, ready, queue);
                        }
                    }
                }
            }
        }
        // An obsolete put comes with contents that are not used.
        if !at_hand && message.payload != Payload::NONE {
            self.payloads.take(message.payload);
        }
    }
}
