//! Databases that speak SQL over a network: the statements that their drivers share.
//!
//! Objects are the rows of the table `outlive_litmus`, and each step of a transaction is one
//! statement. Statements are texts, not prepared: their only parameters are integers, and each of
//! them needs one round trip. A count is one statement with a predicate on the primary key.

use super::{Capabilities, Connection, Driver, DriverError, Key, StepError};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The time in seconds for which the driver's own statements wait for a lock.
pub(super) const PATIENCE: u32 = 10;

/// A connection to a database of one kind.
///
/// The connection is cut when it is dropped. The database then rolls its transaction back.
pub(super) trait Session: Sized + Send + 'static {
    /// The address of the database.
    type Address: Send + Sync;
    /// Ends the definition of the table.
    const TABLE: &'static str;
    /// The statements that prepare a connection of the driver itself: commits are durable, and
    /// transactions take no more locks than they need.
    const OWN: &'static str;
    /// Ends an `INSERT`, so that it overwrites the value of a row that exists.
    const OVERWRITE: &'static str;

    /// Opens a connection, and executes the statements `prepare` on it, separated by semicolons.
    fn open(address: &Self::Address, prepare: &str) -> Result<Self, StepError>;

    /// Executes a statement. After an error, a transaction can still be open.
    fn execute(&mut self, sql: &str) -> Result<Answer, StepError>;
}

/// The answer to a statement.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Answer {
    /// The number in the first row.
    pub number: Option<i64>,
    /// The number of rows that were found by a change.
    pub rows: u64,
}

/// A database.
pub(super) struct Database<S: Session> {
    target: String,
    address: S::Address,
    prepare: String,
    /// A connection for the driver's own statements, if one is open.
    own: Mutex<Option<S>>,
}

impl<S: Session> Database<S> {
    /// Returns the driver for a database. `prepare` has the statements that prepare a connection,
    /// separated by semicolons.
    pub fn new(target: &str, address: S::Address, prepare: String) -> Self {
        Self {
            target: target.into(),
            address,
            prepare,
            own: Mutex::new(None),
        }
    }

    /// Executes a statement of the driver itself. It is repeated if the database aborts it, or if a
    /// connection that was open before is lost, so it must have the same effect twice.
    fn execute(&self, sql: &str) -> Result<Answer, DriverError> {
        let begin = Instant::now();
        let patience = Duration::from_secs(PATIENCE.into());
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let was_open = own.is_some();
            let result = match own.take() {
                Some(open) => Ok(open),
                None => S::open(&self.address, S::OWN),
            };
            let result = result.and_then(|mut session| {
                let answer = session.execute(sql)?;
                *own = Some(session);
                Ok(answer)
            });
            match result {
                Ok(answer) => return Ok(answer),
                Err(StepError::Aborted(_)) if begin.elapsed() < patience => {}
                Err(StepError::Lost(_)) if was_open => {}
                Err(error) => return Err(self.error(error)),
            }
        }
    }

    fn error(&self, error: impl ToString) -> DriverError {
        DriverError::new(&self.target, error.to_string())
    }
}

impl<S: Session> Driver for Database<S> {
    fn capabilities(&self) -> Capabilities {
        Capabilities::ALL
    }

    fn create(&self) -> Result<(), DriverError> {
        self.execute(&format!(
            "CREATE TABLE IF NOT EXISTS outlive_litmus \
             (id BIGINT PRIMARY KEY, value BIGINT NOT NULL) {}",
            S::TABLE
        ))?;
        // The statement fails if another program's table has no columns with these names.
        let any = "SELECT count(*) FROM (SELECT id, value FROM outlive_litmus LIMIT 1) AS found";
        if self.execute(any)?.number == Some(0) {
            return Ok(());
        }
        Err(self.error(
            "the table `outlive_litmus` is not empty, after another run perhaps; name another \
             database, or remove the table with `DROP TABLE outlive_litmus`",
        ))
    }

    fn set(&self, objects: &[(Key, Option<i64>)]) -> Result<(), DriverError> {
        let present = objects
            .iter()
            .filter_map(|(key, value)| Some((key, (*value)?)));
        let rows: Vec<_> = present
            .map(|(key, value)| format!("({key}, {value})"))
            .collect();
        if !rows.is_empty() {
            let rows = rows.join(", ");
            let overwrite = S::OVERWRITE;
            self.execute(&format!(
                "INSERT INTO outlive_litmus VALUES {rows} {overwrite}"
            ))?;
        }
        let absent = objects.iter().filter(|(_, value)| value.is_none());
        let keys: Vec<_> = absent.map(|(key, _)| key.to_string()).collect();
        if !keys.is_empty() {
            let keys = keys.join(", ");
            self.execute(&format!("DELETE FROM outlive_litmus WHERE id IN ({keys})"))?;
        }
        Ok(())
    }

    fn connect(&self) -> Result<Box<dyn Connection>, DriverError> {
        let session = S::open(&self.address, &self.prepare).map_err(|error| self.error(error))?;
        Ok(Box::new(Client(session)))
    }

    fn destroy(&self) -> Result<(), DriverError> {
        self.execute("DROP TABLE IF EXISTS outlive_litmus")
            .map(drop)
    }
}

struct Client<S>(S);

impl<S: Session> Client<S> {
    /// Executes a step. After an error, the transaction is rolled back.
    fn step(&mut self, sql: &str) -> Result<Answer, StepError> {
        self.0.execute(sql).map_err(|error| self.end(error))
    }

    /// Executes a statement that changes one object.
    fn change(&mut self, sql: &str) -> Result<(), StepError> {
        match self.step(sql)?.rows {
            0 => Err(self.end(StepError::Refused)),
            _ => Ok(()),
        }
    }

    /// Rolls the transaction back because of `error`.
    fn end(&mut self, error: StepError) -> StepError {
        if matches!(error, StepError::Lost(_)) {
            return error;
        }
        match self.0.execute("ROLLBACK") {
            Ok(_) => error,
            Err(failed) => StepError::Lost(format!("after `{error}`: {failed}")),
        }
    }
}

impl<S: Session> Connection for Client<S> {
    fn begin(&mut self) -> Result<(), StepError> {
        self.step("START TRANSACTION").map(drop)
    }

    fn read(&mut self, key: Key) -> Result<Option<i64>, StepError> {
        let sql = format!("SELECT value FROM outlive_litmus WHERE id = {key}");
        Ok(self.step(&sql)?.number)
    }

    fn write(&mut self, key: Key, value: i64) -> Result<(), StepError> {
        self.change(&format!(
            "UPDATE outlive_litmus SET value = {value} WHERE id = {key}"
        ))
    }

    fn insert(&mut self, key: Key, value: i64) -> Result<(), StepError> {
        self.change(&format!(
            "INSERT INTO outlive_litmus VALUES ({key}, {value})"
        ))
    }

    fn delete(&mut self, key: Key) -> Result<(), StepError> {
        self.change(&format!("DELETE FROM outlive_litmus WHERE id = {key}"))
    }

    fn count(&mut self, range: Range<Key>) -> Result<u64, StepError> {
        let Some(last) = range.end.checked_sub(1) else {
            return Ok(0);
        };
        let first = range.start;
        let sql = "SELECT count(*) FROM outlive_litmus WHERE id BETWEEN";
        let number = self.step(&format!("{sql} {first} AND {last}"))?.number;
        Ok(number.unwrap_or_default() as u64)
    }

    fn commit(&mut self) -> Result<(), StepError> {
        self.step("COMMIT").map(drop)
    }

    fn abort(&mut self) -> Result<(), StepError> {
        self.step("ROLLBACK").map(drop)
    }
}
