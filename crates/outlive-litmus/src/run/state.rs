//! Reads of all objects, and writes to them after a crash.

use super::client::Client;
use super::keys::Keys;
use crate::driver::{Connection, DriverError, Key, StepError};
use std::thread;
use std::time::{Duration, Instant};

/// The values of all objects, as one transaction read them.
pub(super) type State = Vec<Option<i64>>;

/// Reads all objects in one transaction. Returns `None` if it does not commit.
pub(super) fn read(
    client: &mut Client,
    keys: Keys,
    wait: &mut dyn FnMut(),
) -> Result<Option<State>, DriverError> {
    let connection = client.connection()?;
    let mut transaction = || -> Result<State, StepError> {
        connection.begin()?;
        let mut values = State::new();
        for key in keys.all() {
            wait();
            values.push(connection.read(key)?);
        }
        connection.commit()?;
        Ok(values)
    };
    match transaction() {
        Ok(values) => Ok(Some(values)),
        Err(StepError::Lost(_)) => {
            client.lose();
            Ok(None)
        }
        Err(_) => Ok(None),
    }
}

/// Reads all objects as [`read`] does, and repeats it until it commits, for at most `patience`.
pub(super) fn read_at_rest(
    client: &mut Client,
    keys: Keys,
    patience: Duration,
) -> Result<Option<State>, DriverError> {
    retry(patience, || read(client, keys, &mut || ()))
}

/// Writes to the objects one after another, each until its transaction commits. Returns the first
/// object that cannot be written within `patience`.
pub(super) fn write_all(
    client: &mut Client,
    keys: Keys,
    can_insert: bool,
    patience: Duration,
) -> Result<Option<usize>, DriverError> {
    for (object, key) in keys.all().enumerate() {
        let written = retry(patience, || write(client, key, can_insert))?;
        if written.is_none() {
            return Ok(Some(object));
        }
    }
    Ok(None)
}

/// Writes the value of an object again, or creates and deletes it. Returns `None` if the
/// transaction does not commit.
fn write(client: &mut Client, key: Key, can_insert: bool) -> Result<Option<()>, DriverError> {
    fn create(connection: &mut dyn Connection, key: Key) -> Result<(), StepError> {
        connection.insert(key, 0)?;
        connection.commit()?;
        connection.begin()?;
        connection.delete(key)
    }
    let connection = client.connection()?;
    let mut transaction = || -> Result<(), StepError> {
        connection.begin()?;
        match connection.read(key)? {
            Some(value) => connection.write(key, value)?,
            None if can_insert => create(connection, key)?,
            None => {}
        }
        connection.commit()
    };
    match transaction() {
        Ok(()) => Ok(Some(())),
        Err(StepError::Lost(_)) => {
            client.lose();
            Ok(None)
        }
        Err(_) => Ok(None),
    }
}

/// Repeats `attempt` until it succeeds, for at most `patience`.
fn retry<T>(
    patience: Duration,
    mut attempt: impl FnMut() -> Result<Option<T>, DriverError>,
) -> Result<Option<T>, DriverError> {
    let begin = Instant::now();
    loop {
        match attempt()? {
            None if begin.elapsed() < patience => thread::sleep(Duration::from_millis(1)),
            result => return Ok(result),
        }
    }
}
