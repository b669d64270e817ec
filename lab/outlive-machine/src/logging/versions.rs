//! The latest versions of lines, found in logs.

use crate::line::{Line, LineAddress};
use crate::protocol::{Epoch, NodeId};

use super::entry::{Commit, LogEntry};

/// The logged updates of a line, from latest to earliest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LineVersions {
    /// Which line.
    pub line: LineAddress,
    /// Its updates. Those of one node in a unit's log are in the reverse order of its commits; in a memory node one may be there
    /// twice, and late, if who saved it died before it said so.
    pub updates: Vec<LogEntry>,
}

/// One way through a log, for all lines asked for.
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

    /// Meets the next older entry.
    pub fn meet(&mut self, entry: LogEntry) {
        let line = entry.word.line();
        if let Ok(at) = self.lines.binary_search_by_key(&line, |asked| asked.line) {
            self.lines[at].updates.push(entry);
        }
    }

    /// The lines by rising address, with or without updates.
    pub fn finish(self) -> Vec<LineVersions> {
        self.lines
    }
}

/// What a dead owner has committed to a line, gathered word by word from all logs.
///
/// Memory is current for all that was committed before the epoch at which the node owned the line, so only entries of this
/// node and epoch count; of them, for each word, that of the latest commit. Logs may be offered in any order, and the same
/// update any number of times. All are to be offered: those of the living units and those in the memory nodes. The paper
/// looks into the memory nodes only for what it finds in no unit; but a word of a line may have been dumped and cleared while
/// another of its words was written after.
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
    /// Nothing yet of a line that its directory has as owned by this node at this epoch.
    pub fn new(line: LineAddress, owner: NodeId, epoch: Epoch) -> Self {
        Self {
            line,
            owner,
            epoch,
            commits: [Commit(0); 8],
            values: [0; 8],
        }
    }

    /// The epoch whose updates count.
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

    /// Which words were written, bit `i` for word `i`.
    pub fn mask(&self) -> u8 {
        let written = |place: &usize| self.commits[*place] > Commit(0);
        (0..8).filter(written).map(|place| 1 << place).sum()
    }

    /// Brings the line as memory has it up to date.
    pub fn apply(&self, memory: &mut Line) {
        for (place, word) in memory.iter_mut().enumerate() {
            if self.commits[place] > Commit(0) {
                *word = self.values[place];
            }
        }
    }
}
