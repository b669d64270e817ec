//! The part of shared memory that a node owns, which a recovery would search for if it died now.

use super::Cluster;
use crate::line::LineAddress;
use crate::program::Thread;
use crate::protocol::{NodeId, NodeState};

/// Lines that the directories record as owned by a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnedLines {
    /// All of them: the paper's Owned lines. A node drops unwritten lines silently, so it may have
    /// fewer.
    pub recorded: u64,
    /// Of them, those that the node has written and memory has not: the paper's Dirty lines.
    pub dirty: u64,
}

impl<T: Thread> Cluster<T> {
    /// Returns the lines that a compute node owns now. A line that its directory is serving counts
    /// as the node's if the node could write it. Scans every line of shared memory.
    pub fn owned_lines(&self, node: NodeId) -> OwnedLines {
        let mut owned = OwnedLines::default();
        for line in (0..self.memory.len()).map(LineAddress) {
            let directory = self.memory.directory(line);
            if !directory.holders().contains(node) {
                continue;
            }
            let agent = self.nodes[node.index()].agent(line);
            let dirty = matches!(agent, NodeState::M | NodeState::MI);
            let recorded = match directory.record() {
                Some(record) => record.owned,
                None => dirty || agent == NodeState::E,
            };
            owned.recorded += u64::from(recorded || dirty);
            owned.dirty += u64::from(dirty);
        }
        owned
    }
}
