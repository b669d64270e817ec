//! The judge of recoveries, for tests: values committed before a death must exist afterwards.
//!
//! A commit is certain if all its VALs have left its node, or if it has none to send. A commit with
//! lost VALs counts as a whole or not at all. If it counts, all earlier commits of its node count
//! too, whatever their lines: together they are the node's actions up to some moment.

use std::collections::VecDeque;

use crate::cluster::Cluster;
use crate::description::Protocol;
use crate::line::{Line, LineAddress};
use crate::parts::Port;
use crate::program::{Thread, Word};
use crate::protocol::{MAX_NODES, NodeId};

/// A commit that may be lost with its node.
#[derive(Clone, Debug)]
struct Fresh {
    /// The number of messages that its node had sent when its VALs had left.
    left: u64,
    line: LineAddress,
    words: u8,
    before: Line,
    values: Line,
}

/// The last commits of a dead node, which may be lost.
#[derive(Clone, Debug)]
struct Doubt {
    node: NodeId,
    /// The commits in order.
    commits: Vec<Fresh>,
    /// Element N: whether the first N of the commits may be the ones that count.
    possible: Vec<bool>,
}

/// The last commits of each node, and those of dead nodes that are in doubt.
#[derive(Clone, Debug)]
pub(in crate::cluster) struct Journal {
    fresh: Vec<VecDeque<Fresh>>,
    doubts: Vec<Doubt>,
    /// Words written through by dead nodes and not committed: persistent memory may have them.
    through: Vec<(NodeId, LineAddress, u8, Line)>,
}

fn write(line: &mut Line, words: u8, values: &Line) {
    for place in (0..8).filter(|place| words & 1 << place != 0) {
        line[place] = values[place];
    }
}

impl Journal {
    pub fn new() -> Journal {
        Journal {
            fresh: vec![VecDeque::new(); MAX_NODES],
            doubts: Vec::new(),
            through: Vec::new(),
        }
    }

    /// Records a node's commit to a line that held `before`. Commits that have come to the switch
    /// cannot be lost.
    pub fn commit(
        &mut self,
        n: usize,
        (line, words, values): (LineAddress, u8, Line),
        before: Line,
        at_switch: u64,
    ) {
        let fresh = &mut self.fresh[n];
        while fresh.front().is_some_and(|first| first.left <= at_switch) {
            fresh.pop_front();
        }
        fresh.push_back(Fresh {
            left: u64::MAX,
            line,
            words,
            before,
            values,
        });
    }

    /// Records that all messages of a node's last commit have left, `messages` in all.
    pub fn has_left(&mut self, n: usize, messages: u64) {
        if let Some(last) = self.fresh[n].back_mut() {
            last.left = messages;
        }
    }

    /// Returns whether a line may hold `contents` after its dead owner was removed, if `last` was
    /// committed to it last.
    fn judge(&mut self, line: LineAddress, owner: NodeId, contents: &Line, last: &Line) -> bool {
        let through = self
            .through
            .iter()
            .find(|(node, at, ..)| (*node, *at) == (owner, line));
        if let Some((.., words, values)) = through {
            let mut with = *last;
            write(&mut with, *words, values);
            if with == *contents {
                return true;
            }
        }
        let doubt = self.doubts.iter_mut().find(|doubt| {
            doubt.node == owner && doubt.commits.iter().any(|commit| commit.line == line)
        });
        let Some(doubt) = doubt else {
            return contents == last;
        };
        let own = doubt.commits.iter().find(|commit| commit.line == line);
        let mut held = own.map_or(*last, |first| first.before);
        for count in 0..=doubt.commits.len() {
            if let Some(commit) = count.checked_sub(1).map(|place| &doubt.commits[place])
                && commit.line == line
            {
                write(&mut held, commit.words, &commit.values);
            }
            doubt.possible[count] &= held == *contents;
        }
        doubt.possible.contains(&true)
    }
}

impl super::super::oracle::Oracle {
    /// Records that a recovery gave `contents` to a line that a dead node owned.
    pub fn recovered(&mut self, line: LineAddress, owner: NodeId, contents: &Line) {
        let first = (line.0 * Word::PER_LINE) as usize;
        let mut last = [0; 8];
        last.copy_from_slice(&self.words[first..][..8]);
        self.restored += 1;
        if !self.journal.judge(line, owner, contents, &last) {
            self.lost.push(format!(
                "{line} belonged to {owner}, which had left {last:?} there, but a recovery gave it \
                 {contents:?}"
            ));
        }
        self.words[first..][..8].copy_from_slice(contents);
    }
}

/// The results of a machine's judge.
#[derive(Clone, Default, Debug)]
pub struct Judged {
    /// The number of committed entries of store buffers.
    pub commits: u64,
    /// Lines of dead owners that recoveries have repaired.
    pub restored: u64,
    /// Lines that do not hold after a recovery the values that were committed to them.
    pub lost: Vec<String>,
}

impl<T: Thread> Cluster<T> {
    /// Returns the judge's results, if the machine [is judged](Self::judge_values).
    pub fn judged(&self) -> Option<Judged> {
        self.oracle.as_ref().map(|oracle| Judged {
            commits: oracle.commits,
            restored: oracle.restored,
            lost: oracle.lost.clone(),
        })
    }

    /// Records the death of a node, of which `passes` messages come to the switch.
    pub(super) fn judge_death(&mut self, node: NodeId, passes: u64) {
        let through = self.protocol == Protocol::WriteThrough;
        let cores = self.cores_of(node.index());
        let Some(oracle) = &mut self.oracle else {
            return;
        };
        let fresh = std::mem::take(&mut oracle.journal.fresh[node.index()]);
        let commits: Vec<Fresh> = fresh
            .into_iter()
            .filter(|commit| commit.left > passes)
            .collect();
        // Values that were written through and committed are in persistent memory.
        if !commits.is_empty() && !through {
            let possible = vec![true; commits.len() + 1];
            oracle.journal.doubts.push(Doubt {
                node,
                commits,
                possible,
            });
        }
        for core in self.cores[cores].iter().filter(|_| through) {
            if let Some(head) = core.stores.front().filter(|head| head.pinned_at.is_some()) {
                let (line, words, values) = (head.line, head.words, head.values);
                oracle.journal.through.push((node, line, words, values));
            }
        }
        oracle.deaths.push((node, oracle.committed.len()));
    }

    /// Returns the number of messages of a node that have come to the switch.
    pub(in crate::cluster) fn at_switch(&self, n: usize) -> u64 {
        self.tally.at_switch(Port(n as u16))
    }
}
