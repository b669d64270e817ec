//! A machine without time that replicates, and in which nodes may die.

use super::unit::{Unit, Validation};
use super::{Budget, ReplicatedRules, Setup};
use crate::logging::{Commit, Numbering, Requester};
use crate::protocol::{NodeId, NodeSet, Store};
use crate::search::payload::Payload;
use crate::search::world::{Access, Choice, World};

/// A possible next step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Happening {
    /// A store of this core to this line retires into the core's store buffer.
    Retire(Requester, usize),
    /// An atomic of this core to this line begins; the core's store buffer is empty.
    Atomic(Requester, usize),
    /// The oldest store of this core's buffer comes to the head.
    Turn(Requester),
    /// A load, an exclusive prefetch, an eviction, or a message of the coherence protocol that
    /// arrives.
    Coherence(Choice),
    /// The message of replication at this index among those under way arrives.
    Log(usize),
    /// The logging units dump and clear.
    Dump,
    /// A node dies, and these messages of its last step are lost.
    Die(NodeId, Lost),
    /// A configuration manager learns of the dead nodes and halts the cores of the living ones.
    Interrupt,
    /// The fabric is drained. A node restarts its stores, and its unit discards what is not
    /// validated.
    Restart(NodeId),
    /// InitRecov: a directory repairs its line.
    Repair(usize),
    /// A node's unit saves its share of the validated entries.
    Save(NodeId),
    /// All units have saved. A node's unit clears, and its groups have only living nodes now.
    Clear(NodeId),
    /// RecovEnd: the cores of a node continue.
    GoOn(NodeId),
}

/// The messages of a node's last step that its death loses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lost {
    /// The units to which VALs are lost.
    pub vals: NodeSet,
    /// Whether the Done of the grant on which the store has committed is lost too.
    pub done: bool,
}

impl Lost {
    /// No message is lost.
    pub const NOTHING: Lost = Lost {
        vals: NodeSet::EMPTY,
        done: false,
    };
}

/// A message of replication under way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LogMessage {
    /// REPL.
    Repl {
        /// The logging unit.
        to: NodeId,
        /// The core that stores.
        requester: Requester,
        /// The number of the REPL.
        sequence: u32,
        /// The line stored to.
        line: usize,
        /// The number of the store, which is its value.
        number: u64,
    },
    /// REPL_ACK.
    Ack {
        /// The requester.
        to: Requester,
        /// The logging unit.
        from: NodeId,
        /// The number of the REPL.
        sequence: u32,
    },
    /// VAL.
    Val {
        /// The logging unit.
        to: NodeId,
        /// The REPL that is committed, with its epoch and order.
        val: Validation,
    },
}

impl LogMessage {
    /// Returns the node that receives it.
    pub fn to(&self) -> NodeId {
        match *self {
            LogMessage::Repl { to, .. } | LogMessage::Val { to, .. } => to,
            LogMessage::Ack { to, .. } => to.node,
        }
    }
}

/// The progress of a node in a recovery.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Stage {
    /// Its cores ask for nothing.
    Halted,
    /// Its stores are to be restarted, and its unit has discarded what is not validated.
    Restarted,
    /// Its unit has saved its share.
    Saved,
    /// Its unit has cleared, and it has groups of living nodes.
    Cleared,
    /// No recovery is under way, as far as it knows.
    Running,
}

/// A store in a store buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Buffered<D> {
    pub line: usize,
    pub number: u64,
    pub store: Store,
    /// The read of an atomic.
    pub read: Read<D>,
}

/// The progress of an atomic's read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Read<D> {
    /// It is an ordinary store.
    Store,
    /// The atomic has not read yet.
    Due,
    /// The value read; until the commit the node keeps the line, unless a recovery takes it.
    Held(D),
}

/// A core.
#[derive(Clone, Debug)]
pub(super) struct Core<D> {
    pub stores_left: u32,
    pub atomics_left: u32,
    pub issued: u64,
    pub buffer: Vec<Buffered<D>>,
    pub sequence: u32,
}

/// A node without its cores and agents.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub others_left: u32,
    pub numbering: Numbering,
    pub unit: Unit,
    /// For each line the units that log it, as this node knows it, in the order in which they would
    /// save it.
    pub groups: Vec<Vec<NodeId>>,
    pub stage: Stage,
}

/// The last commit of the last step, if its node has sent nothing since.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastCommit<D> {
    pub node: NodeId,
    pub commit: Commit,
    pub line: usize,
    pub before: D,
    pub vals: NodeSet,
    /// Whether the Done was sent in the same step.
    pub done: bool,
}

/// The whole state of a machine.
#[derive(Clone, Debug)]
pub struct Replicated<D> {
    pub(super) setup: Setup,
    pub(super) base: World<D>,
    pub(super) cores: Vec<Core<D>>,
    pub(super) nodes: Vec<Node>,
    pub(super) log_messages: Vec<LogMessage>,
    /// The logs in the memory nodes.
    pub(super) archive: Vec<super::unit::Entry>,
    /// Up to which commit of each node the units have saved in the current round.
    pub(super) saved: Vec<Option<Vec<Commit>>>,
    pub(super) dumps_left: u32,
    pub(super) deaths_left: u32,
    pub(super) dead: NodeSet,
    /// The dead nodes that the manager knows.
    pub(super) known: NodeSet,
    /// Dead nodes of which nothing can be lost any more.
    pub(super) recovered: NodeSet,
    /// Lines that are to be repaired, as a bit set.
    pub(super) unrepaired: u32,
    pub(super) last_commit: Option<LastCommit<D>>,
    /// Lines with a commit of which some VALs are lost, and their contents before it: the contents
    /// before and after the commit are both right.
    pub(super) in_doubt: Vec<(usize, D)>,
}

impl<D: Payload> Replicated<D> {
    /// Creates a machine in its initial state.
    pub fn new(setup: Setup, rules: &ReplicatedRules) -> Replicated<D> {
        let Budget { stores, others } = setup.budget;
        let shape = setup.shape;
        let of = |budget: &[u32], which: usize| budget.get(which).copied().unwrap_or(0);
        let core = |which: usize| Core {
            stores_left: of(stores, which),
            atomics_left: of(setup.atomics, which),
            issued: 0,
            buffer: Vec::new(),
            sequence: 0,
        };
        let node = |which: usize| Node {
            others_left: of(others, which),
            numbering: Numbering::default(),
            unit: Unit::new(shape.nodes),
            groups: Vec::new(),
            stage: Stage::Running,
        };
        let mut world = Replicated {
            setup,
            base: World::new(shape, None),
            cores: (0..shape.nodes * setup.cores).map(core).collect(),
            nodes: (0..shape.nodes).map(node).collect(),
            log_messages: Vec::new(),
            archive: Vec::new(),
            saved: vec![None; shape.nodes],
            dumps_left: setup.dumps,
            deaths_left: setup.deaths,
            dead: NodeSet::EMPTY,
            known: NodeSet::EMPTY,
            recovered: NodeSet::EMPTY,
            unrepaired: 0,
            last_commit: None,
            in_doubt: Vec::new(),
        };
        for node in world.all() {
            world.form_groups(rules, node);
        }
        world
    }

    /// Returns all nodes, living and dead.
    pub(super) fn all(&self) -> impl Iterator<Item = NodeId> + use<D> {
        (0..self.setup.shape.nodes).map(NodeId::new)
    }

    pub(super) fn living(&self) -> impl Iterator<Item = NodeId> + use<D> {
        let dead = self.dead;
        self.all().filter(move |node| !dead.contains(*node))
    }

    /// Returns the cores of a node.
    pub(super) fn cores_of(&self, node: NodeId) -> impl Iterator<Item = Requester> + use<D> {
        (0..self.setup.cores as u8).map(move |core| Requester { node, core })
    }

    fn place(&self, who: Requester) -> usize {
        who.node.index() * self.setup.cores + usize::from(who.core)
    }

    pub(super) fn core(&self, who: Requester) -> &Core<D> {
        &self.cores[self.place(who)]
    }

    pub(super) fn core_mut(&mut self, who: Requester) -> &mut Core<D> {
        let place = self.place(who);
        &mut self.cores[place]
    }

    pub(super) fn node(&self, node: NodeId) -> &Node {
        &self.nodes[node.index()]
    }

    pub(super) fn node_mut(&mut self, node: NodeId) -> &mut Node {
        &mut self.nodes[node.index()]
    }

    pub(super) fn is_halted(&self, node: NodeId) -> bool {
        self.node(node).stage != Stage::Running
    }

    /// Returns whether a recovery is under way at any living node.
    pub(super) fn is_recovering(&self) -> bool {
        self.living().any(|node| self.is_halted(node))
    }

    /// Returns whether no message is under way.
    pub(super) fn is_drained(&self) -> bool {
        self.base.network.is_empty() && self.log_messages.is_empty()
    }

    /// Returns whether the oldest store of a core is to come to the head.
    pub(super) fn has_turn(&self, who: Requester) -> bool {
        let first = self.core(who).buffer.first();
        !self.is_halted(who.node) && first.is_some_and(|first| !first.store.state().is_head())
    }

    /// Returns whether a core may retire a store: no store passes an atomic.
    fn may_store(&self, who: Requester) -> bool {
        let core = self.core(who);
        core.stores_left > 0
            && core.buffer.len() < self.setup.buffer
            && core.buffer.iter().all(|store| store.read == Read::Store)
    }

    fn may_begin_atomic(&self, who: Requester) -> bool {
        let core = self.core(who);
        core.atomics_left > 0 && core.buffer.is_empty()
    }

    pub(super) fn may_die(&self) -> bool {
        self.deaths_left > 0
            && self.dead.minus(self.recovered).len() < self.setup.at_once
            && self.dead.len() + 1 < self.setup.shape.nodes
    }

    /// Lists all possible next steps.
    pub(super) fn happenings(&self, rules: &ReplicatedRules, into: &mut Vec<Happening>) {
        into.clear();
        let network = &self.base.network;
        for (place, packet) in network.iter().enumerate() {
            if (place == 0 || network[place - 1] != *packet) && !self.must_wait(rules, packet) {
                into.push(Happening::Coherence(Choice::Deliver(place)));
            }
        }
        into.extend((0..self.log_messages.len()).map(Happening::Log));
        for node in self.living().filter(|node| !self.is_halted(*node)) {
            for who in self.cores_of(node) {
                if self.has_turn(who) {
                    into.push(Happening::Turn(who));
                }
                for line in 0..self.setup.shape.lines {
                    if self.may_store(who) {
                        into.push(Happening::Retire(who, line));
                    }
                    if self.may_begin_atomic(who) {
                        into.push(Happening::Atomic(who, line));
                    }
                }
            }
            for line in 0..self.setup.shape.lines {
                self.other_accesses(rules, node, line, into);
            }
        }
        if self.may_die() {
            self.deaths(into);
        }
        self.recovery_steps(rules, into);
        if self.may_dump() {
            into.push(Happening::Dump);
        }
    }

    /// Lists the possible deaths: each living node may die, and a node that has just committed may
    /// die in the middle of sending. Losing all messages of its step equals an earlier death.
    fn deaths(&self, into: &mut Vec<Happening>) {
        into.extend(
            self.living()
                .map(|node| Happening::Die(node, Lost::NOTHING)),
        );
        let Some(last) = &self.last_commit else {
            return;
        };
        for done in [false, true] {
            if done && !last.done {
                break;
            }
            for vals in parts(last.vals) {
                let whole = vals == last.vals && done == last.done;
                let lost = Lost { vals, done };
                if lost != Lost::NOTHING && !whole {
                    into.push(Happening::Die(last.node, lost));
                }
            }
        }
    }

    fn other_accesses(
        &self,
        rules: &ReplicatedRules,
        node: NodeId,
        line: usize,
        into: &mut Vec<Happening>,
    ) {
        if self.node(node).others_left == 0 {
            return;
        }
        // A core's load of a line with a store in its buffer is served from the buffer.
        let forwarded = self.cores_of(node).all(|who| {
            let buffer = &self.core(who).buffer;
            buffer.iter().any(|store| store.line == line)
        });
        if self.base.may_access(node, line) {
            if !forwarded {
                let load = Choice::Access(node, line, Access::Load);
                into.push(Happening::Coherence(load));
            }
            let prefetch = Choice::Access(node, line, Access::Prefetch);
            into.push(Happening::Coherence(prefetch));
        }
        if self.base.may_evict(node, line) && !self.holds(rules, node, line) {
            into.push(Happening::Coherence(Choice::Evict(node, line)));
        }
    }
}

/// Returns all subsets of a set.
fn parts(all: NodeSet) -> impl Iterator<Item = NodeSet> {
    let nodes: Vec<_> = all.iter().collect();
    (0..1u32 << nodes.len()).map(move |bits| {
        let chosen = nodes.iter().enumerate();
        chosen
            .filter(|(place, _)| bits & 1 << place != 0)
            .map(|(_, node)| *node)
            .collect()
    })
}
