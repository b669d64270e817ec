//! What of a log in a memory node a recovery could ask for.

use std::collections::HashMap;

use crate::line::LineAddress;

use super::archive::Standing;
use super::entry::{Commit, LogEntry};

/// What is needed of all lines in a log.
///
/// A log has many entries, those of a line often one behind the other. So each is looked up once, and only if the one before it was of
/// another line.
pub(super) struct Needs {
    lines: Vec<Line>,
    /// For each entry, its line's place among them.
    places: Vec<u32>,
}

struct Line {
    line: LineAddress,
    /// The latest that is known.
    standing: Standing,
    /// Of the owner at that epoch, the last commit to each word.
    latest: [Commit; 8],
}

impl Needs {
    /// What is needed of these entries, if the directories of their lines have said this.
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

    /// Whether an entry is needed, if it is asked for all of them in their order.
    pub fn verdicts(&self) -> impl FnMut(&LogEntry) -> bool {
        let mut places = self.places.iter();
        move |entry| {
            let place = places.next().expect("an entry that was there");
            self.lines[*place as usize].needs(entry)
        }
    }

    /// The lines of which anything is needed, by rising address.
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
