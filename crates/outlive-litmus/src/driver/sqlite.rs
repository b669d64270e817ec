//! SQLite, in a file: `sqlite:PATH?NAME=VALUE&...`.
//!
//! | parameter | values | default |
//! | --- | --- | --- |
//! | `begin` | `deferred`, `immediate`, `exclusive`: how transactions begin | `deferred` |
//! | `busy` | time in milliseconds for which a statement waits for a lock | 1000 |
//! | `journal` | `wal`, `delete`, `truncate`, `persist`, `memory`, `off`: the journal mode | that of the database |
//! | `synchronous` | `off`, `normal`, `full`, `extra` | SQLite's |
//! | `cache` | `private`, `shared`: whether the connections of this process share a cache | `private` |
//! | `read` | `committed`, `uncommitted`: with a shared cache, whether reads see open transactions | `committed` |
//!
//! A statement or a commit that finds the database locked (`SQLITE_BUSY`, `SQLITE_LOCKED`), or the
//! snapshot of its transaction outdated (`SQLITE_BUSY_SNAPSHOT`), aborts its transaction.

use super::target::{Parameters, Scheme};
use super::{Capabilities, Connection, Driver, DriverError, Key, StepError};
use rusqlite::{Error, ErrorCode, OpenFlags, OptionalExtension};
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

/// The scheme `sqlite`.
pub const SCHEME: Scheme = Scheme {
    name: "sqlite",
    form: "sqlite:PATH",
    about: "SQLite, in a file; it is created if it does not exist",
    open: |target, place| Ok(Box::new(Sqlite::new(target, place)?)),
};

/// The time for which the driver's own statements wait for a lock.
const PATIENCE: Duration = Duration::from_secs(10);

/// A database of SQLite.
#[derive(Debug)]
pub struct Sqlite {
    target: String,
    path: PathBuf,
    begin: &'static str,
    busy: Duration,
    /// The statements that prepare a connection, except for the journal.
    pragmas: String,
    journal: Option<&'static str>,
    flags: OpenFlags,
}

impl Sqlite {
    /// Returns the driver for `target`, with `place` as the part after the scheme.
    ///
    /// # Errors
    /// If the target names no file, or a parameter has no such value.
    pub fn new(target: &str, place: &str) -> Result<Self, DriverError> {
        let (path, mut given) = Parameters::split(target, place)?;
        let begin = given.choice("begin", &["deferred", "immediate", "exclusive"])?;
        let busy = given.number("busy")?.unwrap_or(1000);
        let journals = ["wal", "delete", "truncate", "persist", "memory", "off"];
        let journal = given.choice("journal", &journals)?;
        let synchronous = given.choice("synchronous", &["off", "normal", "full", "extra"])?;
        let cache = given.choice("cache", &["private", "shared"])?;
        let read = given.choice("read", &["committed", "uncommitted"])?;
        given.end()?;
        let refuse = |problem: &str| Err(DriverError::malformed(target, problem));
        if path.is_empty() || path == ":memory:" {
            return refuse(
                "a test opens several connections to one database, so it must be in a file; write \
                 `sqlite:PATH`",
            );
        }
        let (is_shared, is_dirty) = (cache == Some("shared"), read == Some("uncommitted"));
        if is_dirty && !is_shared {
            return refuse(
                "only connections with `cache=shared` can read uncommitted values; add that \
                 parameter",
            );
        }
        let synchronous = synchronous.map(|it| format!("PRAGMA synchronous = {it};"));
        let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        if is_shared {
            flags |= OpenFlags::SQLITE_OPEN_SHARED_CACHE;
        }
        Ok(Self {
            target: target.into(),
            path: path.into(),
            begin: begin.unwrap_or("deferred"),
            busy: Duration::from_millis(busy.into()),
            pragmas: format!(
                "PRAGMA read_uncommitted = {}; {}",
                u8::from(is_dirty),
                synchronous.unwrap_or_default()
            ),
            journal,
            flags,
        })
    }

    fn connection(
        &self,
        flags: OpenFlags,
        busy: Duration,
        pragmas: &str,
    ) -> Result<rusqlite::Connection, DriverError> {
        let open = || {
            let connection = rusqlite::Connection::open_with_flags(&self.path, flags)?;
            // A change of the journal needs all locks, so it waits as long as the driver's own
            // statements.
            connection.busy_timeout(PATIENCE)?;
            let Some(journal) = self.journal else {
                return Ok((connection, None));
            };
            let pragma = format!("PRAGMA journal_mode = {journal}");
            let mode: String = connection.query_row(&pragma, [], |row| row.get(0))?;
            Ok((connection, Some(mode).filter(|it| it != journal)))
        };
        let (connection, other) = open().map_err(|error| self.error(error))?;
        if let Some(mode) = other {
            let problem = format!(
                "the journal mode of the database remains `{mode}`; close its other connections, \
                 or omit `journal`"
            );
            return Err(DriverError::new(&self.target, problem));
        }
        let prepared = connection.execute_batch(pragmas);
        let prepared = prepared.and_then(|()| connection.busy_timeout(busy));
        prepared.map_err(|error| self.error(error))?;
        Ok(connection)
    }

    /// Executes `work` on a connection with durable commits.
    fn execute<T>(
        &self,
        work: impl FnOnce(&rusqlite::Connection) -> Result<T, Error>,
    ) -> Result<T, DriverError> {
        let flags = self.flags - OpenFlags::SQLITE_OPEN_SHARED_CACHE;
        let connection = self.connection(flags, PATIENCE, "PRAGMA synchronous = EXTRA")?;
        work(&connection).map_err(|error| self.error(error))
    }

    fn error(&self, error: Error) -> DriverError {
        DriverError::new(&self.target, format!("SQLite: {error}"))
    }
}

impl Driver for Sqlite {
    fn capabilities(&self) -> Capabilities {
        Capabilities::ALL
    }

    fn create(&self) -> Result<(), DriverError> {
        let is_used: bool = self.execute(|connection| {
            connection.execute_batch(
                "CREATE TABLE IF NOT EXISTS outlive_litmus \
                 (key INTEGER PRIMARY KEY, value INTEGER NOT NULL)",
            )?;
            // The statement fails if another program's table has no columns with these names.
            let any = "SELECT EXISTS (SELECT key, value FROM outlive_litmus)";
            connection.query_row(any, [], |row| row.get(0))
        })?;
        if !is_used {
            return Ok(());
        }
        let problem = "the table `outlive_litmus` is not empty, after another run perhaps; name \
                       another file, or remove the table with `DROP TABLE outlive_litmus`";
        Err(DriverError::new(&self.target, problem))
    }

    fn set(&self, objects: &[(Key, Option<i64>)]) -> Result<(), DriverError> {
        self.execute(|connection| {
            connection.execute_batch("BEGIN IMMEDIATE")?;
            let mut put =
                connection.prepare("INSERT OR REPLACE INTO outlive_litmus VALUES (?, ?)")?;
            let mut delete = connection.prepare("DELETE FROM outlive_litmus WHERE key = ?")?;
            for (key, value) in objects {
                match value {
                    Some(value) => put.execute((*key as i64, value))?,
                    None => delete.execute([*key as i64])?,
                };
            }
            connection.execute_batch("COMMIT")
        })
    }

    fn connect(&self) -> Result<Box<dyn Connection>, DriverError> {
        Ok(Box::new(Client {
            connection: self.connection(self.flags, self.busy, &self.pragmas)?,
            begin: self.begin,
        }))
    }

    fn destroy(&self) -> Result<(), DriverError> {
        self.execute(|it| it.execute_batch("DROP TABLE IF EXISTS outlive_litmus"))
    }
}

/// A connection. SQLite rolls back its transaction when it is closed.
struct Client {
    connection: rusqlite::Connection,
    begin: &'static str,
}

impl Client {
    /// Executes a step. After an error, the transaction is rolled back.
    fn step<T>(
        &mut self,
        step: impl FnOnce(&rusqlite::Connection) -> Result<T, Error>,
    ) -> Result<T, StepError> {
        step(&self.connection).map_err(|error| self.end(step_error(&error)))
    }

    /// Executes a statement that changes one object.
    fn change(&mut self, sql: &str, parameters: impl rusqlite::Params) -> Result<(), StepError> {
        match self.step(|it| it.execute(sql, parameters))? {
            0 => Err(self.end(StepError::Refused)),
            _ => Ok(()),
        }
    }

    /// Rolls the transaction back because of `error`, unless SQLite has done so.
    fn end(&self, error: StepError) -> StepError {
        if self.connection.is_autocommit() {
            return error;
        }
        match self.connection.execute_batch("ROLLBACK") {
            Ok(()) => error,
            Err(failed) => StepError::Lost(format!("SQLite, after `{error}`: {failed}")),
        }
    }
}

/// Classifies an error of SQLite.
fn step_error(error: &Error) -> StepError {
    let message = format!("SQLite: {error}");
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::OperationAborted) => {
            StepError::Aborted(message)
        }
        Some(ErrorCode::ConstraintViolation) => StepError::Refused,
        _ => StepError::Lost(message),
    }
}

impl Connection for Client {
    fn begin(&mut self) -> Result<(), StepError> {
        let begin = self.begin;
        self.step(|it| it.execute_batch(&format!("BEGIN {begin}")))
    }

    fn read(&mut self, key: Key) -> Result<Option<i64>, StepError> {
        let sql = "SELECT value FROM outlive_litmus WHERE key = ?";
        self.step(|it| it.query_row(sql, [key as i64], |row| row.get(0)).optional())
    }

    fn write(&mut self, key: Key, value: i64) -> Result<(), StepError> {
        let sql = "UPDATE outlive_litmus SET value = ? WHERE key = ?";
        self.change(sql, (value, key as i64))
    }

    fn insert(&mut self, key: Key, value: i64) -> Result<(), StepError> {
        let sql = "INSERT INTO outlive_litmus VALUES (?, ?)";
        self.change(sql, (key as i64, value))
    }

    fn delete(&mut self, key: Key) -> Result<(), StepError> {
        let sql = "DELETE FROM outlive_litmus WHERE key = ?";
        self.change(sql, [key as i64])
    }

    fn count(&mut self, range: Range<Key>) -> Result<u64, StepError> {
        let sql = "SELECT count(*) FROM outlive_litmus WHERE key >= ? AND key < ?";
        let bounds = [range.start, range.end].map(|it| i64::try_from(it).unwrap_or(i64::MAX));
        let number: i64 = self.step(|it| it.query_row(sql, bounds, |row| row.get(0)))?;
        Ok(number as u64)
    }

    fn commit(&mut self) -> Result<(), StepError> {
        self.step(|it| it.execute_batch("COMMIT"))
    }

    fn abort(&mut self) -> Result<(), StepError> {
        self.step(|it| it.execute_batch("ROLLBACK"))
    }
}
