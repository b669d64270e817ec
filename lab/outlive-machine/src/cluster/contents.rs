//! The contents of shared memory, line by line, for callers that read all of it.

use super::Cluster;
use crate::line::{Line, LineAddress};
use crate::program::Thread;
use crate::protocol::{NodeId, NodeState};

impl<T: Thread> Cluster<T> {
    /// Returns the contents of a line of shared memory, wherever it is: the same as its
    /// [words](Self::word). Reading a word asks every node; this function asks the line's directory
    /// for the possible holders.
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
            // Contents that are under way may be newer than the directory's record.
            None => (0..self.nodes.len()).find_map(newest),
        };
        *written.unwrap_or_else(|| self.memory.line(line))
    }
}
