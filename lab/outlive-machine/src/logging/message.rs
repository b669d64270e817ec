//! The messages from requesters to logging units, and their numbering.

use crate::line::{Line, LineAddress};
use crate::protocol::{Epoch, MAX_NODES, NodeId};

use super::entry::{Commit, Requester};

/// REPL: log these words of a line.
///
/// The sequence is ours. The paper's VAL names its REPL by requester and line; but a core may have
/// two REPLs of one line under way (with another line's store between them), and the fabric may
/// reorder them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Repl {
    /// The core that stores.
    pub requester: Requester,
    /// Distinguishes this REPL from others of the requester that are not validated. The same for
    /// all replicas.
    pub sequence: u32,
    /// The address of the line.
    pub line: LineAddress,
    /// The written words, bit `i` for word `i`. (Two coalesced stores to parts of one word are one
    /// word here, and one entry.)
    pub mask: u8,
    /// Their values; the others are ignored.
    pub values: Line,
}

/// REPL_ACK: the logging unit of this node has all of that REPL.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ReplAck {
    /// The node of the logging unit.
    pub from: NodeId,
    /// The core that stores.
    pub requester: Requester,
    /// The sequence of the REPL.
    pub sequence: u32,
}

/// VAL: that REPL is committed.
///
/// Its sequence is in the header, and the other three numbers take 12 bytes: with the header two
/// slots of a flit, as the paper's timestamp alone does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Val {
    /// The core that stores.
    pub requester: Requester,
    /// The sequence of the REPL.
    pub sequence: u32,
    /// The number of this VAL among those from its node to this unit, from 1.
    pub timestamp: u32,
    /// The number of the store among the commits of its node.
    pub commit: Commit,
    /// The epoch at which the node owns the line.
    pub epoch: Epoch,
}

/// The counters of a node's commits and VALs; plain state of the node.
///
/// When a store commits, the machine takes its [`commit`](Self::commit), and for each replica a
/// [`timestamp`](Self::timestamp).
///
/// ```
/// use outlive_machine::logging::{Commit, Numbering};
/// use outlive_machine::protocol::NodeId;
///
/// let mut numbering = Numbering::default();
/// assert_eq!(numbering.commit(), Commit(1));
/// assert_eq!([1, 2].map(|to| numbering.timestamp(NodeId::new(to))), [1, 1]);
/// assert_eq!(numbering.commit(), Commit(2));
/// assert_eq!([2, 3].map(|to| numbering.timestamp(NodeId::new(to))), [2, 1]);
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Numbering {
    commits: u32,
    timestamps: [u32; MAX_NODES],
}

impl Numbering {
    /// Returns the number of the next commit.
    ///
    /// # Panics
    /// After 2³² − 1 commits; a run has fewer.
    pub fn commit(&mut self) -> Commit {
        self.commits = count(self.commits);
        Commit(self.commits)
    }

    /// Returns the timestamp of the next VAL to a unit.
    ///
    /// # Panics
    /// After 2³² − 1 of them.
    pub fn timestamp(&mut self, to: NodeId) -> u32 {
        let last = &mut self.timestamps[to.index()];
        *last = count(*last);
        *last
    }
}

fn count(last: u32) -> u32 {
    last.checked_add(1)
        .expect("a node has less than 2^32 commits")
}
