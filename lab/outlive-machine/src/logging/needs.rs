//! The entries of a log in a memory node that a recovery could ask for.

use std::collections::HashMap;

use crate::line::LineAddress;

use super::archive::Standing;
use super::entry::{Commit, LogEntry};

/// The needed entries of all lines in a log.
///
/// A log has many entries, and those of a line are often consecutive. So each line is looked up
/// only if the entry before was of another line.
pub(super) struct Needs {
    lines: Vec<Line>,
    /// For each entry, the index of its line in `lines`.
    places: Vec<u32>,
}

struct Line {
    line: LineAddress,
    /// The latest known owner and epoch.
    standing: Standing,
    /// For each word, the last commit of the owner at that epoch.
    latest: [Commit; 8],
}

impl Needs {
    /// Finds the needed entries, given the answers of the directories of their lines.
    pub fn of<'e>(
        entries: impl Iterator<Item = &'e LogEntry>,
        standing: impl Fn(LineAddress) -> Standing,
    ) -> Needs {
        let mut found = HashMap::<LineAddress, u32>::new();
        let (mut lines, mut places) = (Vec::<Line>::new(), Vec::new());
        let mut place = 0;
        for entry in entries {
            let line = entry.word.line();
            if lines
                .get(place as usize)
                .is_none_or(|last| last.line != line)
            {
                place = *found.entry(line).or_insert_with(|| {
                    lines.push(Line {
                        line,
                        standing: standing(line),
                        latest: [Commit(0); 8],
                    });
                    (lines.len() - 1) as u32
                });
            }
            places.push(place);
            lines[place as usize].take(entry);
        }
        Needs { lines, places }
    }

    /// Returns a test whether an entry is needed. It must be called for all entries in order.
    pub fn verdicts(&self) -> impl FnMut(&LogEntry) -> bool {
        let mut places = self.places.iter();
        move |entry| {
            let place = places.next().expect("an entry that was there");
            self.lines[*place as usize].needs(entry)
        }
    }

    /// Returns the lines of which an entry is needed, by rising address.
    pub fn lines(&self) -> Vec<LineAddress> {
        let needed = self
            .lines
            .iter()
            .filter(|line| line.latest != [Commit(0); 8]);
        let mut lines: Vec<_> = needed.map(|line| line.line).collect();
        lines.sort_unstable();
        lines
    }
}

impl Line {
    fn take(&mut self, entry: &LogEntry) {
        if entry.epoch > self.standing.epoch {
            self.standing = Standing {
                epoch: entry.epoch,
                owner: Some(entry.requester.node),
            };
            self.latest = [Commit(0); 8];
        }
        if !self.standing.is_past(entry) {
            let last = &mut self.latest[entry.word.place()];
            *last = entry.commit.max(*last);
        }
    }

    fn needs(&self, entry: &LogEntry) -> bool {
        !self.standing.is_past(entry) && self.latest[entry.word.place()] == entry.commit
    }
}
