//! A machine without time that replicates, and whose nodes may die.

use super::unit::Unit;
use super::{Budget, Fault, ReplicatedRules, Setup};
use crate::logging::{Commit, Numbering};
use crate::protocol::{Epoch, NodeId, NodeSet, Store};
use crate::search::payload::Payload;
use crate::search::world::{Access, Choice, World};

/// What can happen next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Happening {
    /// A store of this node to this line retires into the store buffer.
    Retire(NodeId, usize),
    /// The oldest store of this node's buffer comes to the head.
    Turn(NodeId),
    /// A load, an exclusive prefetch, an eviction, or a message of the coherence protocol that arrives.
    Coherence(Choice),
    /// The message of replication at this place among those under way arrives.
    Log(usize),
    /// The logging units dump and clear.
    Dump,
    /// A node dies, and of the VALs that it was sending in its last step, those to these nodes do not get out.
    Die(NodeId, NodeSet),
    /// The configuration manager learns of the dead and halts the cores of the living.
    Interrupt,
    /// Nothing is under way any more: the manager tells the directories to recover.
    InitRecov,
    /// The directory of a line repairs it.
    Repair(usize),
    /// All directories have: the logs are saved, the groups formed anew, and the cores go on.
    RecovEnd,
}

/// A message of replication under way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LogMessage {
    /// REPL.
    Repl {
        /// To which logging unit.
        to: NodeId,
        /// Who stores.
        requester: NodeId,
        /// The number of the REPL.
        sequence: u32,
        /// Where to.
        line: usize,
        /// The number of the store, which is its value.
        number: u64,
    },
    /// REPL_ACK.
    Ack {
        /// To the requester.
        to: NodeId,
        /// From which logging unit.
        from: NodeId,
        /// The number of the REPL.
        sequence: u32,
    },
    /// VAL.
    Val {
        /// To which logging unit.
        to: NodeId,
        /// Who has committed.
        requester: NodeId,
        /// The number of the REPL.
        sequence: u32,
        /// The place of the VAL among those from its node to this unit.
        timestamp: u32,
        /// The place of the store among its node's commits.
        commit: Commit,
        /// At which epoch the node owns the line.
        epoch: Epoch,
    },
}

impl LogMessage {
    /// Who is to get it.
    pub fn to(&self) -> NodeId {
        match *self {
            LogMessage::Repl { to, .. }
            | LogMessage::Ack { to, .. }
            | LogMessage::Val { to, .. } => to,
        }
    }
}

/// How far a recovery is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// None is under way.
    Running,
    /// The cores are halted; what is under way arrives.
    Draining,
    /// These lines, one bit for each, are not repaired yet.
    Repairing(u32),
}

/// A store in a store buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Buffered {
    pub line: usize,
    pub number: u64,
    pub store: Store,
}

/// A node but for its agents: one core, and a logging unit.
#[derive(Clone, Debug)]
pub(super) struct Core {
    pub stores_left: u32,
    pub others_left: u32,
    pub issued: u64,
    pub buffer: Vec<Buffered>,
    pub sequence: u32,
    pub numbering: Numbering,
    pub unit: Unit,
}

/// The last commit of the last step, if its node has sent nothing since.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastCommit<D> {
    pub node: NodeId,
    pub commit: Commit,
    pub line: usize,
    pub before: D,
    pub vals: NodeSet,
}

/// A machine's whole state.
#[derive(Clone, Debug)]
pub struct Replicated<D> {
    pub(super) setup: Setup,
    pub(super) base: World<D>,
    pub(super) cores: Vec<Core>,
    pub(super) groups: Vec<NodeSet>,
    pub(super) log_messages: Vec<LogMessage>,
    /// The logs in the memory nodes.
    pub(super) archive: Vec<super::unit::Entry>,
    pub(super) dumps_left: u32,
    pub(super) deaths_left: u32,
    pub(super) dead: NodeSet,
    /// The dead of whom the manager knows.
    pub(super) known: NodeSet,
    /// Those whom a recovery has dealt with, whole.
    pub(super) recovered: NodeSet,
    pub(super) phase: Phase,
    pub(super) last_commit: Option<LastCommit<D>>,
    /// Lines, and their contents before a commit of which only some VALs have got out: both are right.
    pub(super) in_doubt: Vec<(usize, D)>,
}

impl<D: Payload> Replicated<D> {
    /// A machine in which nothing has happened yet.
    pub fn new(setup: Setup, rules: &ReplicatedRules) -> Replicated<D> {
        let Budget { stores, others } = setup.budget;
        let core = |node: usize| Core {
            stores_left: stores.get(node).copied().unwrap_or(0),
            others_left: others.get(node).copied().unwrap_or(0),
            issued: 0,
            buffer: Vec::new(),
            sequence: 0,
            numbering: Numbering::default(),
            unit: Unit::new(setup.shape.nodes),
        };
        let mut world = Replicated {
            setup,
            base: World::new(setup.shape, None),
            cores: (0..setup.shape.nodes).map(core).collect(),
            groups: Vec::new(),
            log_messages: Vec::new(),
            archive: Vec::new(),
            dumps_left: setup.dumps,
            deaths_left: setup.deaths,
            dead: NodeSet::EMPTY,
            known: NodeSet::EMPTY,
            recovered: NodeSet::EMPTY,
            phase: Phase::Running,
            last_commit: None,
            in_doubt: Vec::new(),
        };
        world.form_groups(rules);
        world
    }

    /// For each line, N_r of those who are not known to be dead, in a ring.
    pub(super) fn form_groups(&mut self, rules: &ReplicatedRules) {
        let living: Vec<_> = self
            .nodes()
            .filter(|node| !self.known.contains(*node))
            .collect();
        let count = self.group_size(rules).min(living.len());
        // The first line's group begins behind the first node, which stores most.
        let member = |line: usize, place: usize| living[(line + 1 + place) % living.len()];
        self.groups = (0..self.setup.shape.lines)
            .map(|line| (0..count).map(|place| member(line, place)).collect())
            .collect();
    }

    fn group_size(&self, rules: &ReplicatedRules) -> usize {
        match rules.fault {
            Some(Fault::OneReplicaLess) => self.setup.replicas - 1,
            _ => self.setup.replicas,
        }
    }

    pub(super) fn nodes(&self) -> impl Iterator<Item = NodeId> + use<D> {
        (0..self.setup.shape.nodes).map(NodeId::new)
    }

    pub(super) fn living(&self) -> impl Iterator<Item = NodeId> + use<D> {
        let dead = self.dead;
        self.nodes().filter(move |node| !dead.contains(*node))
    }

    pub(super) fn core(&self, node: NodeId) -> &Core {
        &self.cores[node.index()]
    }

    pub(super) fn core_mut(&mut self, node: NodeId) -> &mut Core {
        &mut self.cores[node.index()]
    }

    pub(super) fn is_paused(&self) -> bool {
        self.phase != Phase::Running
    }

    /// Whether no message is under way.
    pub(super) fn is_drained(&self) -> bool {
        self.base.network.is_empty() && self.log_messages.is_empty()
    }

    /// Whether the oldest store of a node is to come to the head.
    pub(super) fn has_turn(&self, node: NodeId) -> bool {
        let first = self.core(node).buffer.first();
        !self.is_paused() && first.is_some_and(|first| !first.store.state().is_head())
    }

    pub(super) fn may_store(&self, node: NodeId) -> bool {
        let core = self.core(node);
        core.stores_left > 0 && core.buffer.len() < self.setup.buffer
    }

    pub(super) fn may_die(&self) -> bool {
        let fresh = self.dead.minus(self.recovered).len();
        self.deaths_left > 0
            && fresh < self.setup.at_once
            && self.dead.len() + 1 < self.setup.shape.nodes
    }

    /// All that can happen next.
    pub(super) fn happenings(&self, rules: &ReplicatedRules, into: &mut Vec<Happening>) {
        into.clear();
        let network = &self.base.network;
        for (place, packet) in network.iter().enumerate() {
            if place == 0 || network[place - 1] != *packet {
                into.push(Happening::Coherence(Choice::Deliver(place)));
            }
        }
        into.extend((0..self.log_messages.len()).map(Happening::Log));
        for node in self.living().filter(|_| !self.is_paused()) {
            if self.has_turn(node) {
                into.push(Happening::Turn(node));
            }
            for line in 0..self.setup.shape.lines {
                if self.may_store(node) {
                    into.push(Happening::Retire(node, line));
                }
                self.other_accesses(node, line, into);
            }
        }
        if self.may_die() {
            for node in self.living() {
                into.push(Happening::Die(node, NodeSet::EMPTY));
            }
            if let Some(last) = &self.last_commit {
                let torn = proper_parts(last.vals);
                into.extend(torn.map(|lost| Happening::Die(last.node, lost)));
            }
        }
        self.recovery_steps(rules, into);
        if self.dumps_left > 0 && !self.is_paused() && self.has_logs() {
            into.push(Happening::Dump);
        }
    }

    fn has_logs(&self) -> bool {
        self.cores.iter().any(|core| !core.unit.log.is_empty())
    }

    fn other_accesses(&self, node: NodeId, line: usize, into: &mut Vec<Happening>) {
        let core = self.core(node);
        if core.others_left == 0 {
            return;
        }
        // A load gets what its own core is about to store from the store buffer.
        let forwarded = core.buffer.iter().any(|store| store.line == line);
        if self.base.may_access(node, line) {
            if !forwarded {
                let load = Choice::Access(node, line, Access::Load);
                into.push(Happening::Coherence(load));
            }
            let prefetch = Choice::Access(node, line, Access::Prefetch);
            into.push(Happening::Coherence(prefetch));
        }
        if self.base.may_evict(node, line) {
            into.push(Happening::Coherence(Choice::Evict(node, line)));
        }
    }
}

/// The parts of a set that are neither empty nor all of it.
fn proper_parts(all: NodeSet) -> impl Iterator<Item = NodeSet> {
    let nodes: Vec<_> = all.iter().collect();
    let count = 1u32 << nodes.len();
    (1..count.saturating_sub(1)).map(move |bits| {
        let chosen = nodes.iter().enumerate();
        chosen
            .filter(|(place, _)| bits & 1 << place != 0)
            .map(|(_, node)| *node)
            .collect()
    })
}
