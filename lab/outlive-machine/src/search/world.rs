//! A machine without time: agents, directories, and messages under way, any of which may arrive
//! next.

use super::check::Claims;
use super::machine::Machine;
use super::payload::Payload;
use super::violation::Violation;
use crate::protocol::{Directory, Epoch, NodeId, NodeState, Tables, ToDirectory, ToNode};

/// The size of a machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Compute nodes.
    pub nodes: usize,
    /// Lines, each with a directory.
    pub lines: usize,
    /// The number of lines that fit into a node's caches. Write-back buffers do not count.
    pub capacity: usize,
}

/// The rules that drive a machine: a protocol, and messages that it may ignore where they have no
/// row (see [`Mutant`](super::Mutant)).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rules {
    /// The tables of the controllers.
    pub tables: Tables,
    /// Messages that are accepted without effect where they have no row.
    pub swallowed: &'static [Kind],
}

impl Rules {
    /// Returns rules with these tables, which swallow nothing.
    pub fn strict(tables: &Tables) -> Rules {
        Rules {
            tables: tables.clone(),
            swallowed: &[],
        }
    }
}

/// The kind of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// To a directory.
    Up(ToDirectory<()>),
    /// To a node.
    Down(ToNode<()>),
}

/// An access that a core asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Read.
    Load,
    /// Write.
    Store,
    /// Get permission to write.
    Prefetch,
}

impl Access {
    /// All kinds of access.
    pub const ALL: [Access; 3] = [Access::Load, Access::Store, Access::Prefetch];
    pub(super) const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// A possible next step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    /// A core asks for an access.
    Access(NodeId, usize, Access),
    /// A node's caches drop a line.
    Evict(NodeId, usize),
    /// The message at this index among those under way arrives.
    Deliver(usize),
}

/// A message under way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Packet<D> {
    /// The line that it is about.
    pub line: usize,
    /// The node that sends or receives it.
    pub node: NodeId,
    /// From a directory: the number of its last exclusive grant.
    pub epoch: Epoch,
    /// The direction and the content.
    pub message: Message<D>,
}

/// A message and its direction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Message<D> {
    /// To the directory.
    Up(ToDirectory<D>),
    /// To the node.
    Down(ToNode<D>),
}

/// The state of one line in one node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Agent<D> {
    /// The agent's state.
    pub state: NodeState,
    /// The contents in the node's caches or in its write-back buffer.
    pub copy: Option<D>,
    /// The epoch of the last grant of the only copy to this node.
    pub epoch: Epoch,
    pub(super) waiting: u8,
}

impl<D> Agent<D> {
    /// Returns whether no access waits.
    pub fn is_idle(&self) -> bool {
        self.waiting == 0
    }

    /// Returns whether the line has a place in the caches, or is to have one.
    pub(super) fn takes_room(&self) -> bool {
        !matches!(self.state, NodeState::I | NodeState::MI | NodeState::II) || !self.is_idle()
    }
}

/// The state of one line in its memory node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Home<D> {
    /// The directory's state.
    pub directory: Directory,
    /// The contents in memory.
    pub memory: D,
    /// The contents after the last store, known to the check alone.
    pub last: D,
}

/// The whole state of a machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct World<D> {
    pub(super) shape: Shape,
    pub(super) agents: Vec<Agent<D>>,
    pub(super) homes: Vec<Home<D>>,
    pub(super) network: Vec<Packet<D>>,
    /// How many more accesses and evictions each node's cores will ask for; `None`: any number.
    pub(super) left: Option<Vec<u8>>,
    /// The number of stores so far; stays zero where contents are abstract.
    pub(super) stores: u64,
}

impl<D: Payload> World<D> {
    /// Creates a machine in its initial state, in which each node will ask for `budget` accesses
    /// and evictions (`None`: any number).
    pub fn new(shape: Shape, budget: Option<u8>) -> World<D> {
        let home = Home {
            directory: Directory::default(),
            memory: D::INITIAL,
            last: D::INITIAL,
        };
        World {
            shape,
            agents: vec![
                Agent {
                    state: NodeState::I,
                    copy: None,
                    epoch: Epoch(0),
                    waiting: 0
                };
                shape.nodes * shape.lines
            ],
            homes: vec![home; shape.lines],
            network: Vec::new(),
            left: budget.map(|budget| vec![budget; shape.nodes]),
            stores: 0,
        }
    }

    /// Returns the size of the machine.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Returns the state of a line in a node.
    pub fn agent(&self, node: NodeId, line: usize) -> &Agent<D> {
        &self.agents[node.index() * self.shape.lines + line]
    }

    pub(super) fn agent_mut(&mut self, node: NodeId, line: usize) -> &mut Agent<D> {
        &mut self.agents[node.index() * self.shape.lines + line]
    }

    /// Returns all nodes.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + use<D> {
        (0..self.shape.nodes).map(NodeId::new)
    }

    /// Returns the messages under way.
    pub fn network(&self) -> &[Packet<D>] {
        &self.network
    }

    /// Returns whether a core of `node` may access the line: it has a place in the caches, or one
    /// is free.
    pub fn may_access(&self, node: NodeId, line: usize) -> bool {
        let agent = self.agent(node, line);
        let lines = &self.agents[node.index() * self.shape.lines..][..self.shape.lines];
        self.may_ask(node)
            && (agent.takes_room()
                || lines.iter().filter(|agent| agent.takes_room()).count() < self.shape.capacity)
    }

    /// Returns whether the caches of `node` may drop the line.
    pub fn may_evict(&self, node: NodeId, line: usize) -> bool {
        self.may_ask(node) && self.agent(node, line).state.is_evictable()
    }

    fn may_ask(&self, node: NodeId) -> bool {
        self.left.as_ref().is_none_or(|left| left[node.index()] > 0)
    }

    /// Lists all possible next steps. Equal messages under way count once; for that they must be
    /// sorted.
    pub fn choices(&self, choices: &mut Vec<Choice>) {
        choices.clear();
        for (place, packet) in self.network.iter().enumerate() {
            if place == 0 || self.network[place - 1] != *packet {
                choices.push(Choice::Deliver(place));
            }
        }
        for node in self.nodes() {
            for line in 0..self.shape.lines {
                if self.may_access(node, line) {
                    choices.extend(Access::ALL.map(|access| Choice::Access(node, line, access)));
                }
                if self.may_evict(node, line) {
                    choices.push(Choice::Evict(node, line));
                }
            }
        }
    }
}

impl<D: Payload> Machine for World<D> {
    type Rules = Rules;
    type Choice = Choice;

    fn list(&self, _: &Rules, choices: &mut Vec<Choice>) {
        self.choices(choices);
    }

    fn take(&mut self, rules: &Rules, choice: Choice) -> Result<(), Violation> {
        self.apply(rules, choice)
    }

    fn judge(&self, _: &Rules, claims: Claims) -> Result<(), Violation> {
        self.check_claims(claims)
    }

    fn settle(&mut self) {
        self.network.sort_unstable();
    }

    fn is_quiet(&self) -> bool {
        self.network.is_empty()
    }

    fn follows(choice: Choice) -> bool {
        matches!(choice, Choice::Deliver(_))
    }

    fn describe(&self, choice: Choice) -> (usize, String) {
        self.told(choice)
    }

    fn summary(&self, line: usize) -> String {
        self.summed_up(line)
    }
}
