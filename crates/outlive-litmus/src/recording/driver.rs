//! A driver that records the transactions of another one.

use super::objects::Object;
use super::transaction::{Completion, Event, Operation, Recorder, Transaction};
use super::values;
use crate::driver::{Capabilities, Connection, Driver, DriverError, Key, StepError};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// A driver that records the transactions of another one.
pub(super) struct Recorded {
    driver: Arc<dyn Driver>,
    recorder: Arc<Recorder>,
}

impl Recorded {
    pub fn new(driver: Arc<dyn Driver>, recorder: Arc<Recorder>) -> Self {
        Self { driver, recorder }
    }
}

impl Driver for Recorded {
    fn capabilities(&self) -> Capabilities {
        self.driver.capabilities()
    }

    fn create(&self) -> Result<(), DriverError> {
        self.driver.create()
    }

    fn set(&self, objects: &[(Key, Option<i64>)]) -> Result<(), DriverError> {
        let initial = objects.iter().filter_map(|(_, value)| *value);
        if let Some(value) = initial.into_iter().find(|it| !values::is_initial(*it)) {
            self.recorder.refuse(value);
        }
        if self.recorder.has_failed() {
            let problem = "the run cannot be recorded any more; the reason follows at its end";
            return Err(DriverError::new("history", problem));
        }
        self.recorder.objects.set(objects);
        self.driver.set(objects)
    }

    fn connect(&self) -> Result<Box<dyn Connection>, DriverError> {
        Ok(Box::new(Client {
            connection: self.driver.connect()?,
            recorder: Arc::clone(&self.recorder),
            undoes: self.driver.capabilities().abort,
            process: self.recorder.process(),
            open: None,
        }))
    }

    fn destroy(&self) -> Result<(), DriverError> {
        self.driver.destroy()
    }

    fn kills_in_commits(&self) -> bool {
        self.driver.kills_in_commits()
    }
}

/// A transaction that has not ended.
struct Open {
    invoked: Event,
    operations: Vec<Operation>,
}

/// A connection that records its transactions.
struct Client {
    connection: Box<dyn Connection>,
    recorder: Arc<Recorder>,
    /// Whether the store undoes the writes of a transaction that does not commit.
    undoes: bool,
    process: u64,
    open: Option<Open>,
}

impl Client {
    fn object(&self, key: Key) -> Arc<Object> {
        self.recorder.objects.get(key)
    }

    fn push(&mut self, operation: Operation) {
        if let Some(open) = &mut self.open {
            open.operations.push(operation);
        }
    }

    /// Records a write that is about to be requested. Returns the integer to store.
    fn push_write(&mut self, object: &Object, value: i64) -> Result<i64, StepError> {
        let Some(value) = self.recorder.numbered(value) else {
            return self.ended_by(Err(StepError::Lost("a value is too large".into())));
        };
        self.push(Operation::Write {
            object: object.key,
            value,
        });
        Ok(value)
    }

    /// Ends the transaction, if it has not ended.
    fn end(&mut self, completion: Completion) {
        let Some(open) = self.open.take() else { return };
        self.recorder.record(Transaction {
            process: self.process,
            invoked: open.invoked,
            completed: self.recorder.event(),
            completion,
            operations: open.operations,
        });
        if completion == Completion::Unknown {
            // An operation that may still run occupies its process for ever.
            self.process = self.recorder.process();
        }
    }

    /// Ends the transaction before its commit.
    fn end_early(&mut self) {
        let is_write = |it: &Operation| matches!(it, Operation::Write { .. });
        let writes = |it: &Open| it.operations.iter().any(is_write);
        // A store that cannot abort may keep single writes.
        let may_stay = !self.undoes && self.open.as_ref().is_some_and(writes);
        self.end(match may_stay {
            true => Completion::Unknown,
            false => Completion::Failed,
        });
    }

    /// Ends the transaction if its step has failed.
    fn ended_by<T>(&mut self, step: Result<T, StepError>) -> Result<T, StepError> {
        if step.is_err() {
            self.end_early();
        }
        step
    }

    /// Ends the transaction with the answer to its commit.
    fn committed(&mut self, answer: &Result<(), StepError>) {
        match answer {
            Ok(()) => self.end(Completion::Committed),
            Err(StepError::Lost(_)) => self.end(Completion::Unknown),
            Err(_) => self.end_early(),
        }
    }
}

impl Connection for Client {
    fn begin(&mut self) -> Result<(), StepError> {
        self.end_early();
        self.open = Some(Open {
            invoked: self.recorder.event(),
            operations: Vec::new(),
        });
        let begun = self.connection.begin();
        self.ended_by(begun)
    }

    fn read(&mut self, key: Key) -> Result<Option<i64>, StepError> {
        let object = self.object(key);
        let read = self.connection.read(key);
        let read = self.ended_by(read)?;
        if read.is_some() || !object.is_deleted() {
            self.push(Operation::Read {
                object: object.key,
                value: read.filter(|it| Some(*it) != object.initial),
            });
        }
        Ok(read.map(values::value))
    }

    fn write(&mut self, key: Key, value: i64) -> Result<(), StepError> {
        let object = self.object(key);
        let value = self.push_write(&object, value)?;
        let written = self.connection.write(key, value);
        self.ended_by(written)
    }

    fn insert(&mut self, key: Key, value: i64) -> Result<(), StepError> {
        let object = self.object(key);
        let value = self.push_write(&object, value)?;
        let inserted = self.connection.insert(key, value);
        self.ended_by(inserted)
    }

    fn delete(&mut self, key: Key) -> Result<(), StepError> {
        let object = self.object(key);
        object.delete();
        self.push_write(&object, 0)?;
        let deleted = self.connection.delete(key);
        self.ended_by(deleted)
    }

    fn count(&mut self, range: Range<Key>) -> Result<u64, StepError> {
        let counted = self.connection.count(range);
        self.ended_by(counted)
    }

    fn commit(&mut self) -> Result<(), StepError> {
        let answer = self.connection.commit();
        self.committed(&answer);
        answer
    }

    fn commit_and_kill(&mut self, delay: Duration) -> Option<Result<(), StepError>> {
        let answer = self.connection.commit_and_kill(delay);
        match &answer {
            Some(answer) => self.committed(answer),
            None => self.end(Completion::Unknown),
        }
        answer
    }

    fn abort(&mut self) -> Result<(), StepError> {
        let aborted = self.connection.abort();
        self.end_early();
        aborted
    }
}

impl Drop for Client {
    /// Ends the transaction of a client that crashes.
    fn drop(&mut self) {
        self.end_early();
    }
}
