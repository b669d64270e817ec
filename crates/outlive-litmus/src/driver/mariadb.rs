//! MariaDB and MySQL: `mariadb://USER:PASSWORD@HOST:PORT/DATABASE?NAME=VALUE&...`, without TLS.
//!
//! | parameter | values | default |
//! | --- | --- | --- |
//! | `isolation` | `read-uncommitted`, `read-committed`, `repeatable-read`, `serializable`: the level of transactions | that of the database |
//! | `innodb_snapshot_isolation` | `on`, `off`: whether a write of a row that has changed since the snapshot aborts (MariaDB from 10.6.18 and 10.11.8 on) | that of the database |
//! | `lock_wait` | time in seconds for which a statement waits for a lock; 0: not at all (MariaDB only) | 1 |
//!
//! All transactions are begun explicitly: at `serializable`, only these lock the rows that they
//! read. A deadlock, a lock that is not available in time, or a row that has changed since the
//! snapshot aborts the transaction. Each other error, except a duplicate key, is treated as a lost
//! connection: the outcome of a commit is then unknown.

use super::sql::{Answer, Database, PATIENCE, Session};
use super::target::{Parameters, Scheme};
use super::{DriverError, StepError};
use mysql::consts::CapabilityFlags;
use mysql::prelude::Queryable;
use mysql::{Conn, Error, Opts, OptsBuilder};
use std::time::Duration;

/// The scheme `mariadb`.
pub const SCHEME: Scheme = Scheme {
    name: "mariadb",
    form: "mariadb://USER@HOST:PORT/DATABASE",
    about: "MariaDB or MySQL, for example with `?isolation=serializable`",
    open: |target, place| Ok(Box::new(database(target, place)?)),
};

fn database(target: &str, place: &str) -> Result<Database<Mariadb>, DriverError> {
    let (path, mut given) = Parameters::split(target, place)?;
    let levels = [
        "read-uncommitted",
        "read-committed",
        "repeatable-read",
        "serializable",
    ];
    let isolation = given.choice("isolation", &levels)?;
    let snapshot = given.choice("innodb_snapshot_isolation", &["on", "off"])?;
    let lock_wait = given.number("lock_wait")?.unwrap_or(1);
    given.end()?;
    let refuse = |problem: String| {
        DriverError::malformed(target, format!("{problem}; write `{}`", SCHEME.form))
    };
    let address = Opts::from_url(&format!("mysql:{path}"));
    let address = address.map_err(|error| refuse(error.to_string()))?;
    if address.get_db_name().is_none() {
        return Err(refuse("the target names no database".into()));
    }
    let longest_answer = lock_wait.max(PATIENCE).saturating_add(PATIENCE);
    let address = OptsBuilder::from_opts(address)
        // The address counts, not a socket that the server names.
        .prefer_socket(false)
        .tcp_connect_timeout(Some(Duration::from_secs(PATIENCE.into())))
        // A host that is gone closes no connection; an answer can wait for a lock.
        .read_timeout(Some(Duration::from_secs(longest_answer.into())))
        .write_timeout(Some(Duration::from_secs(PATIENCE.into())))
        // An update that changes nothing has found its row.
        .additional_capabilities(CapabilityFlags::CLIENT_FOUND_ROWS);
    let mut prepare = format!("SET SESSION innodb_lock_wait_timeout = {lock_wait};");
    if let Some(level) = isolation {
        let level = level.replace('-', " ");
        prepare += &format!("SET SESSION TRANSACTION ISOLATION LEVEL {level};");
    }
    if let Some(value) = snapshot {
        prepare += &format!("SET SESSION innodb_snapshot_isolation = {value};");
    }
    Ok(Database::new(target, address.into(), prepare))
}

/// A connection.
struct Mariadb(Conn);

impl Session for Mariadb {
    type Address = Opts;

    const TABLE: &'static str = "ENGINE = InnoDB";
    // At this level, the statements lock no gaps, in which transactions insert rows.
    const OWN: &'static str = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; \
                       SET SESSION innodb_lock_wait_timeout = 10; \
                       SET SESSION lock_wait_timeout = 10";
    const OVERWRITE: &'static str = "ON DUPLICATE KEY UPDATE value = VALUES(value)";

    fn open(address: &Opts, prepare: &str) -> Result<Self, StepError> {
        let mut connection = Conn::new(address.clone()).map_err(step_error)?;
        let statements = prepare.split(';').filter(|it| !it.trim().is_empty());
        for statement in statements {
            connection.query_drop(statement).map_err(step_error)?;
        }
        Ok(Self(connection))
    }

    fn execute(&mut self, sql: &str) -> Result<Answer, StepError> {
        let number = self.0.query_first(sql).map_err(step_error)?;
        let rows = self.0.affected_rows();
        Ok(Answer { number, rows })
    }
}

/// The numbers of errors: `ER_LOCK_DEADLOCK`, `ER_LOCK_WAIT_TIMEOUT`, `ER_CHECKREAD` and
/// `ER_DUP_ENTRY`.
const DEADLOCK: u16 = 1213;
const LOCK_WAIT_TIMEOUT: u16 = 1205;
const ROW_CHANGED: u16 = 1020;
const DUPLICATE_KEY: u16 = 1062;

/// Classifies an error of MariaDB.
fn step_error(error: Error) -> StepError {
    let code = match &error {
        Error::MySqlError(error) => error.code,
        _ => 0,
    };
    let message = format!("MariaDB: {error}");
    match code {
        DEADLOCK | LOCK_WAIT_TIMEOUT | ROW_CHANGED => StepError::Aborted(message),
        DUPLICATE_KEY => StepError::Refused,
        _ => StepError::Lost(message),
    }
}
