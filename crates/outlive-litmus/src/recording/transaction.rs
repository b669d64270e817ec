//! Recorded transactions, and the data that all connections of a recording share.

use super::objects::Objects;
use super::values;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::time::Instant;

/// The maximum number of transactions that wait for the writer. The next one waits for it.
const MAX_WAITING: usize = 1 << 16;

/// A read or a write of an object of the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    /// The value is absent if it is the initial one.
    Read {
        object: u64,
        value: Option<i64>,
    },
    Write {
        object: u64,
        value: i64,
    },
}

/// The end of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Completion {
    Committed,
    /// The transaction has no effect.
    Failed,
    Unknown,
}

/// A point in the order of all invocations and completions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    pub index: u64,
    /// The time since the recording began, in nanoseconds.
    pub time: u64,
}

/// A transaction that has ended.
#[derive(Debug)]
pub(super) struct Transaction {
    pub process: u64,
    pub invoked: Event,
    pub completed: Event,
    pub completion: Completion,
    pub operations: Vec<Operation>,
}

/// A message to the writer.
#[derive(Debug)]
pub(super) enum Record {
    Ended(Transaction),
    /// No other one follows.
    Finish,
}

/// The data that all connections of a recording share.
#[derive(Debug)]
pub(super) struct Recorder {
    pub objects: Objects,
    begin: Instant,
    events: AtomicU64,
    processes: AtomicU64,
    writes: AtomicU64,
    records: SyncSender<Record>,
    /// Whether the history is incomplete, for whatever reason.
    has_failed: AtomicBool,
    /// A value that could not be recorded; 0 if there is none.
    unrecorded: AtomicI64,
}

impl Recorder {
    /// Returns a recorder, and the records for its writer.
    pub fn new() -> (Self, Receiver<Record>) {
        let (sender, records) = mpsc::sync_channel(MAX_WAITING);
        let recorder = Self {
            objects: Objects::default(),
            begin: Instant::now(),
            events: AtomicU64::new(0),
            processes: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            records: sender,
            has_failed: AtomicBool::new(false),
            unrecorded: AtomicI64::new(0),
        };
        (recorder, records)
    }

    /// Returns the next point in the order of events.
    ///
    /// Relaxed: if one event happens before another one, its addition comes first in the order of
    /// modifications, and nothing else is read through the counter.
    pub fn event(&self) -> Event {
        Event {
            index: self.events.fetch_add(1, Ordering::Relaxed),
            time: self.begin.elapsed().as_nanos() as u64,
        }
    }

    /// Returns the number of a new process.
    pub fn process(&self) -> u64 {
        self.processes.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Returns the integer that is stored for a value that is about to be written.
    pub fn numbered(&self, value: i64) -> Option<i64> {
        let number = self.writes.fetch_add(1, Ordering::Relaxed) + 1;
        let numbered = values::numbered(value, number);
        if numbered.is_none() {
            self.refuse(value);
        }
        numbered
    }

    /// Records that the history is incomplete because `value` cannot be recorded.
    pub fn refuse(&self, value: i64) {
        self.unrecorded.store(value, Ordering::Relaxed);
        self.fail();
    }

    /// Returns the value that could not be recorded, if there is one.
    pub fn unrecorded(&self) -> Option<i64> {
        Some(self.unrecorded.load(Ordering::Relaxed)).filter(|it| *it != 0)
    }

    /// Records that the history is incomplete.
    pub fn fail(&self) {
        self.has_failed.store(true, Ordering::Relaxed);
    }

    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// Hands a transaction to the writer.
    pub fn record(&self, transaction: Transaction) {
        // After an error of the writer, and after the end, nothing is recorded.
        let _ = self.records.send(Record::Ended(transaction));
    }

    /// Tells the writer that the recording is over.
    pub fn finish(&self) {
        // A writer that has failed has ended.
        let _ = self.records.send(Record::Finish);
    }
}
