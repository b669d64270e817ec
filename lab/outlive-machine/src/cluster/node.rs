//! A compute node's side of coherence: its cores' requests, and the directories' messages.
//!
//! The state of a line's agent is at the line in the L3, or in the write-back buffer, or is `I`.
//! The [protocol's table](crate::protocol) defines its actions; this module applies them to caches,
//! buffers and cores.
//!
//! A line that is *pinned* for a store stays: demands for it wait in the node, as if they were
//! still under way.

use super::Cluster;
use super::caches::{Caches, NOBODY};
use super::event::{Event, Message, Stage, What};
use super::under_way::Payload;
use crate::description::Description;
use crate::engine::{EventQueue, Time};
use crate::line::{Line, LineAddress};
use crate::parts::{Memory, Slot};
use crate::program::Thread;
use crate::protocol::{Epoch, NodeAction, NodeInput, NodeState, ToNode};

/// A line that was put back and is kept until the directory has it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Put {
    pub line: LineAddress,
    pub agent: NodeState,
    pub contents: Line,
}

/// A compute node without its cores.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub caches: Caches,
    /// The write-back buffer.
    pub puts: Vec<Put>,
    /// The node's own memory.
    pub dram: Memory,
    /// Requests that found no place in the caches, or whose line is still being put back.
    stalled: Vec<(u16, LineAddress)>,
    /// Requests taken from `stalled`, to be retried.
    again: Vec<(u16, LineAddress)>,
    /// Demands for lines that are pinned.
    deferred: Vec<Message>,
}

/// The place of the state of a line's agent.
#[derive(Clone, Copy)]
enum Place {
    Cache(Slot),
    Buffer(usize),
    Nowhere,
}

impl Node {
    pub fn new(description: &Description) -> Node {
        let ours = &description.ours;
        Node {
            caches: Caches::new(description),
            puts: Vec::with_capacity(ours.coherence.write_back_buffer as usize),
            dram: Memory::new(ours.memory.local_latency, ours.memory.local_banks),
            stalled: Vec::new(),
            again: Vec::new(),
            deferred: Vec::new(),
        }
    }

    /// Drops its whole state.
    pub fn clear(&mut self) {
        self.caches.clear();
        self.puts.clear();
        self.stalled.clear();
        self.deferred.clear();
    }

    pub fn has_room_for_put(&self, most: usize) -> bool {
        self.puts.len() < most
    }

    fn place(&self, line: LineAddress) -> (Place, NodeState) {
        if let Some(slot) = self.caches.find(line) {
            return (Place::Cache(slot), self.caches.held(slot).agent);
        }
        match self.puts.iter().position(|put| put.line == line) {
            Some(at) => (Place::Buffer(at), self.puts[at].agent),
            None => (Place::Nowhere, NodeState::I),
        }
    }

    /// Returns the state of a line's agent.
    pub fn agent(&self, line: LineAddress) -> NodeState {
        self.place(line).1
    }

    /// Returns the node's contents of a line, if it has any.
    pub fn contents(&self, line: LineAddress) -> Option<&Line> {
        match self.place(line) {
            (_, state) if !state.has_copy() => None,
            (Place::Cache(slot), _) => Some(self.caches.line(slot)),
            (Place::Buffer(at), _) => Some(&self.puts[at].contents),
            (Place::Nowhere, _) => None,
        }
    }

    /// Returns whether nothing waits in the node.
    pub fn is_quiet(&self) -> bool {
        self.puts.is_empty() && self.stalled.is_empty() && self.deferred.is_empty()
    }
}

impl<T: Thread> Cluster<T> {
    /// Handles a core's miss that comes to the node or is retried.
    pub(super) fn request(
        &mut self,
        c: usize,
        line: LineAddress,
        now: Time,
        queue: &mut EventQueue<Event>,
    ) {
        let core = &mut self.cores[c];
        let (n, place) = (core.node as usize, core.place);
        if core.halted {
            // The core will request the lines that it needs again when it continues.
            core.misses.remove(line);
            return;
        }
        let Some(miss) = core.misses.find(line) else {
            return;
        };
        let write = miss.write;
        let node = &mut self.nodes[n];
        if let Some(slot) = node.caches.find(line) {
            let held = node.caches.held_mut(slot);
            let pinned = held.pinned != NOBODY && held.pinned != place;
            if held.agent.is_readable() && !(pinned && write) {
                self.supply(c, line, now, queue);
            } else {
                held.waiting |= 1 << place;
            }
            return;
        }
        if node.puts.iter().any(|put| put.line == line) {
            node.stalled.push((c as u16, line));
            return;
        }
        let Some(slot) = self.make_room(n, line, now, queue) else {
            self.nodes[n].stalled.push((c as u16, line));
            return;
        };
        let caches = &mut self.nodes[n].caches;
        caches.reserve(slot, line);
        caches.held_mut(slot).waiting = 1 << place;
        let input = if write {
            NodeInput::Prefetch
        } else {
            NodeInput::Load
        };
        self.tell(n, line, input, Payload::NONE, now, queue);
    }

    /// Gives a core a line that it misses and that the node can at least read. The core uses it in
    /// this same step.
    pub(super) fn supply(
        &mut self,
        c: usize,
        line: LineAddress,
        now: Time,
        queue: &mut EventQueue<Event>,
    ) {
        let tick = self.timing.tick(now);
        let core = &mut self.cores[c];
        let (n, place) = (core.node as usize, core.place);
        let Some(miss) = core.misses.find(line) else {
            return;
        };
        let (write, since) = (miss.write, miss.since);
        let caches = &mut self.nodes[n].caches;
        let got = match write {
            true => caches.write(place, line),
            false => caches.read(place, line),
        };
        if got.is_some() {
            core.misses.remove(line);
            core.counts.supplied += 1;
            core.counts.supply_ticks += tick.saturating_sub(since);
        } else {
            // The line is here to be read only, and a store needs it.
            if let Some(slot) = caches.find(line) {
                caches.held_mut(slot).waiting |= 1 << place;
            }
            caches.read(place, line);
            self.tell(n, line, NodeInput::Prefetch, Payload::NONE, now, queue);
        }
        self.bind_loads(c, tick, now, queue);
        let stores = &self.cores[c].stores;
        if got.is_some()
            && stores.missing
            && let Some(head) = stores.front()
            && head.line == line
        {
            let next = stores.last_commit + self.timing.cycle;
            let due = tick.max(next).max(head.entered).max(head.ready);
            self.cores[c].stores.missing = false;
            self.commit_oldest(c, due, now, queue);
        }
        if self.cores[c].wants_room || !self.cores[c].prefetches.is_empty() {
            self.ask_for_more(c, tick, now, queue);
        }
        if self.cores[c].activity == super::core::Activity::Parked {
            self.run(c, now, queue);
        }
    }

    /// Evicts a line from the L3.
    pub(super) fn evict(&mut self, n: usize, slot: Slot, now: Time, queue: &mut EventQueue<Event>) {
        let line = self.nodes[n].caches.address(slot);
        self.tell(n, line, NodeInput::Evict, Payload::NONE, now, queue);
    }

    /// Handles a message that has come from a directory.
    pub(super) fn arrive_down(
        &mut self,
        message: Message,
        what: ToNode<()>,
        now: Time,
        queue: &mut EventQueue<Event>,
    ) {
        let n = message.node as usize;
        let node = &mut self.nodes[n];
        let demand = matches!(
            what,
            ToNode::Inv | ToNode::RecallShared | ToNode::RecallExclusive
        );
        if demand
            && let Some(slot) = node.caches.find(message.line)
            && node.caches.held(slot).pinned != NOBODY
        {
            node.deferred.push(message);
            return;
        }
        let input = NodeInput::Message(what);
        let resumed = self.tell(n, message.line, input, message.payload, now, queue);
        let caches = &mut self.nodes[n].caches;
        if message.epoch != Epoch::default()
            && let Some(slot) = caches.find(message.line)
        {
            caches.held_mut(slot).epoch = message.epoch;
        }
        if resumed {
            self.resume(n, message.line, now, queue);
        }
    }

    /// Gives an input to a line's agent and executes its actions. Returns whether waiting cores may
    /// continue.
    pub(super) fn tell(
        &mut self,
        n: usize,
        line: LineAddress,
        input: NodeInput<()>,
        payload: Payload,
        now: Time,
        queue: &mut EventQueue<Event>,
    ) -> bool {
        let (place, state) = self.nodes[n].place(line);
        let copy = state.has_copy().then_some(());
        let step = self.tables.node.step(state, input, copy);
        // By reference: it is large.
        let step = match &step {
            Ok(step) => step,
            Err(error) => panic!("node {n}, {line}, at {now}: {error}"),
        };
        let next = step.state();
        if let Some(life) = &mut self.life
            && (next != state || !matches!(input, NodeInput::Load | NodeInput::Prefetch))
        {
            life.agent(now, n, line, state, input.event(), next);
        }
        let (mut resumed, mut dropped) = (false, false);
        for action in step.actions() {
            match action {
                NodeAction::Perform | NodeAction::Wait => {}
                NodeAction::Install(()) => {
                    let contents = self.payloads.take(payload);
                    if let Place::Cache(slot) = place {
                        *self.nodes[n].caches.line_mut(slot) = contents;
                    }
                }
                NodeAction::Drop => dropped = true,
                NodeAction::Resume => resumed = true,
                NodeAction::Send(what) => {
                    let payload = match (what.data(), place) {
                        (Some(()), Place::Cache(slot)) => {
                            self.payloads.put(*self.nodes[n].caches.line(slot))
                        }
                        (Some(()), Place::Buffer(at)) => {
                            self.payloads.put(self.nodes[n].puts[at].contents)
                        }
                        _ => Payload::NONE,
                    };
                    let message = Message {
                        line,
                        payload,
                        epoch: Epoch::default(),
                        node: n as u8,
                        stage: Stage::Ready,
                        what: What::Up(what),
                    };
                    self.send(message, now, queue);
                }
            }
        }
        let node = &mut self.nodes[n];
        match place {
            Place::Cache(slot) if next == NodeState::I => {
                node.caches.remove(slot);
            }
            Place::Cache(slot) if next == NodeState::MI => {
                let contents = node.caches.remove(slot);
                node.puts.push(Put {
                    line,
                    agent: next,
                    contents,
                });
            }
            Place::Cache(slot) => {
                if dropped {
                    node.caches.recall(slot);
                }
                let held = node.caches.held_mut(slot);
                held.agent = next;
                if !next.is_writable() {
                    held.owner = NOBODY;
                }
            }
            Place::Buffer(at) if next == NodeState::I => {
                node.puts.swap_remove(at);
            }
            Place::Buffer(at) => node.puts[at].agent = next,
            Place::Nowhere => {
                assert_eq!(
                    next,
                    NodeState::I,
                    "node {n}, {line}, at {now}: it has no place"
                );
            }
        }
        resumed
    }

    /// Called when the state of a line has changed: cores that wait for it continue, then requests
    /// that wait for a free place are retried.
    pub(super) fn resume(
        &mut self,
        n: usize,
        line: LineAddress,
        now: Time,
        queue: &mut EventQueue<Event>,
    ) {
        let caches = &mut self.nodes[n].caches;
        if let Some(slot) = caches.find(line) {
            let mut waiting = std::mem::take(&mut caches.held_mut(slot).waiting);
            while waiting != 0 {
                let c = n * self.cores_per_node + waiting.trailing_zeros() as usize;
                waiting &= waiting - 1;
                // An earlier one may have caused the line's eviction.
                self.request(c, line, now, queue);
            }
        }
        self.retry(n, now, queue);
    }

    /// Retries requests that waited for a free place in a node.
    fn retry(&mut self, n: usize, now: Time, queue: &mut EventQueue<Event>) {
        let node = &mut self.nodes[n];
        if node.stalled.is_empty() || !node.again.is_empty() {
            return;
        }
        std::mem::swap(&mut node.stalled, &mut node.again);
        for at in 0.. {
            let Some(&(c, line)) = self.nodes[n].again.get(at) else {
                break;
            };
            self.request(c as usize, line, now, queue);
        }
        self.nodes[n].again.clear();
    }

    /// Releases a pinned line: the cores and demands that waited for it continue. The node's own
    /// cores come first, else they might never get it; but after as many turns as the node has
    /// cores, another node that demands it gets it.
    pub(super) fn unpin(&mut self, n: usize, slot: Slot, now: Time, queue: &mut EventQueue<Event>) {
        let most = self.cores_per_node as u8;
        let node = &mut self.nodes[n];
        let line = node.caches.address(slot);
        let demanded = node.deferred.iter().any(|message| message.line == line);
        let held = node.caches.held_mut(slot);
        held.pinned = NOBODY;
        let mut waiting = 0;
        let given = demanded && held.turns >= most;
        if given {
            (held.turns, waiting) = (0, std::mem::take(&mut held.waiting));
        } else {
            held.turns = if demanded { held.turns + 1 } else { 0 };
            self.resume(n, line, now, queue);
        }
        // One of them may have pinned it again.
        let pinned = |node: &Node| {
            let slot = node.caches.find(line);
            slot.is_some_and(|slot| node.caches.held(slot).pinned != NOBODY)
        };
        while !pinned(&self.nodes[n])
            && let Some(at) = self.nodes[n]
                .deferred
                .iter()
                .position(|message| message.line == line)
        {
            let message = self.nodes[n].deferred.remove(at);
            if let What::Down(what) = message.what {
                self.arrive_down(message, what, now, queue);
            }
        }
        while waiting != 0 {
            let c = n * self.cores_per_node + waiting.trailing_zeros() as usize;
            waiting &= waiting - 1;
            self.request(c, line, now, queue);
        }
        if given {
            // The line may be gone, and its place free.
            self.retry(n, now, queue);
        }
    }
}
