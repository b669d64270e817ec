//! A 128-bit fingerprint of a state, by which a search recognises it.
//!
//! Nodes are alike, so states that differ only in the nodes' names are the same: the fingerprint is
//! the least over all namings. Among n states, two have the same fingerprint with a probability of
//! about n² / 2^129: for ten million states less than 2^-80.

use super::payload::{Freshness, Payload};
use super::world::{Message, World};
use crate::protocol::{Name, NodeId, ToDirectory, ToNode};

/// Returns all namings of `nodes` nodes; if not `symmetric`, the identity alone.
pub(super) fn namings(nodes: usize, symmetric: bool) -> Vec<Vec<NodeId>> {
    let identity: Vec<_> = (0..nodes).map(NodeId::new).collect();
    if !symmetric {
        return vec![identity];
    }
    let mut all = Vec::new();
    permute(&mut identity.clone(), 0, &mut all);
    all
}

fn permute(names: &mut Vec<NodeId>, from: usize, all: &mut Vec<Vec<NodeId>>) {
    if from == names.len() {
        all.push(names.clone());
    }
    for other in from..names.len() {
        names.swap(from, other);
        permute(names, from + 1, all);
        names.swap(from, other);
    }
}

/// Computes fingerprints, and reuses its buffers.
pub(super) struct Fingerprinter {
    namings: Vec<Vec<NodeId>>,
    words: Vec<u32>,
    packets: Vec<u32>,
}

impl Fingerprinter {
    pub(super) fn new(nodes: usize, symmetric: bool) -> Fingerprinter {
        Fingerprinter {
            namings: namings(nodes, symmetric),
            words: Vec::new(),
            packets: Vec::new(),
        }
    }

    pub(super) fn of(&mut self, world: &World<Freshness>) -> u128 {
        let namings = std::mem::take(&mut self.namings);
        let least = namings
            .iter()
            .map(|names| {
                self.words.clear();
                self.put(world, names, |_, contents| contents as u32);
                digest(&self.words)
            })
            .min()
            .expect("there is a naming");
        self.namings = namings;
        least
    }

    /// Returns the fingerprint of a world under its only naming; `more` appends further words of
    /// its state.
    pub(super) fn with<D: Payload>(
        &mut self,
        world: &World<D>,
        code: impl Fn(usize, D) -> u32,
        more: impl FnOnce(&mut Vec<u32>),
    ) -> u128 {
        let names = std::mem::take(&mut self.namings);
        self.words.clear();
        self.put(world, &names[0], code);
        self.namings = names;
        more(&mut self.words);
        digest(&self.words)
    }

    /// Appends a world's state. `code` maps a line's contents to the part that matters, below 255.
    fn put<D: Payload>(
        &mut self,
        world: &World<D>,
        names: &[NodeId],
        code: impl Fn(usize, D) -> u32,
    ) {
        let lines = world.shape.lines;
        self.words.resize(names.len() * (lines + 1), 0);
        for (node, name) in names.iter().enumerate() {
            for line in 0..lines {
                let agent = &world.agents[node * lines + line];
                let copy = agent.copy.map_or(0, |copy| 1 + code(line, copy));
                self.words[name.index() * (lines + 1) + line] =
                    agent.state.number() as u32 | copy << 8 | u32::from(agent.waiting) << 16;
            }
            let left = world.left.as_ref().map_or(0, |left| u32::from(left[node]));
            self.words[name.index() * (lines + 1) + lines] = left;
        }
        for (line, home) in world.homes.iter().enumerate() {
            let directory = home.directory.renamed(|node| names[node.index()]);
            let requester = directory
                .requester()
                .map_or(0, |node| 1 + node.index() as u32);
            let memory = code(line, home.memory);
            self.words
                .push(directory.state().number() as u32 | requester << 8 | memory << 16);
            self.words.push(
                directory
                    .holders()
                    .iter()
                    .fold(0, |bits, node| bits | 1 << node.index()),
            );
            self.words.push(
                directory
                    .awaited()
                    .iter()
                    .fold(0, |bits, node| bits | 1 << node.index()),
            );
            self.words.push(directory.queue().len() as u32);
            let entries = directory.queue().iter();
            self.words
                .extend(entries.map(|(node, request)| (node.index() as u32) << 2 | request as u32));
        }
        self.packets.clear();
        self.packets.extend(world.network.iter().map(|packet| {
            let (which, data) = match packet.message {
                Message::Up(message) => (up(message.kind()), message.data()),
                Message::Down(message) => (down(message.kind()), message.data()),
            };
            let node = names[packet.node.index()].index() as u32;
            (packet.line as u32) << 24
                | node << 16
                | which << 8
                | data.map_or(0, |data| 1 + code(packet.line, data))
        }));
        self.packets.sort_unstable();
        self.words.append(&mut self.packets);
    }
}

fn up(kind: ToDirectory<()>) -> u32 {
    match kind {
        ToDirectory::RdS => 0,
        ToDirectory::RdX => 1,
        ToDirectory::Upgrade => 2,
        ToDirectory::Ack => 3,
        ToDirectory::Done => 4,
        ToDirectory::Downgraded(()) => 5,
        ToDirectory::DowngradedClean => 6,
        ToDirectory::Relinquished(()) => 7,
        ToDirectory::Gone => 8,
        ToDirectory::PutM(()) => 9,
    }
}

fn down(kind: ToNode<()>) -> u32 {
    match kind {
        ToNode::Inv => 16,
        ToNode::RecallShared => 17,
        ToNode::RecallExclusive => 18,
        ToNode::GrantS(()) => 19,
        ToNode::GrantE(()) => 20,
        ToNode::GrantM(()) => 21,
        ToNode::GrantUpgrade => 22,
        ToNode::PutAck => 23,
    }
}

/// Hashes in two 64-bit lanes. Each combines a word with its state and folds a product of that.
fn digest(words: &[u32]) -> u128 {
    let fold = |value: u64, by: u64| {
        let product = u128::from(value) * u128::from(by);
        (product as u64) ^ (product >> 64) as u64
    };
    let (mut a, mut b) = (
        0x9e37_79b9_7f4a_7c15,
        0xc2b2_ae3d_27d4_eb4f ^ words.len() as u64,
    );
    for &word in words {
        a = fold(a ^ u64::from(word), 0xa076_1d64_78bd_642f).wrapping_add(0x2545_f491_4f6c_dd1d);
        b = fold(b.rotate_left(23) ^ u64::from(word), 0xe703_7ed1_a0b4_28db)
            .wrapping_add(a.rotate_left(32));
    }
    u128::from(a) << 64 | u128::from(fold(b, 0x8ebc_6af0_9c88_c6e3))
}
