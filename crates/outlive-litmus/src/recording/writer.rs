//! The thread that writes a history.
//!
//! Transactions arrive in the order of their ends, and lines are written in the order of events. A
//! line waits until all before it have been written: those of a transaction that has not ended are
//! not known yet.

use super::edn;
use super::transaction::{Record, Recorder, Transaction};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::thread;
use std::time::Duration;

/// The time between two polls of the records. A writer that waits for each record would have to be
/// woken by the client, with a system call for each transaction.
const INTERVAL: Duration = Duration::from_millis(5);
/// The number of bytes after which lines are written.
const FULL: usize = 64 << 10;

/// Writes all records to `file`, and returns the number of transactions.
pub(super) fn write(
    file: File,
    records: &Receiver<Record>,
    recorder: &Recorder,
) -> Result<u64, io::Error> {
    let mut lines = Lines::new(file);
    let written = run(&mut lines, records);
    if written.is_err() {
        recorder.fail();
        lines.cut();
    }
    written
}

fn run(lines: &mut Lines, records: &Receiver<Record>) -> Result<u64, io::Error> {
    let mut transactions = 0;
    loop {
        match records.try_recv() {
            Ok(Record::Ended(transaction)) => {
                transactions += 1;
                lines.add(&transaction)?;
            }
            Err(TryRecvError::Empty) => {
                lines.flush()?;
                thread::sleep(INTERVAL);
            }
            Ok(Record::Finish) | Err(TryRecvError::Disconnected) => {
                lines.finish()?;
                return Ok(transactions);
            }
        }
    }
}

/// The lines of a history.
struct Lines {
    file: File,
    /// The lines that can be written.
    ready: String,
    /// The length of the file, which ends with a whole line.
    length: u64,
    /// The index of the next line.
    next: u64,
    /// The lines after it that are known already, by their indices.
    waiting: BTreeMap<u64, String>,
}

impl Lines {
    fn new(file: File) -> Self {
        Self {
            file,
            ready: String::with_capacity(2 * FULL),
            length: 0,
            next: 0,
            waiting: BTreeMap::new(),
        }
    }

    /// Adds the lines of a transaction.
    fn add(&mut self, transaction: &Transaction) -> Result<(), io::Error> {
        self.line(transaction.invoked.index, |text| {
            edn::invocation(text, transaction);
        });
        self.line(transaction.completed.index, |text| {
            edn::completion(text, transaction);
        });
        match self.ready.len() >= FULL {
            true => self.flush(),
            false => Ok(()),
        }
    }

    fn line(&mut self, index: u64, print: impl FnOnce(&mut String)) {
        if index != self.next {
            let mut text = String::new();
            print(&mut text);
            self.waiting.insert(index, text);
            return;
        }
        print(&mut self.ready);
        self.next += 1;
        while let Some(text) = self.waiting.remove(&self.next) {
            self.ready += &text;
            self.next += 1;
        }
    }

    /// Writes the lines that can be written.
    fn flush(&mut self) -> Result<(), io::Error> {
        if self.ready.is_empty() {
            return Ok(());
        }
        self.file.write_all(self.ready.as_bytes())?;
        self.length += self.ready.len() as u64;
        self.ready.clear();
        Ok(())
    }

    /// Writes all lines. Those of transactions that have not ended are missing between them.
    fn finish(&mut self) -> Result<(), io::Error> {
        for text in std::mem::take(&mut self.waiting).into_values() {
            self.ready += &text;
        }
        self.flush()
    }

    /// Removes the part of a line that a failed write has left.
    fn cut(&mut self) {
        // Not possible for a pipe or a device, whose reader has the part already.
        let _ = self.file.set_len(self.length);
    }
}
