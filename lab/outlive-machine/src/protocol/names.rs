//! The numbers of compute nodes, and sets of them.

use std::fmt;

/// The maximum number of compute nodes in a directory.
pub const MAX_NODES: usize = 32;

/// The number of a compute node, below [`MAX_NODES`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(u8);

impl NodeId {
    /// The node with this number.
    ///
    /// # Panics
    /// If `number` is not below [`MAX_NODES`]: descriptions of machines are checked before.
    pub const fn new(number: usize) -> NodeId {
        assert!(number < MAX_NODES, "a machine has at most 32 compute nodes");
        NodeId(number as u8)
    }

    /// Returns the number, as an index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CN{}", self.0)
    }
}

/// The number of an exclusive grant, given by the directory of the line. A node owns a line at an
/// epoch; a later grant of the line has a higher one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Epoch(pub u32);

/// A set of compute nodes, one bit for each.
///
/// ```
/// use outlive_machine::protocol::{NodeId, NodeSet};
///
/// let (a, b) = (NodeId::new(0), NodeId::new(3));
/// let both = NodeSet::only(a).with(b);
/// assert_eq!(both.without(a), NodeSet::only(b));
/// assert_eq!(both.iter().collect::<Vec<_>>(), [a, b]);
/// assert_eq!(both.to_string(), "{0,3}");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct NodeSet(u32);

impl NodeSet {
    /// The empty set.
    pub const EMPTY: NodeSet = NodeSet(0);

    /// The set of this node alone.
    pub const fn only(node: NodeId) -> NodeSet {
        NodeSet(1 << node.0)
    }

    /// Returns the set with this node.
    pub const fn with(self, node: NodeId) -> NodeSet {
        NodeSet(self.0 | 1 << node.0)
    }

    /// Returns the set without this node.
    pub const fn without(self, node: NodeId) -> NodeSet {
        NodeSet(self.0 & !(1 << node.0))
    }

    /// Returns the set without these nodes.
    pub const fn minus(self, nodes: NodeSet) -> NodeSet {
        NodeSet(self.0 & !nodes.0)
    }

    /// Returns whether the node is in the set.
    pub const fn contains(self, node: NodeId) -> bool {
        self.0 & (1 << node.0) != 0
    }

    /// Returns whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the number of nodes in the set.
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Returns the nodes, by rising number.
    pub fn iter(self) -> impl Iterator<Item = NodeId> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let lowest = left.checked_ilog2().map(|_| left.trailing_zeros() as u8)?;
            left &= left - 1;
            Some(NodeId(lowest))
        })
    }
}

impl FromIterator<NodeId> for NodeSet {
    fn from_iter<I: IntoIterator<Item = NodeId>>(nodes: I) -> NodeSet {
        nodes.into_iter().fold(NodeSet::EMPTY, NodeSet::with)
    }
}

impl fmt::Display for NodeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<_> = self.iter().map(|node| node.0.to_string()).collect();
        write!(f, "{{{}}}", numbers.join(","))
    }
}
