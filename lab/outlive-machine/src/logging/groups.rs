//! Replica groups: the nodes that log a line, and the node that saves it.

use crate::description::{Description, OwnUnit, ReplicaHash};
use crate::line::{Line, LineAddress};
use crate::protocol::{MAX_NODES, NodeId, NodeSet};

/// The replica groups of a machine: for each line, the nodes that log its updates.
///
/// There are as many groups as living nodes. A hash of the line's address chooses a living node; it
/// and the next living nodes, N_r in all (or all, if fewer live), are the group. So the groups
/// overlap in a ring, each node is in N_r of them, and the members of a group depend only on the
/// address and on the nodes that lived when the groups were formed.
///
/// The group logs the line's stores, except for those of a member, if the description has its own
/// unit [skipped](OwnUnit::Skipped): then the next node of the ring logs these in its stead. If no
/// more nodes live than there are replicas, there is no such node, and all others log them. One
/// replica less does not mean that one failure less is tolerated: the requester has its own stores
/// itself, and a copy in its own unit would die with it. Only a node that lives alone logs for
/// itself, so that its commits still reach the memory nodes.
///
/// ```
/// use outlive_machine::description::Description;
/// use outlive_machine::line::LineAddress;
/// use outlive_machine::logging::ReplicaGroups;
/// use outlive_machine::protocol::NodeId;
///
/// let groups = ReplicaGroups::new(&Description::default());
/// let line = LineAddress(12);
/// let members = groups.members(line);
/// assert_eq!(members.len(), 3);
/// // One of them saves the line's entries, and with one dead, one of the others.
/// let requester = NodeId::new(0);
/// let saver = groups.saver(line, requester, members).unwrap();
/// let other = groups.saver(line, requester, members.without(saver)).unwrap();
/// assert!(members.contains(other) && other != saver);
/// // After a recovery the groups are those of the living.
/// let without = groups.living().without(saver);
/// let groups = groups.regrouped(without);
/// assert_eq!(groups.members(line).len(), 3);
/// assert!(!groups.members(line).contains(saver));
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplicaGroups {
    nodes: [NodeId; MAX_NODES],
    count: u8,
    factor: u8,
    hash: ReplicaHash,
    own_unit: OwnUnit,
    range_lines: u64,
}

impl ReplicaGroups {
    /// The groups of a machine with a checked description, while all its nodes live.
    ///
    /// # Panics
    /// With more than [`MAX_NODES`] nodes.
    pub fn new(description: &Description) -> Self {
        let replication = &description.ours.replication;
        Self {
            nodes: [NodeId::new(0); MAX_NODES],
            count: 0,
            factor: description.logging_unit.replication_factor as u8,
            hash: replication.replica_hash,
            own_unit: replication.own_unit,
            range_lines: replication.dump_range.0 / size_of::<Line>() as u64,
        }
        .regrouped(
            (0..description.system.compute_nodes as usize)
                .map(NodeId::new)
                .collect(),
        )
    }

    /// Returns the groups over these nodes instead.
    ///
    /// # Panics
    /// Without nodes.
    #[must_use]
    pub fn regrouped(&self, living: NodeSet) -> Self {
        assert!(!living.is_empty(), "at least one node must be alive");
        let mut nodes = self.nodes;
        for (place, node) in nodes.iter_mut().zip(living.iter()) {
            *place = node;
        }
        Self {
            nodes,
            count: living.len() as u8,
            ..*self
        }
    }

    /// Returns the nodes over which the groups were formed.
    pub fn living(&self) -> NodeSet {
        self.nodes[..usize::from(self.count)]
            .iter()
            .copied()
            .collect()
    }

    /// Returns whether a requester's own unit counts as one of those that log its stores.
    pub fn own_unit(&self) -> OwnUnit {
        self.own_unit
    }

    /// Returns the number of groups.
    pub fn count(&self) -> usize {
        usize::from(self.count)
    }

    /// Returns the group of a line, from 0.
    #[inline]
    pub fn group(&self, line: LineAddress) -> usize {
        let count = u64::from(self.count);
        match self.hash {
            ReplicaHash::Multiply => {
                let mixed = line.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                ((u128::from(mixed) * u128::from(count)) >> 64) as usize
            }
            ReplicaHash::Modulo => (line.0 % count) as usize,
        }
    }

    /// Returns the members of a line's group.
    #[inline]
    pub fn members(&self, line: LineAddress) -> NodeSet {
        self.ring(line).take(usize::from(self.factor)).collect()
    }

    /// Returns the nodes that log a node's stores to a line.
    #[inline]
    pub fn replicas(&self, line: LineAddress, requester: NodeId) -> NodeSet {
        self.loggers(line, requester).collect()
    }

    /// Returns the node that saves the entries of a node's stores to a line, among the nodes that
    /// log them, in a dump in which only the nodes `among` take part; `None` if none of them does.
    ///
    /// The address space is cut into ranges
    /// ([`dump_range`](crate::description::Replication::dump_range)), which are assigned
    /// round-robin to the nodes that take part.
    #[inline]
    pub fn saver(&self, line: LineAddress, requester: NodeId, among: NodeSet) -> Option<NodeId> {
        let able = |node: &NodeId| among.contains(*node);
        let count = self.loggers(line, requester).filter(able).count() as u64;
        let turn = (line.0 / self.range_lines).checked_rem(count)?;
        let mut loggers = self.loggers(line, requester).filter(able);
        loggers.nth(turn as usize)
    }

    #[inline]
    fn loggers(&self, line: LineAddress, requester: NodeId) -> impl Iterator<Item = NodeId> {
        let skips = self.own_unit == OwnUnit::Skipped && self.count > 1;
        let others = self
            .ring(line)
            .filter(move |node| !skips || *node != requester);
        others.take(usize::from(self.factor))
    }

    /// Returns all nodes, those of the line's group first.
    #[inline]
    fn ring(&self, line: LineAddress) -> impl Iterator<Item = NodeId> {
        let (first, count) = (self.group(line), self.count());
        (first..first + count).map(move |at| self.nodes[if at < count { at } else { at - count }])
    }
}
