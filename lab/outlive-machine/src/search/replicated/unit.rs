//! A reduced logging unit: the REPLs that wait for their VALs or for earlier VALs, and the latest
//! entries. The complete one is [`LoggingUnit`](crate::logging::LoggingUnit).

use crate::logging::{Commit, Requester};
use crate::protocol::{Epoch, NodeId};
use crate::search::payload::Payload;

/// A validated store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Entry {
    pub node: NodeId,
    pub line: usize,
    pub epoch: Epoch,
    pub commit: Commit,
    pub number: u64,
}

/// The content of a VAL.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Validation {
    /// The core that has committed.
    pub requester: Requester,
    /// The number of the REPL.
    pub sequence: u32,
    /// The index of the VAL among those from its node to this unit.
    pub timestamp: u32,
    /// The index of the store among its node's commits.
    pub commit: Commit,
    /// The epoch at which the node owns the line.
    pub epoch: Epoch,
}

/// A REPL that is not in the log yet, and its VAL if that has arrived.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Waiting {
    pub requester: Requester,
    pub sequence: u32,
    pub line: usize,
    pub number: u64,
    pub val: Option<Validation>,
}

impl Waiting {
    pub fn entry(&self) -> Option<Entry> {
        let Validation { commit, epoch, .. } = self.val?;
        Some(Entry {
            node: self.requester.node,
            line: self.line,
            epoch,
            commit,
            number: self.number,
        })
    }
}

#[derive(Clone, Debug)]
pub(super) struct Unit {
    pub waiting: Vec<Waiting>,
    pub log: Vec<Entry>,
    /// For each node, the timestamp and commit up to which its entries have been moved to `log`.
    pub moved: Vec<(u32, Commit)>,
}

impl Unit {
    pub fn new(nodes: usize) -> Unit {
        Unit {
            waiting: Vec::new(),
            log: Vec::new(),
            moved: vec![(0, Commit(0)); nodes],
        }
    }

    pub fn place(&self, requester: Requester, sequence: u32) -> Option<usize> {
        let is = |waiting: &Waiting| (waiting.requester, waiting.sequence) == (requester, sequence);
        self.waiting.iter().position(is)
    }

    /// Moves the validated entries of a node that miss no earlier timestamp to the log.
    pub fn advance<D: Payload>(&mut self, node: NodeId) {
        loop {
            let due = self.moved[node.index()].0 + 1;
            let is_due = |waiting: &Waiting| {
                waiting.requester.node == node
                    && waiting.val.is_some_and(|val| val.timestamp == due)
            };
            let Some(place) = self.waiting.iter().position(is_due) else {
                return;
            };
            let entry = self.waiting.remove(place).entry();
            let Some(entry) = entry else { return };
            self.moved[node.index()] = (due, entry.commit);
            put::<D>(&mut self.log, entry);
        }
    }

    /// Returns all validated entries.
    pub fn validated(&self) -> impl Iterator<Item = Entry> + '_ {
        let waiting = self.waiting.iter().filter_map(Waiting::entry);
        self.log.iter().copied().chain(waiting)
    }
}

/// Adds an entry to a log, which keeps the latest entry of a node for each word.
pub(super) fn put<D: Payload>(log: &mut Vec<Entry>, entry: Entry) {
    let same = |other: &Entry| {
        (other.node, other.line, D::word(other.number))
            == (entry.node, entry.line, D::word(entry.number))
    };
    if log
        .iter()
        .any(|other| same(other) && other.commit > entry.commit)
    {
        return;
    }
    log.retain(|other| !same(other));
    log.push(entry);
}
