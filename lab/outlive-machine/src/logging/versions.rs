//! The latest versions of lines, found in logs.

use crate::line::{Line, LineAddress};
use crate::protocol::{Epoch, NodeId};

use super::entry::{Commit, LogEntry};

/// The logged updates of a line, in the reverse order of the log. Only the updates of one node are
/// in the order of their commits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LineVersions {
    /// The address of the line.
    pub line: LineAddress,
    /// Its updates. Those of one node in a unit's log are in the reverse order of its commits. In a
    /// memory node an update may appear twice, and late, if its saver died before it sent `Saved`.
    pub updates: Vec<LogEntry>,
}

/// One traversal of a log, for all requested lines.
pub(super) struct Traversal {
    lines: Vec<LineVersions>,
}

impl Traversal {
    pub fn new(lines: &[LineAddress]) -> Self {
        let mut lines = lines.to_vec();
        lines.sort_unstable();
        lines.dedup();
        let versions = |line| LineVersions {
            line,
            updates: Vec::new(),
        };
        Self {
            lines: lines.into_iter().map(versions).collect(),
        }
    }

    /// Visits the next older entry.
    pub fn meet(&mut self, entry: LogEntry) {
        let line = entry.word.line();
        if let Ok(at) = self.lines.binary_search_by_key(&line, |asked| asked.line) {
            self.lines[at].updates.push(entry);
        }
    }

    /// Returns the lines by rising address, with or without updates.
    pub fn finish(self) -> Vec<LineVersions> {
        self.lines
    }
}

/// The commits of a dead owner to a line, gathered word by word from all logs.
///
/// Memory is current for all commits before the epoch at which the node owned the line, so only
/// entries of this node and epoch count; for each word, the one of the latest commit. Logs may be
/// offered in any order, and the same update any number of times. All logs must be offered: those
/// of the living units and those in the memory nodes. The paper searches the memory nodes only for
/// lines that are in no unit; but a word of a line may have been dumped and cleared while another
/// of its words was written after.
///
/// ```
/// use outlive_machine::line::LineAddress;
/// use outlive_machine::logging::{Commit, Epoch, LatestWords, LogEntry, Requester};
/// use outlive_machine::program::Word;
/// use outlive_machine::protocol::NodeId;
///
/// let (dead, line) = (NodeId::new(3), LineAddress(1));
/// let entry = |commit, epoch, word, value| LogEntry {
///     requester: Requester { node: dead, core: 0 },
///     commit: Commit(commit),
///     epoch: Epoch(epoch),
///     word: Word(word),
///     value,
/// };
/// let mut latest = LatestWords::new(line, dead, Epoch(5));
/// for entry in [entry(12, 5, 9, 70), entry(11, 5, 9, 60), entry(10, 4, 8, 50)] {
///     latest.offer(&entry);
/// }
/// let mut memory = [1; 8];
/// latest.apply(&mut memory);
/// assert_eq!(memory, [1, 70, 1, 1, 1, 1, 1, 1]);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LatestWords {
    line: LineAddress,
    owner: NodeId,
    epoch: Epoch,
    commits: [Commit; 8],
    values: Line,
}

impl LatestWords {
    /// Creates an empty set of words for a line whose directory names this owner and epoch.
    pub fn new(line: LineAddress, owner: NodeId, epoch: Epoch) -> Self {
        Self {
            line,
            owner,
            epoch,
            commits: [Commit(0); 8],
            values: [0; 8],
        }
    }

    /// Returns the epoch whose updates count.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Takes an update into account. Those of other lines, nodes and epochs are ignored.
    pub fn offer(&mut self, entry: &LogEntry) {
        let counts = entry.word.line() == self.line
            && entry.requester.node == self.owner
            && entry.epoch == self.epoch;
        let place = entry.word.place();
        if counts && entry.commit > self.commits[place] {
            self.commits[place] = entry.commit;
            self.values[place] = entry.value;
        }
    }

    /// Returns the mask of the written words, bit `i` for word `i`.
    pub fn mask(&self) -> u8 {
        let written = |place: &usize| self.commits[*place] > Commit(0);
        (0..8).filter(written).map(|place| 1 << place).sum()
    }

    /// Applies the words to the line's contents in memory.
    pub fn apply(&self, memory: &mut Line) {
        for (place, word) in memory.iter_mut().enumerate() {
            if self.commits[place] > Commit(0) {
                *word = self.values[place];
            }
        }
    }
}
