//! The DRAM log: validated entries, from older to newer.

use crate::description::Description;
use crate::protocol::{MAX_NODES, NodeId};

use super::buffer::Record;
use super::entry::{Commit, LogEntry, Packed};

/// For each node, the commit up to which something holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Through([Commit; MAX_NODES]);

impl Through {
    /// Returns the last commit of the node; `Commit(0)` is none.
    pub fn of(&self, node: NodeId) -> Commit {
        self.0[node.index()]
    }

    /// Sets the last commit of the node.
    pub fn set(&mut self, node: NodeId, commit: Commit) {
        self.0[node.index()] = commit;
    }

    /// Returns whether the entry's commit is covered.
    pub fn covers(&self, entry: &LogEntry) -> bool {
        entry.commit <= self.of(entry.requester.node)
    }
}

/// The log of a unit. An entry takes 24 bytes of the host, and only used entries take memory; the
/// allocation is kept when the log is cleared, so that a log in steady use allocates nothing.
///
/// Entries of one node are in the order of its commits. The order says nothing about entries of
/// different nodes.
#[derive(Clone, Debug)]
pub(super) struct DramLog {
    entries: Vec<Packed>,
    capacity: u64,
    through: Through,
}

impl DramLog {
    pub fn new(description: &Description) -> Self {
        let size = description.logging_unit.log_size.0;
        Self {
            entries: Vec::new(),
            capacity: size / description.ours.replication.log_entry.0,
            through: Through::default(),
        }
    }

    /// Appends the entries of a record.
    pub fn append(&mut self, record: &Record) {
        for entry in record.entries() {
            self.through.set(entry.requester.node, entry.commit);
            self.entries.push(Packed::new(&entry, record.stray));
        }
    }

    /// Returns, for each node, its last commit that arrived here.
    pub fn through(&self) -> Through {
        self.through
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the capacity, in entries.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    pub fn is_full(&self) -> bool {
        self.entries.len() as u64 >= self.capacity
    }

    /// Returns the entries from older to newer, and whether each is a stray.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (LogEntry, bool)> {
        let entries = self.entries.iter();
        entries.map(|packed| (packed.entry(), packed.is_stray()))
    }

    /// Drops the entries for which `saved` returns true. Its arguments are the place from the
    /// oldest, the entry, and whether it is a stray.
    pub fn clear(&mut self, mut saved: impl FnMut(usize, &LogEntry, bool) -> bool) {
        let mut at = 0;
        self.entries.retain(|packed| {
            let goes = saved(at, &packed.entry(), packed.is_stray());
            at += 1;
            !goes
        });
    }

    pub fn mark_stray(&mut self) {
        self.entries.iter_mut().for_each(Packed::mark_stray);
    }
}
