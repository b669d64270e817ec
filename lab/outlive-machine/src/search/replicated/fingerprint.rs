//! Fingerprints of the states of a machine that replicates.

use super::unit::{Entry, Validation};
use super::world::{LogMessage, Read, Replicated, Stage};
use super::{Fault, ReplicatedRules};
use crate::logging::{Commit, Requester};
use crate::protocol::{Epoch, Name, NodeId, NodeSet};
use crate::search::fingerprint::Fingerprinter;

/// Computes fingerprints, and reuses its buffers.
pub(super) struct ReplicatedFingerprinter {
    base: Fingerprinter,
    words: Vec<u32>,
    parts: Vec<[u32; 4]>,
}

/// Numbers of which only the order matters, as ranks among the numbers in use of the same source.
struct Ranks<K>(Vec<(K, u32)>);

impl<K: Ord + Copy> Ranks<K> {
    fn new(mut used: Vec<(K, u32)>) -> Ranks<K> {
        used.sort_unstable();
        used.dedup();
        Ranks(used)
    }

    fn of(&self, source: K, number: u32) -> u32 {
        let first = self.0.partition_point(|(other, _)| *other < source);
        let place = self.0.binary_search(&(source, number));
        place.map_or(0xff, |place| (place - first) as u32)
    }

    /// Returns how many numbers of a source are at most `number`.
    fn up_to(&self, source: K, number: u32) -> u32 {
        let covered = self
            .0
            .iter()
            .filter(|(other, used)| *other == source && *used <= number);
        covered.count() as u32
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

    /// Returns the fingerprint of a world.
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
        self.words.extend([
            world.unrepaired,
            world.deaths_left | world.dumps_left << 8,
            bits(world.dead) | bits(world.known) << 8 | bits(world.recovered) << 16,
        ]);
        let doubt = world.in_doubt.iter().map(|(line, _)| 1 << line);
        self.words.push(doubt.sum());
        let last = world.last_commit.as_ref();
        self.words.push(last.map_or(0, |last| {
            (1 + last.node.index() as u32) | bits(last.vals) << 8 | u32::from(last.done) << 16
        }));
        let entry = |who: u32, entry: &Entry| {
            let current = is_current(entry.line, entry.epoch);
            let at = who << 16 | (entry.node.index() as u32) << 8 | entry.line as u32;
            let commit = commits.of(entry.node, entry.commit.0);
            let class = class(world, entry.line, entry.number);
            // Entries of another epoch are never fetched, unless the fault is to ignore epochs.
            let counts = current || rules.fault == Some(Fault::EpochsIgnored);
            counts.then_some([at, commit, u32::from(current), class])
        };
        // The information of a VAL to this unit, for a REPL of this line and number.
        let said = |to: NodeId, val: &Validation, line: usize, number: u64| {
            let node = val.requester.node;
            let late = val.timestamp - world.node(to).unit.moved[node.index()].0;
            let commit = commits.of(node, val.commit.0);
            let current = u32::from(is_current(line, val.epoch));
            let class = class(world, line, number);
            [late << 8 | commit, (1 + current) | class << 8]
        };
        let clearing = world
            .living()
            .any(|node| world.node(node).stage == Stage::Saved);
        let dumps = world.dumps_left > 0 || world.deaths_left > 0 || world.is_recovering();
        for node in world.all() {
            let known = world.node(node);
            self.words
                .push(known.others_left | (known.stage as u32) << 8);
            let groups = known.groups.iter().flatten();
            let groups = groups.fold(0, |sum, member| sum * 16 + 1 + member.index() as u32);
            self.words.push(groups);
            for who in world.cores_of(node) {
                self.put_core(world, who, &sequences);
            }
            let unit = &known.unit;
            self.parts.clear();
            self.parts
                .extend(unit.log.iter().filter_map(|logged| entry(1, logged)));
            self.parts.extend(unit.waiting.iter().map(|waiting| {
                let at = 2 << 16 | core(waiting.requester) << 8 | waiting.line as u32;
                let sequence = sequences.of(waiting.requester, waiting.sequence);
                let val = waiting.val.as_ref();
                let [a, b] =
                    val.map_or([0, 0], |val| said(node, val, waiting.line, waiting.number));
                [at, sequence, a, b]
            }));
            // The commits up to which others could clear if this unit saved now, and may clear.
            if dumps {
                for of in world.all() {
                    let moved = commits.up_to(of, unit.moved[of.index()].1.0);
                    let through = world.saved[node.index()].as_ref().filter(|_| clearing);
                    let saved =
                        through.map_or(0, |through| 1 + commits.up_to(of, through[of.index()].0));
                    self.parts
                        .push([3 << 16 | of.index() as u32, moved, saved, 0]);
                }
            }
            flush(&mut self.parts, &mut self.words);
        }
        self.parts
            .extend(world.archive.iter().filter_map(|logged| entry(4, logged)));
        flush(&mut self.parts, &mut self.words);
        self.parts
            .extend(world.log_messages.iter().map(|message| match message {
                LogMessage::Repl {
                    to,
                    requester,
                    sequence,
                    line,
                    ..
                } => [
                    5 << 16 | (to.index() as u32) << 8 | core(*requester),
                    sequences.of(*requester, *sequence),
                    *line as u32,
                    0,
                ],
                LogMessage::Ack { to, from, sequence } => [
                    6 << 16 | (from.index() as u32) << 8 | core(*to),
                    sequences.of(*to, *sequence),
                    0,
                    0,
                ],
                LogMessage::Val { to, val } => {
                    let unit = &world.node(*to).unit;
                    let place = unit.place(val.requester, val.sequence);
                    let [a, b] = place.map_or([0, 0], |place| {
                        let waiting = &unit.waiting[place];
                        said(*to, val, waiting.line, waiting.number)
                    });
                    let at = 7 << 16 | (to.index() as u32) << 8 | core(val.requester);
                    [at, sequences.of(val.requester, val.sequence), a, b]
                }
            }));
        flush(&mut self.parts, &mut self.words);
    }

    fn put_core(&mut self, world: &Replicated<u64>, who: Requester, sequences: &Ranks<Requester>) {
        let core = world.core(who);
        self.words
            .push(core.stores_left | core.atomics_left << 8 | (core.buffer.len() as u32) << 16);
        for buffered in &core.buffer {
            let store = &buffered.store;
            let sequence = store
                .sequence()
                .map_or(0xfe, |number| sequences.of(who, number));
            let read = match buffered.read {
                Read::Store => 0,
                Read::Due => 1,
                Read::Held(value) => 2 + class(world, buffered.line, value),
            };
            self.words.push(
                store.state().number() as u32
                    | (buffered.line as u32) << 8
                    | sequence << 16
                    | read << 24,
            );
            self.words
                .push(bits(store.replicas()) | bits(store.awaited()) << 8);
        }
    }
}

/// Packs a core's name: three bits for the core, above them the node.
fn core(who: Requester) -> u32 {
    (who.node.index() as u32) << 3 | u32::from(who.core)
}

fn bits(nodes: NodeSet) -> u32 {
    nodes.iter().map(|node| 1 << node.index()).sum()
}

fn flush(parts: &mut Vec<[u32; 4]>, words: &mut Vec<u32>) {
    parts.sort_unstable();
    words.push(parts.len() as u32);
    words.extend(parts.drain(..).flatten());
}

/// Classifies contents: 1 for the last, 2 for those before a commit that may be lost, 0 for others.
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

fn sequences(world: &Replicated<u64>) -> Ranks<Requester> {
    let mut used = Vec::new();
    for node in world.all() {
        for who in world.cores_of(node) {
            let stores = world.core(who).buffer.iter();
            let sequences = stores.filter_map(|buffered| buffered.store.sequence());
            used.extend(sequences.map(|sequence| (who, sequence)));
        }
        let waiting = world.node(node).unit.waiting.iter();
        used.extend(waiting.map(|waiting| (waiting.requester, waiting.sequence)));
    }
    used.extend(world.log_messages.iter().map(|message| match message {
        LogMessage::Repl {
            requester,
            sequence,
            ..
        } => (*requester, *sequence),
        LogMessage::Val { val, .. } => (val.requester, val.sequence),
        LogMessage::Ack { to, sequence, .. } => (*to, *sequence),
    }));
    Ranks::new(used)
}

fn commits(world: &Replicated<u64>) -> Ranks<NodeId> {
    let mut used = Vec::new();
    let mut add = |node, commit: Commit| used.push((node, commit.0));
    for node in world.all() {
        let validated = world.node(node).unit.validated();
        validated.for_each(|entry| add(entry.node, entry.commit));
    }
    world
        .archive
        .iter()
        .for_each(|entry| add(entry.node, entry.commit));
    for message in &world.log_messages {
        if let LogMessage::Val { val, .. } = message {
            add(val.requester.node, val.commit);
        }
    }
    Ranks::new(used)
}
