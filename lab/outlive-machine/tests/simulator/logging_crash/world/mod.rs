//! A model of nodes that store, replicate and dump, around the real parts. Their deaths are in
//! [`recovery`].

mod recovery;

use std::collections::{BTreeMap, VecDeque};

use outlive_machine::description::{Bytes, Description, OwnUnit};
use outlive_machine::engine::{Random, Time};
use outlive_machine::line::LineAddress;
use outlive_machine::logging::{
    Advance, Archive, Begin, Begun, Clear, Cleared, Commit, DumpBarrier, Epoch, LogEntry,
    LoggingUnit, Numbering, Piece, Repl, ReplicaGroups, Requester, Saved, Standing, Stored,
    Through, Val,
};
use outlive_machine::program::Word;
use outlive_machine::protocol::{NodeId, NodeSet};

pub const NODES: usize = 4;
const LINES: u64 = 6;
const CORES: u8 = 2;

/// The part of the barrier that is left out, to test that it is needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    None,
    /// Units clear their whole logs as the round found them, whether or not the saver had each
    /// entry.
    WholeLogs,
    /// A unit clears its log when it has taken its share out, without waiting for the others.
    NoWaiting,
    /// Dead members count as having saved.
    DeadHaveSaved,
    /// The memory node drops an owner's stores as soon as another node requests the line.
    TruncatesRecalled,
    /// The memory node takes the owner at one time for that of a later epoch.
    TruncatesByOldOwners,
}

#[derive(Clone, Debug)]
enum Message {
    Repl(Repl),
    Ack(NodeId, Requester, u32),
    Val(Val),
    Begin(Begin),
    Piece(Piece),
    Stored(Stored),
    Saved(Saved),
    Clear(Clear),
    Cleared(Cleared),
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Place {
    Node(NodeId),
    Memory,
}

/// A store of a node that is not committed, replicated early as in ReCXL-proactive.
#[derive(Clone, Debug)]
struct Store {
    repl: Repl,
    replicas: NodeSet,
    awaited: NodeSet,
}

#[derive(Clone)]
pub struct World {
    random: Random,
    now: Time,
    pub steps: u32,
    fault: Fault,
    groups: ReplicaGroups,
    pub units: Vec<LoggingUnit>,
    numbering: Vec<Numbering>,
    /// The stores of each core, in program order.
    stores: Vec<VecDeque<Store>>,
    sequence: u32,
    barrier: DumpBarrier,
    pub archive: Archive,
    /// The messages that have not left their ports.
    ports: BTreeMap<Place, VecDeque<(Place, Message)>>,
    fabric: Vec<(Place, Message)>,
    living: NodeSet,
    /// The nodes that have died and have not been recovered from.
    dead: Vec<NodeId>,
    /// The owner of each line, and its first epoch.
    owners: Vec<(NodeId, Epoch)>,
    memory: Vec<[u64; 8]>,
    /// All committed stores, with the number of their VALs that have not left.
    pub committed: Vec<(LogEntry, usize)>,
    /// The steps at which nodes die.
    pub plan: VecDeque<(u32, NodeId)>,
    recovering: bool,
    /// Lines that are to be handed over, and are not yet.
    recalled: Vec<bool>,
    /// Whether the archive is truncated from time to time.
    pub truncates: bool,
    /// The directories' last answers.
    told: Vec<Standing>,
    /// The number of dropped entries.
    pub dropped: u64,
}

impl World {
    pub fn new(seed: u64, fault: Fault) -> Self {
        let mut description = Description::default();
        description.system.compute_nodes = NODES as u32;
        description.system.cores_per_node = u32::from(CORES);
        description.logging_unit.sram_size = Bytes(24 * 5);
        description.logging_unit.log_size = Bytes(24 * 40);
        description.ours.replication.dump_range = Bytes(64);
        description.ours.replication.own_unit = OwnUnit::ALL[(seed % 2) as usize];
        description.check().unwrap();
        let groups = ReplicaGroups::new(&description);
        let nodes: Vec<_> = (0..NODES).map(NodeId::new).collect();
        let unit = |node: &NodeId| LoggingUnit::new(&description, groups.clone(), *node);
        let places = nodes.iter().map(|node| Place::Node(*node));
        Self {
            random: Random::new(seed),
            now: Time::ZERO,
            steps: 0,
            fault,
            units: nodes.iter().map(unit).collect(),
            numbering: vec![Numbering::default(); NODES],
            stores: vec![VecDeque::new(); NODES * usize::from(CORES)],
            sequence: 0,
            barrier: DumpBarrier::new(groups.living()),
            archive: Archive::default(),
            ports: places
                .chain([Place::Memory])
                .map(|place| (place, VecDeque::new()))
                .collect(),
            fabric: Vec::new(),
            living: groups.living(),
            dead: Vec::new(),
            owners: (0..LINES as usize)
                .map(|line| (nodes[line % NODES], Epoch(1)))
                .collect(),
            memory: vec![[0; 8]; LINES as usize],
            committed: Vec::new(),
            plan: VecDeque::new(),
            recovering: false,
            recalled: vec![false; LINES as usize],
            truncates: false,
            told: vec![
                Standing {
                    epoch: Epoch(0),
                    owner: None
                };
                LINES as usize
            ],
            dropped: 0,
            groups,
        }
    }

    fn draw(&mut self, end: usize) -> usize {
        self.random.below(end as u64) as usize
    }

    fn lives(&self, place: Place) -> bool {
        match place {
            Place::Node(node) => self.living.contains(node),
            Place::Memory => true,
        }
    }

    fn send(&mut self, from: Place, to: Place, message: Message) {
        if self.lives(from) {
            self.ports.get_mut(&from).unwrap().push_back((to, message));
        }
    }

    fn announce(&mut self, advance: Option<Advance>) {
        let members = self.barrier.living();
        let message = match advance {
            None => return,
            Some(Advance::Begin(begin)) => Message::Begin(begin),
            Some(Advance::Clear(clear)) => Message::Clear(self.spoil(clear)),
        };
        for node in members.iter() {
            self.send(Place::Memory, Place::Node(node), message.clone());
        }
    }

    /// Makes the barrier's message that of a worse barrier.
    fn spoil(&self, mut clear: Clear) -> Clear {
        let all = {
            let mut all = Through::default();
            (0..NODES).for_each(|node| all.set(NodeId::new(node), Commit(u32::MAX)));
            all
        };
        let has = |clear: &Clear, node| clear.through(node).is_some();
        match self.fault {
            Fault::None | Fault::TruncatesRecalled | Fault::TruncatesByOldOwners => {}
            Fault::WholeLogs => {
                clear
                    .saved
                    .iter_mut()
                    .for_each(|(_, through)| *through = all);
            }
            Fault::NoWaiting | Fault::DeadHaveSaved => {
                for node in clear.members.iter() {
                    if !has(&clear, node) {
                        clear.saved.push((node, all));
                    }
                }
            }
        }
        clear
    }

    /// Executes one possible event, drawn at random, after the deaths that are due at this step.
    /// Returns whether any event was possible.
    pub fn step(&mut self) -> bool {
        self.steps += 1;
        self.now += Time::from_nanos(1);
        while let Some(&(step, victim)) = self.plan.front() {
            if step > self.steps {
                break;
            }
            self.plan.pop_front();
            if self.living.contains(victim) {
                self.die(victim);
            }
        }
        let ports: Vec<_> = self
            .ports
            .iter()
            .filter(|(_, port)| !port.is_empty())
            .map(|(place, _)| *place)
            .collect();
        let choices = ports.len() + usize::from(!self.fabric.is_empty()) * 3;
        let quiet = choices == 0;
        if !self.recovering && (quiet || self.draw(3) == 0) {
            self.act();
            return true;
        }
        if quiet {
            return false;
        }
        let at = self.draw(choices);
        match ports.get(at) {
            Some(&place) => self.leave(place),
            None => {
                let at = self.draw(self.fabric.len());
                let (to, message) = self.fabric.swap_remove(at);
                if self.lives(to) {
                    self.arrive(to, message);
                }
            }
        }
        true
    }

    fn leave(&mut self, place: Place) {
        let (to, message) = self.ports.get_mut(&place).unwrap().pop_front().unwrap();
        if let Message::Val(val) = message {
            let of = |entry: &LogEntry| {
                (entry.requester.node, entry.commit) == (val.requester.node, val.commit)
            };
            let entries = self.committed.iter_mut().filter(|(entry, _)| of(entry));
            entries.for_each(|(_, left)| *left -= 1);
        }
        self.fabric.push((to, message));
    }

    /// One action of a core or of the clock of the dumps.
    fn act(&mut self) {
        if self.draw(60) == 0 {
            let begin = self.barrier.begin();
            self.announce(begin.map(Advance::Begin));
            return;
        }
        match self.truncates.then(|| self.draw(40)) {
            Some(0) => return self.told = self.standings(),
            Some(1) => return self.truncate(),
            _ => {}
        }
        let core = self.draw(self.stores.len());
        let node = NodeId::new(core / usize::from(CORES));
        if !self.living.contains(node) {
            return;
        }
        let ready = self.stores[core]
            .front()
            .is_some_and(|store| store.awaited.is_empty());
        if ready {
            self.commit(core, node);
        } else if self.stores[core].len() < 3 {
            let requester = Requester {
                node,
                core: (core % usize::from(CORES)) as u8,
            };
            let line = LineAddress(self.random.below(LINES));
            self.sequence += 1;
            let repl = Repl {
                requester,
                sequence: self.sequence,
                line,
                mask: 1 << self.draw(8) | 1 << self.draw(8),
                values: [u64::from(self.sequence); 8],
            };
            let replicas = self.groups.replicas(line, node);
            for replica in replicas.iter() {
                self.send(Place::Node(node), Place::Node(replica), Message::Repl(repl));
            }
            self.stores[core].push_back(Store {
                repl,
                replicas,
                awaited: replicas,
            });
        }
    }

    /// Returns the directories' current answers.
    fn standings(&self) -> Vec<Standing> {
        let lines = self.owners.iter().zip(&self.recalled);
        lines
            .map(|(&(owner, epoch), &recalled)| {
                let gone = recalled && self.fault == Fault::TruncatesRecalled;
                let owner = (!gone).then_some(owner);
                Standing { epoch, owner }
            })
            .collect()
    }

    /// Truncates the archive by earlier answers of the directories.
    fn truncate(&mut self) {
        let mut told = self.told.clone();
        if self.fault == Fault::TruncatesByOldOwners {
            for (told, (_, epoch)) in told.iter_mut().zip(&self.owners) {
                told.epoch = *epoch;
            }
        }
        let truncated = self.archive.truncate(|line| told[line.0 as usize]);
        self.dropped += truncated.unwrap().0.entries;
    }

    /// Commits the oldest store of a core, if it has or can get its line.
    fn commit(&mut self, core: usize, node: NodeId) {
        let line = self.stores[core][0].repl.line.0 as usize;
        let (owner, epoch) = self.owners[line];
        if owner != node {
            // The line comes from its owner after all earlier messages of the owner; from a dead
            // owner only by recovery.
            let port = &self.ports[&Place::Node(owner)];
            if !self.living.contains(owner)
                || port
                    .iter()
                    .any(|(_, message)| matches!(message, Message::Val(_)))
            {
                return;
            }
            if self.truncates && !std::mem::replace(&mut self.recalled[line], true) {
                return;
            }
            self.recalled[line] = false;
            for (entry, _) in &self.committed {
                if (entry.requester.node, entry.epoch) == (owner, epoch)
                    && entry.word.line().0 as usize == line
                {
                    self.memory[line][entry.word.place()] = entry.value;
                }
            }
            self.owners[line] = (node, Epoch(epoch.0 + 1));
        }
        let store = self.stores[core].pop_front().unwrap();
        let epoch = self.owners[line].1;
        let commit = self.numbering[node.index()].commit();
        let Repl {
            requester,
            sequence,
            mask,
            values,
            ..
        } = store.repl;
        for place in (0..8).filter(|place| mask & 1 << place != 0) {
            let entry = LogEntry {
                requester,
                commit,
                epoch,
                word: Word(line as u64 * 8 + place),
                value: values[place as usize],
            };
            self.committed.push((entry, store.replicas.len()));
        }
        for replica in store.replicas.iter() {
            let val = Val {
                requester,
                sequence,
                timestamp: self.numbering[node.index()].timestamp(replica),
                commit,
                epoch,
            };
            self.send(Place::Node(node), Place::Node(replica), Message::Val(val));
        }
    }

    fn arrive(&mut self, to: Place, message: Message) {
        let now = self.now;
        let Place::Node(node) = to else {
            match message {
                Message::Piece(piece) => {
                    if let Some(stored) = self.archive.receive(&piece).unwrap() {
                        self.send(
                            Place::Memory,
                            Place::Node(piece.node),
                            Message::Stored(stored),
                        );
                    }
                }
                Message::Saved(saved) => {
                    let advance = self.barrier.saved(&saved).unwrap();
                    self.announce(advance);
                }
                Message::Cleared(cleared) => {
                    let advance = self.barrier.cleared(&cleared).unwrap();
                    self.announce(advance);
                }
                other => panic!("a memory node gets {other:?}"),
            }
            return;
        };
        let unit = &mut self.units[node.index()];
        match message {
            Message::Repl(repl) => {
                unit.log(now, &repl).unwrap();
                let ack = Message::Ack(node, repl.requester, repl.sequence);
                self.send(to, Place::Node(repl.requester.node), ack);
            }
            Message::Ack(replica, requester, sequence) => {
                let core =
                    requester.node.index() * usize::from(CORES) + usize::from(requester.core);
                let store = self.stores[core]
                    .iter_mut()
                    .find(|store| store.repl.sequence == sequence);
                let store = store.unwrap();
                store.awaited = store.awaited.without(replica);
            }
            Message::Val(val) => {
                if unit.validate(now, &val).unwrap().full && !self.recovering {
                    let begin = self.barrier.ask();
                    self.announce(begin.map(Advance::Begin));
                }
            }
            Message::Begin(begin) => match unit.begin(&begin).unwrap() {
                Begun::Nothing { saved, .. } => self.send(to, Place::Memory, Message::Saved(saved)),
                Begun::Save(share) => {
                    for (_, piece) in share.pieces() {
                        self.send(to, Place::Memory, Message::Piece(piece));
                    }
                    if self.fault == Fault::NoWaiting {
                        // It clears by itself, as if all had saved.
                        let stored = Stored {
                            node,
                            round: begin.round,
                        };
                        let saved = self.units[node.index()].stored(&stored).unwrap();
                        let clear = self.spoil(Clear {
                            round: begin.round,
                            members: begin.members,
                            saved: vec![(node, saved.through)],
                        });
                        self.units[node.index()].clear(&clear).unwrap();
                    }
                }
            },
            Message::Stored(stored) => {
                let saved = match self.fault {
                    Fault::NoWaiting => Saved {
                        node,
                        round: stored.round,
                        through: Through::default(),
                    },
                    _ => unit.stored(&stored).unwrap(),
                };
                self.send(to, Place::Memory, Message::Saved(saved));
            }
            Message::Clear(clear) => {
                let cleared = match unit.clear(&clear) {
                    Ok(cleared) => cleared,
                    Err(_) if self.fault == Fault::NoWaiting => Cleared {
                        node,
                        round: clear.round,
                    },
                    Err(error) => panic!("{error}"),
                };
                self.send(to, Place::Memory, Message::Cleared(cleared));
            }
            other => panic!("a compute node gets {other:?}"),
        }
    }
}
