//! Compute nodes by number, and sets of them.

use std::fmt;

/// How many compute nodes a directory can tell apart.
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
        assert!(
            number < MAX_NODES,
            "a directory tells 32 compute nodes apart"
        );
        NodeId(number as u8)
    }

    /// The number again, to index with.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CN{}", self.0)
    }
}

/// The number of an exclusive grant, given by the directory of the line. A node owns a line at an epoch; a later grant of
/// the line has a higher one.
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
    /// No node.
    pub const EMPTY: NodeSet = NodeSet(0);

    /// This node and no other.
    pub const fn only(node: NodeId) -> NodeSet {
        NodeSet(1 << node.0)
    }

    /// The set and this node.
    pub const fn with(self, node: NodeId) -> NodeSet {
        NodeSet(self.0 | 1 << node.0)
    }

    /// The set but for this node.
    pub const fn without(self, node: NodeId) -> NodeSet {
        NodeSet(self.0 & !(1 << node.0))
    }

    /// The set but for all of these.
    pub const fn minus(self, nodes: NodeSet) -> NodeSet {
        NodeSet(self.0 & !nodes.0)
    }

    /// Whether the node is in the set.
    pub const fn contains(self, node: NodeId) -> bool {
        self.0 & (1 << node.0) != 0
    }

    /// Whether nobody is in it.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// How many are in it.
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// The nodes, by rising number.
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
