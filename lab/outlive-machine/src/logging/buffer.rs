//! Replications that wait for their VAL, or for earlier VALs.

use crate::line::Line;
use crate::program::Word;
use crate::protocol::{Epoch, MAX_NODES, NodeId};

use super::entry::{Commit, LogEntry, Requester};
use super::error::LoggingError;
use super::message::{Repl, Val};

/// The logged entries that have not been moved to the DRAM log.
///
/// One record stands for all entries of a REPL, which are validated and moved together. The
/// unvalidated records of a core are a list in the order of arrival, in which a VAL nearly always
/// finds its REPL at the front. The validated records of a node that wait for an earlier timestamp
/// are a list in the order of timestamps.
#[derive(Clone, Debug)]
pub(super) struct Buffer {
    records: Vec<Record>,
    free: u32,
    cores_per_node: u8,
    /// First and last unvalidated record of each core.
    unvalidated: Box<[(u32, u32)]>,
    /// The latest sequence received from each core.
    latest: Box<[Option<u32>]>,
    /// First validated record of each node.
    validated: [u32; MAX_NODES],
    /// The timestamp up to which each node's entries have been moved.
    moved: [u32; MAX_NODES],
}

/// A REPL, and the data of its VAL.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    requester: Requester,
    sequence: u32,
    pub line: u64,
    pub mask: u8,
    /// The number of its entries that are in DRAM because the SRAM was full.
    pub spilled: u8,
    /// Whether this unit was not in the line's group when the REPL came.
    pub stray: bool,
    values: Line,
    timestamp: u32,
    commit: Commit,
    epoch: Epoch,
    next: u32,
}

const NONE: u32 = u32::MAX;

impl Record {
    /// Returns the number of its entries.
    pub fn words(&self) -> u32 {
        self.mask.count_ones()
    }

    /// Returns its entries, by rising address.
    pub fn entries(&self) -> impl Iterator<Item = LogEntry> + '_ {
        let written = (0..Word::PER_LINE).filter(|place| self.mask & (1 << place) != 0);
        written.map(|place| LogEntry {
            requester: self.requester,
            commit: self.commit,
            epoch: self.epoch,
            word: Word(self.line * Word::PER_LINE + place),
            value: self.values[place as usize],
        })
    }
}

impl Buffer {
    pub fn new(cores_per_node: u8, records: usize) -> Self {
        let cores = MAX_NODES * usize::from(cores_per_node);
        Self {
            records: Vec::with_capacity(records),
            free: NONE,
            cores_per_node,
            unvalidated: vec![(NONE, NONE); cores].into(),
            latest: vec![None; cores].into(),
            validated: [NONE; MAX_NODES],
            moved: [0; MAX_NODES],
        }
    }

    /// Logs a REPL.
    pub fn log(&mut self, repl: &Repl, spilled: u8, stray: bool) {
        let record = Record {
            requester: repl.requester,
            sequence: repl.sequence,
            line: repl.line.0,
            mask: repl.mask,
            spilled,
            stray,
            values: repl.values,
            timestamp: 0,
            commit: Commit(0),
            epoch: Epoch(0),
            next: NONE,
        };
        let at = match self.free {
            NONE => {
                self.records.push(record);
                self.records.len() as u32 - 1
            }
            at => {
                self.free = self.records[at as usize].next;
                self.records[at as usize] = record;
                at
            }
        };
        let core = self.core(repl.requester);
        if self.is_later(repl.requester, repl.sequence) {
            self.latest[core] = Some(repl.sequence);
        }
        let (first, last) = self.unvalidated[core];
        match last {
            NONE => self.unvalidated[core] = (at, at),
            last => {
                self.records[last as usize].next = at;
                self.unvalidated[core] = (first, at);
            }
        }
    }

    /// Returns whether this REPL waits for its VAL.
    pub fn waits(&self, requester: Requester, sequence: u32) -> bool {
        self.find(requester, sequence).is_some()
    }

    /// Returns whether this sequence follows all others from a core; then it need not be searched
    /// for. Sequences wrap round, and those under way at a time are close together.
    pub fn is_later(&self, requester: Requester, sequence: u32) -> bool {
        let latest = self.latest[self.core(requester)];
        latest.is_none_or(|latest| sequence.wrapping_sub(latest).cast_signed() > 0)
    }

    /// Returns whether the unit knows this core.
    pub fn knows(&self, requester: Requester) -> bool {
        requester.core < self.cores_per_node
    }

    /// Validates a REPL. Returns how many of its entries are in DRAM. It is moved by
    /// [`take`](Self::take).
    pub fn validate(&mut self, val: &Val) -> Result<u8, LoggingError> {
        let found = self.find(val.requester, val.sequence);
        let (before, at) = found.ok_or(LoggingError::Unknown {
            requester: val.requester,
            sequence: val.sequence,
        })?;
        let node = val.requester.node.index();
        let mut earlier = NONE;
        let mut later = self.validated[node];
        while later != NONE && self.records[later as usize].timestamp < val.timestamp {
            (earlier, later) = (later, self.records[later as usize].next);
        }
        let same = later != NONE && self.records[later as usize].timestamp == val.timestamp;
        if same || val.timestamp <= self.moved[node] {
            return Err(LoggingError::TimestampTwice {
                requester: val.requester,
                timestamp: val.timestamp,
            });
        }
        self.unlink(self.core(val.requester), before, at);
        let record = &mut self.records[at as usize];
        record.timestamp = val.timestamp;
        record.commit = val.commit;
        record.epoch = val.epoch;
        record.next = later;
        let spilled = record.spilled;
        match earlier {
            NONE => self.validated[node] = at,
            earlier => self.records[earlier as usize].next = at,
        }
        Ok(spilled)
    }

    /// Removes a node's next record to be moved: a validated one, if no earlier timestamp is
    /// missing.
    pub fn take(&mut self, node: NodeId) -> Option<Record> {
        let node = node.index();
        let at = self.validated[node];
        if at == NONE || self.records[at as usize].timestamp != self.moved[node] + 1 {
            return None;
        }
        self.moved[node] += 1;
        let record = self.records[at as usize];
        self.validated[node] = record.next;
        self.release(at);
        Some(record)
    }

    /// Drops the unvalidated records of a node. Returns the number of their entries, in all and in
    /// DRAM.
    pub fn forget(&mut self, node: NodeId) -> Result<(u32, u32), LoggingError> {
        if self.validated[node.index()] != NONE {
            return Err(LoggingError::Gap {
                node,
                missing: self.moved[node.index()] + 1,
            });
        }
        let (mut words, mut spilled) = (0, 0);
        for core in 0..self.cores_per_node {
            let core = self.core(Requester { node, core });
            let (mut at, _) = std::mem::replace(&mut self.unvalidated[core], (NONE, NONE));
            while at != NONE {
                let record = self.records[at as usize];
                words += record.words();
                spilled += u32::from(record.spilled);
                self.release(at);
                at = record.next;
            }
        }
        Ok((words, spilled))
    }

    /// Marks that no other unit can be relied on to have these entries.
    pub fn mark_stray(&mut self) {
        self.records
            .iter_mut()
            .for_each(|record| record.stray = true);
    }

    /// Returns the validated, unmoved records, for each node in the order of timestamps.
    pub fn validated(&self) -> impl Iterator<Item = &Record> {
        self.validated.iter().flat_map(|first| self.list(*first))
    }

    fn list(&self, mut at: u32) -> impl Iterator<Item = &Record> {
        std::iter::from_fn(move || {
            let record = self.records.get(at as usize)?;
            at = record.next;
            Some(record)
        })
    }

    /// Returns the place of an unvalidated record, and of the one before it in its list.
    fn find(&self, requester: Requester, sequence: u32) -> Option<(u32, u32)> {
        if !self.knows(requester) {
            return None;
        }
        let (mut before, mut at) = (NONE, self.unvalidated[self.core(requester)].0);
        while at != NONE && self.records[at as usize].sequence != sequence {
            (before, at) = (at, self.records[at as usize].next);
        }
        (at != NONE).then_some((before, at))
    }

    fn unlink(&mut self, core: usize, before: u32, at: u32) {
        let next = self.records[at as usize].next;
        let (first, last) = &mut self.unvalidated[core];
        match before {
            NONE => *first = next,
            before => self.records[before as usize].next = next,
        }
        if *last == at {
            *last = before;
        }
    }

    fn release(&mut self, at: u32) {
        self.records[at as usize].next = self.free;
        self.free = at;
    }

    fn core(&self, requester: Requester) -> usize {
        requester.node.index() * usize::from(self.cores_per_node) + usize::from(requester.core)
    }
}
