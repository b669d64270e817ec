//! What shared memory holds, line by line, for whoever reads all of it.

use super::Cluster;
use crate::line::{Line, LineAddress};
use crate::program::Thread;
use crate::protocol::{NodeId, NodeState};

impl<T: Thread> Cluster<T> {
    /// What a line of shared memory holds, wherever it stands: the same as each of its [words](Self::word), of which each asks
    /// every node. Here the line's directory is asked who may have it.
    ///
    /// # Panics
    ///
    /// If shared memory has no such line.
    pub fn line(&self, line: LineAddress) -> Line {
        let directory = self.memory.directory(line);
        let newest = |node: usize| {
            let node = &self.nodes[node];
            let newest = matches!(
                node.agent(line),
                NodeState::E | NodeState::M | NodeState::MI
            );
            node.contents(line).filter(|_| newest)
        };
        let written = match directory.record() {
            Some(record) => record.holders.iter().map(NodeId::index).find_map(newest),
            // What is under way may be ahead of what the directory knows.
            None => (0..self.nodes.len()).find_map(newest),
        };
        *written.unwrap_or_else(|| self.memory.line(line))
    }
}
