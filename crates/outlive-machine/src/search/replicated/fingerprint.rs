//! What tells the states of a machine that replicates apart.

use super::unit::{Entry, Waiting};
use super::world::{LogMessage, Phase, Replicated};
use super::{Fault, ReplicatedRules};
use crate::logging::Commit;
use crate::protocol::{Epoch, Name, NodeId, NodeSet};
use crate::search::fingerprint::Fingerprinter;

/// Makes fingerprints; keeps its buffers.
pub(super) struct ReplicatedFingerprinter {
    base: Fingerprinter,
    words: Vec<u32>,
    parts: Vec<[u32; 4]>,
}

/// Numbers of which the order alone matters, as their places among those that are in use.
struct Ranks(Vec<(NodeId, u32)>);

impl Ranks {
    fn new(mut used: Vec<(NodeId, u32)>) -> Ranks {
        used.sort_unstable();
        used.dedup();
        Ranks(used)
    }

    fn of(&self, node: NodeId, number: u32) -> u32 {
        let first = self.0.partition_point(|(other, _)| *other < node);
        let place = self.0.binary_search(&(node, number));
        place.map_or(0xff, |place| (place - first) as u32)
    }
}

impl ReplicatedFingerprinter {
    pub fn new(nodes: usize) -> ReplicatedFingerprinter {
        ReplicatedFingerprinter {
            base: Fingerprinter::new(nodes, false),
            words: Vec::new(),
            parts: Vec::new(),
        }
    }

    /// The fingerprint of a world.
    pub fn of(&mut self, world: &Replicated<u64>, rules: &ReplicatedRules) -> u128 {
        self.words.clear();
        self.put(world, rules);
        let words = &self.words;
        self.base.with(
            &world.base,
            |line, value| class(world, line, value),
            |into| into.extend_from_slice(words),
        )
    }

    fn put(&mut self, world: &Replicated<u64>, rules: &ReplicatedRules) {
        let (sequences, commits) = (sequences(world), commits(world));
        let is_current =
            |line: usize, epoch: Epoch| epoch == world.base.homes[line].directory.epoch();
        let phase = match world.phase {
            Phase::Running => 0,
            Phase::Draining => 1,
            Phase::Repairing(left) => 2 | left << 2,
        };
        self.words.extend([
            phase,
            world.deaths_left | world.dumps_left << 8,
            bits(world.dead) | bits(world.known) << 8 | bits(world.recovered) << 16,
        ]);
        self.words
            .extend(world.groups.iter().map(|group| bits(*group)));
        let doubt = world.in_doubt.iter().map(|(line, _)| 1 << line);
        self.words.push(doubt.sum());
        let last = world.last_commit.as_ref();
        self.words.push(last.map_or(0, |last| {
            (1 + last.node.index() as u32) | bits(last.vals) << 8
        }));
        let entry = |who: u32, entry: &Entry| {
            let current = is_current(entry.line, entry.epoch);
            let at = who << 16 | (entry.node.index() as u32) << 8 | entry.line as u32;
            let commit = commits.of(entry.node, entry.commit.0);
            let class = class(world, entry.line, entry.number);
            // What is of another epoch is never asked for, unless that is what is wrong.
            let counts = current || rules.fault == Some(Fault::EpochsIgnored);
            counts.then_some([at, commit, u32::from(current), class])
        };
        for node in world.nodes() {
            let core = world.core(node);
            self.words
                .push(core.stores_left | core.others_left << 8 | (core.buffer.len() as u32) << 16);
            for buffered in &core.buffer {
                let store = &buffered.store;
                let sequence = store
                    .sequence()
                    .map_or(0xfe, |number| sequences.of(node, number));
                self.words.push(
                    store.state().number() as u32 | (buffered.line as u32) << 8 | sequence << 16,
                );
                self.words
                    .push(bits(store.replicas()) | bits(store.awaited()) << 8);
            }
            let unit = &core.unit;
            self.parts.clear();
            self.parts
                .extend(unit.log.iter().filter_map(|logged| entry(1, logged)));
            self.parts
                .extend(unit.waiting.iter().map(|waiting: &Waiting| {
                    let at = 2 << 16 | (waiting.node.index() as u32) << 8 | waiting.line as u32;
                    let sequence = sequences.of(waiting.node, waiting.sequence);
                    match waiting.val {
                        None => [at, sequence, 0, 0],
                        Some((timestamp, commit, epoch)) => {
                            let late = timestamp - unit.moved[waiting.node.index()].0;
                            let current = is_current(waiting.line, epoch);
                            let commit = commits.of(waiting.node, commit.0);
                            let class = class(world, waiting.line, waiting.number);
                            [
                                at,
                                sequence,
                                late << 8 | commit,
                                (1 + u32::from(current)) | class << 8,
                            ]
                        }
                    }
                }));
            // Up to which commit it would let others clear.
            if world.dumps_left > 0 {
                self.parts
                    .extend(unit.moved.iter().enumerate().map(|(of, (_, commit))| {
                        let of = NodeId::new(of);
                        let covered = commits
                            .0
                            .iter()
                            .filter(|(node, number)| *node == of && *number <= commit.0);
                        [3 << 16 | of.index() as u32, covered.count() as u32, 0, 0]
                    }));
            }
            flush(&mut self.parts, &mut self.words);
        }
        self.parts
            .extend(world.archive.iter().filter_map(|logged| entry(4, logged)));
        flush(&mut self.parts, &mut self.words);
        self.parts
            .extend(world.log_messages.iter().map(|message| match *message {
                LogMessage::Repl {
                    to,
                    requester,
                    sequence,
                    line,
                    ..
                } => [
                    5 << 16 | pair(to, requester),
                    sequences.of(requester, sequence),
                    line as u32,
                    0,
                ],
                LogMessage::Ack { to, from, sequence } => {
                    [6 << 16 | pair(to, from), sequences.of(to, sequence), 0, 0]
                }
                LogMessage::Val {
                    to,
                    requester,
                    sequence,
                    timestamp,
                    commit,
                    epoch,
                } => {
                    let late = timestamp - world.core(to).unit.moved[requester.index()].0;
                    let unit = &world.core(to).unit;
                    let line = unit
                        .place(requester, sequence)
                        .map(|place| unit.waiting[place].line);
                    let current = line.is_some_and(|line| is_current(line, epoch));
                    let class = unit.place(requester, sequence).map_or(0, |place| {
                        class(world, unit.waiting[place].line, unit.waiting[place].number)
                    });

                    [
                        7 << 16 | pair(to, requester),
                        sequences.of(requester, sequence),
                        late << 8 | commits.of(requester, commit.0),
                        u32::from(current) | class << 8,
                    ]
                }
            }));
        flush(&mut self.parts, &mut self.words);
    }
}

fn bits(nodes: NodeSet) -> u32 {
    nodes.iter().map(|node| 1 << node.index()).sum()
}

fn pair(a: NodeId, b: NodeId) -> u32 {
    (a.index() as u32) << 8 | b.index() as u32
}

fn flush(parts: &mut Vec<[u32; 4]>, words: &mut Vec<u32>) {
    parts.sort_unstable();
    words.push(parts.len() as u32);
    words.extend(parts.drain(..).flatten());
}

/// What matters of contents: whether they are the last, or right if that is in doubt, or old.
fn class(world: &Replicated<u64>, line: usize, value: u64) -> u32 {
    let doubtful = |(other, before): &(usize, u64)| *other == line && *before == value;
    let before = world
        .last_commit
        .as_ref()
        .is_some_and(|last| last.line == line && last.before == value);
    match value == world.base.homes[line].last {
        true => 1,
        false if before || world.in_doubt.iter().any(doubtful) => 2,
        false => 0,
    }
}

fn sequences(world: &Replicated<u64>) -> Ranks {
    let mut used = Vec::new();
    for node in world.nodes() {
        let core = world.core(node);
        let stores = core
            .buffer
            .iter()
            .filter_map(|buffered| buffered.store.sequence());
        used.extend(stores.map(|sequence| (node, sequence)));
        let waiting = core.unit.waiting.iter();
        used.extend(waiting.map(|waiting| (waiting.node, waiting.sequence)));
    }
    used.extend(world.log_messages.iter().map(|message| match *message {
        LogMessage::Repl {
            requester,
            sequence,
            ..
        }
        | LogMessage::Val {
            requester,
            sequence,
            ..
        } => (requester, sequence),
        LogMessage::Ack { to, sequence, .. } => (to, sequence),
    }));
    Ranks::new(used)
}

fn commits(world: &Replicated<u64>) -> Ranks {
    let mut used = Vec::new();
    let mut add = |node, commit: Commit| used.push((node, commit.0));
    for core in &world.cores {
        core.unit
            .validated()
            .for_each(|entry| add(entry.node, entry.commit));
    }
    world
        .archive
        .iter()
        .for_each(|entry| add(entry.node, entry.commit));
    for message in &world.log_messages {
        if let LogMessage::Val {
            requester, commit, ..
        } = *message
        {
            add(requester, commit);
        }
    }
    Ranks::new(used)
}
