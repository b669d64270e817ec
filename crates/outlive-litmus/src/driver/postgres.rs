//! PostgreSQL: `postgres://USER:PASSWORD@HOST:PORT/DATABASE?NAME=VALUE&...`, without TLS.
//!
//! | parameter | values | default |
//! | --- | --- | --- |
//! | `isolation` | `read-committed`, `repeatable-read`, `serializable`: the level of transactions | that of the database |
//! | `lock_timeout` | time in milliseconds for which a statement waits for a lock; 0: without limit | 1000 |
//! | `synchronous_commit` | `on`, `off`: whether a commit waits until it is durable | that of the database |
//!
//! A serialization failure, a deadlock (class 40 of the SQL standard's states, except that the
//! outcome is unknown) or a lock that is not available in time aborts the transaction. Each other
//! error, except a duplicate key, is treated as a lost connection: the outcome of a commit is then
//! unknown.

use super::sql::{Answer, Database, PATIENCE, Session};
use super::target::{Parameters, Scheme};
use super::{DriverError, StepError};
use ::postgres::error::SqlState;
use ::postgres::{Client, Config, Error, NoTls, SimpleQueryMessage};
use std::error::Error as _;
use std::time::Duration;

/// The scheme `postgres`.
pub const SCHEME: Scheme = Scheme {
    name: "postgres",
    form: "postgres://USER@HOST:PORT/DATABASE",
    about: "PostgreSQL, for example with `?isolation=repeatable-read`",
    open: |target, place| Ok(Box::new(database(target, place)?)),
};

fn database(target: &str, place: &str) -> Result<Database<Postgres>, DriverError> {
    let (path, mut given) = Parameters::split(target, place)?;
    let levels = ["read-committed", "repeatable-read", "serializable"];
    let isolation = given.choice("isolation", &levels)?;
    let lock_timeout = given.number("lock_timeout")?.unwrap_or(1000);
    let synchronous = given.choice("synchronous_commit", &["on", "off"])?;
    given.end()?;
    let address = format!("postgres:{path}").parse::<Config>();
    let mut address = address.map_err(|error| {
        let form = SCHEME.form;
        DriverError::malformed(target, format!("{}; write `{form}`", message(&error)))
    })?;
    let patience = Duration::from_secs(PATIENCE.into());
    // A host that is gone closes no connection.
    address
        .connect_timeout(patience)
        .tcp_user_timeout(patience)
        .keepalives_idle(patience / 2)
        .keepalives_interval(Duration::from_secs(1))
        .keepalives_retries(PATIENCE / 2);
    let mut prepare = format!("SET lock_timeout = {lock_timeout};");
    if let Some(value) = synchronous {
        prepare += &format!("SET synchronous_commit = {value};");
    }
    if let Some(level) = isolation {
        let level = level.replace('-', " ");
        prepare += &format!("SET default_transaction_isolation = '{level}';");
    }
    Ok(Database::new(target, address, prepare))
}

/// A connection.
struct Postgres(Client);

impl Session for Postgres {
    type Address = Config;

    const TABLE: &'static str = "";
    const OWN: &'static str = "SET synchronous_commit = on; SET lock_timeout = '10s'; \
                       SET default_transaction_isolation = 'read committed'";
    const OVERWRITE: &'static str = "ON CONFLICT (id) DO UPDATE SET value = excluded.value";

    fn open(address: &Config, prepare: &str) -> Result<Self, StepError> {
        let mut client = address.connect(NoTls).map_err(step_error)?;
        client.batch_execute(prepare).map_err(step_error)?;
        Ok(Self(client))
    }

    fn execute(&mut self, sql: &str) -> Result<Answer, StepError> {
        let mut answer = Answer::default();
        for message in self.0.simple_query(sql).map_err(step_error)? {
            match message {
                SimpleQueryMessage::Row(row) => {
                    answer.number = row.get(0).and_then(|it| it.parse().ok());
                }
                SimpleQueryMessage::CommandComplete(rows) => answer.rows = rows,
                _ => {}
            }
        }
        Ok(answer)
    }
}

/// Classifies an error of PostgreSQL.
fn step_error(error: Error) -> StepError {
    let state = error.code().map_or("", SqlState::code);
    if state == SqlState::UNIQUE_VIOLATION.code() {
        return StepError::Refused;
    }
    let has_aborted =
        state.starts_with("40") && state != SqlState::T_R_STATEMENT_COMPLETION_UNKNOWN.code();
    let message = message(&error);
    match has_aborted || state == SqlState::LOCK_NOT_AVAILABLE.code() {
        true => StepError::Aborted(message),
        false => StepError::Lost(message),
    }
}

fn message(error: &Error) -> String {
    match error.as_db_error() {
        Some(error) => format!("PostgreSQL: {}: {}", error.code().code(), error.message()),
        None => match error.source() {
            Some(cause) => format!("PostgreSQL: {error}: {cause}"),
            None => format!("PostgreSQL: {error}"),
        },
    }
}
