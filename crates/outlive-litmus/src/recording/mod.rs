//! Records the transactions of a run as a history, for public checkers of histories.
//!
//! The checkers of [Elle's] family infer the order of transactions from the values that were read.
//! A [`Recording`] writes a file that they read: an *rw-register* history in EDN, in Jepsen's
//! format. Each line is an operation, the invocation or the completion of a transaction:
//!
//! ```text
//! {:index 0, :type :invoke, :process 2, :f :txn, :value [[:r 7 nil] [:w 7 100000001]], :time 4100}
//! {:index 1, :type :ok, :process 2, :f :txn, :value [[:r 7 nil] [:w 7 100000001]], :time 9200}
//! ```
//!
//! | completion | transaction |
//! | --- | --- |
//! | `:ok` | its commit was acknowledged |
//! | `:fail` | no effect: it was aborted or refused, or its client crashed before the commit |
//! | `:info` | its outcome is unknown |
//!
//! **Values.** A checker can only infer an order if each value of an object is written once, while
//! the transactions of a litmus test write few values again and again. So each write gets a number,
//! and the store holds the [number and the value](values) in one integer. The tester sees the value
//! alone: a recorded run executes and evaluates the same tests. The history has the whole integer.
//!
//! **Objects.** Each time the tester sets an object to its initial value, the object gets a new key
//! in the history, and its initial value, or absence, is `nil` there.
//!
//! **Deletions.** A deletion is the write of a value that no read returns. A read that returns
//! nothing from an object that was to be deleted could have seen any of the deletions, so the
//! history omits it, and all counts. Both make the history weaker, and never wrong.
//!
//! **Order.** The indices are those of the real-time order: an invocation has its index before the
//! request of `begin`, a completion after the last answer. The values of an invocation are known at
//! the end of its transaction, so its line and all later ones are written then.
//!
//! **A tester that dies** leaves all lines before the invocation of the oldest transaction that it
//! had not ended. The writer appends whole lines only; the operating system can cut the last line
//! when it kills the process in the middle of a write. An error of the file ends the run, and the
//! file is cut after its last whole line.
//!
//! [Elle's]: https://github.com/jepsen-io/elle
//!
//! Tests: tests/recorded, with a reader of its own.

mod driver;
mod edn;
mod objects;
mod transaction;
pub mod values;
mod writer;

use crate::driver::Driver;
use driver::Recorded;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use thiserror::Error;
use transaction::Recorder;

/// A history that is being written.
///
/// ```
/// use outlive_litmus::driver::{Driver, open};
/// use outlive_litmus::recording::Recording;
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = |name| folder.path().join(name);
/// # let target = format!("sqlite:{}", path("x.db").display());
/// # let file = path("history.edn");
///
/// let recording = Recording::create(&file)?;
/// let driver = recording.driver(open(&target)?.into());
/// driver.create()?;
/// driver.set(&[(1, Some(10))])?;
/// let mut connection = driver.connect()?;
/// connection.begin()?;
/// let value = connection.read(1)?;
/// connection.write(1, value.unwrap() + 1)?;
/// connection.commit()?;
/// assert_eq!(recording.finish()?, 1);
/// let history = std::fs::read_to_string(&file)?;
/// assert!(history.contains(":type :ok, :process 1, "));
/// assert!(history.contains(":value [[:r 1 nil] [:w 1 100000011]]"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Recording {
    recorder: Arc<Recorder>,
    writer: JoinHandle<Result<u64, io::Error>>,
    path: PathBuf,
}

/// The reason why a history is incomplete.
#[derive(Debug, Error)]
pub enum RecordingError {
    /// The file cannot be created.
    #[error("the history {path} cannot be created: {source}; name a file in an existing folder")]
    Create {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The file cannot be written to.
    #[error(
        "the history {path} cannot be written to: {source}; it ends after the last whole line \
         before that. Free space, or name a file in another file system"
    )]
    Write {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A value cannot be stored together with the number of its write.
    #[error(
        "the value {0} cannot be recorded: only values from -{max} to {max} can be stored with the \
         number of their write; use smaller values in the test",
        max = values::MAX
    )]
    Value(i64),
    /// The writer cannot be started.
    #[error("the thread that writes the history cannot be started: {0}; raise `ulimit -u`")]
    Thread(io::Error),
    /// The writer has panicked.
    #[error("the thread that writes the history has panicked; it printed the reason")]
    Panicked,
}

impl Recording {
    /// Creates the file, or replaces it, and starts the thread that writes to it.
    ///
    /// # Errors
    /// If the file cannot be created, or the thread not be started.
    pub fn create(path: &Path) -> Result<Self, RecordingError> {
        let file = File::create(path).map_err(|source| RecordingError::Create {
            path: path.into(),
            source,
        })?;
        let (recorder, records) = Recorder::new();
        let recorder = Arc::new(recorder);
        let writing = {
            let recorder = Arc::clone(&recorder);
            move || writer::write(file, &records, &recorder)
        };
        let writer = thread::Builder::new().name("history".into()).spawn(writing);
        Ok(Self {
            recorder,
            writer: writer.map_err(RecordingError::Thread)?,
            path: path.into(),
        })
    }

    /// Returns a driver that records all transactions on the store of `driver`.
    ///
    /// After an error of the recording, [`Driver::set`] fails, which ends the tests.
    pub fn driver(&self, driver: Arc<dyn Driver>) -> Arc<dyn Driver> {
        Arc::new(Recorded::new(driver, Arc::clone(&self.recorder)))
    }

    /// Writes the rest of the history, and returns the number of its transactions. One that another
    /// thread has not ended is not part of it.
    ///
    /// # Errors
    /// If the history is incomplete.
    pub fn finish(self) -> Result<u64, RecordingError> {
        self.recorder.finish();
        let written = self.writer.join().map_err(|_| RecordingError::Panicked)?;
        let transactions = written.map_err(|source| RecordingError::Write {
            path: self.path,
            source,
        })?;
        match self.recorder.unrecorded() {
            Some(value) => Err(RecordingError::Value(value)),
            None => Ok(transactions),
        }
    }
}
