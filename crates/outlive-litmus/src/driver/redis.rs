//! Redis: `redis://HOST:PORT/DATABASE?mode=MODE`.
//!
//! | mode | transactions |
//! | --- | --- |
//! | `plain` | each statement is a command; no rollback (the default) |
//! | `watch` | `WATCH` before each read; writes are kept, and executed between `MULTI` and `EXEC` |
//! | `lua` | reads are commands; writes are kept, and executed by a script that compares all values |
//!
//! A script of Redis is atomic, but its steps cannot come from a client one by one. With `lua`, the
//! script is therefore only the end of a transaction: if each object has the value that the
//! transaction read, it makes all changes. A value that has changed and changed back goes unnoticed
//! and makes no difference: the transaction is valid at the time of the script.

use super::optimistic::{Object, Optimistic, Requests};
use super::target::{Parameters, Scheme};
use super::{Capabilities, Connection, Driver, DriverError, Key, StepError};
use redis::{Cmd, Commands, FromRedisValue, Pipeline, RedisError, RedisResult, Value, cmd, pipe};
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

/// The scheme `redis`.
pub const SCHEME: Scheme = Scheme {
    name: "redis",
    form: "redis://HOST:PORT",
    about: "a server of Redis; ?mode=plain, watch or lua",
    open: |target, place| Ok(Box::new(Redis::new(target, place)?)),
};

/// The time in which the server has to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The names of all keys.
const NAMES: &str = "outlive_litmus:*";

/// Makes the changes in the second half of the arguments if the values in the first half are those
/// of the keys. An empty text is an absent object.
const COMMIT: &str = "
    for i, key in ipairs(KEYS) do
        if (redis.call('GET', key) or '') ~= ARGV[i] then return 0 end
    end
    for i, key in ipairs(KEYS) do
        local value = ARGV[#KEYS + i]
        if value == '' then redis.call('DEL', key)
        elseif value ~= ARGV[i] then redis.call('SET', key, value) end
    end
    return 1";

fn name(key: Key) -> String {
    format!("outlive_litmus:{key}")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Plain,
    Watch,
    Lua,
}

/// A database of a server of Redis.
#[derive(Debug)]
pub struct Redis {
    target: String,
    client: redis::Client,
    mode: Mode,
}

impl Redis {
    /// Returns the driver for `target`, with `place` as the part after the scheme.
    ///
    /// # Errors
    /// If the target names no server, or a parameter has no such value.
    pub fn new(target: &str, place: &str) -> Result<Self, DriverError> {
        let (address, mut given) = Parameters::split(target, place)?;
        let mode = given.choice("mode", &["plain", "watch", "lua"])?;
        given.end()?;
        let client = redis::Client::open(format!("redis:{address}"));
        let problem = |error| format!("{error}; write `redis://HOST:PORT/DATABASE`");
        Ok(Self {
            target: target.into(),
            client: client.map_err(|error| DriverError::malformed(target, problem(error)))?,
            mode: match mode {
                Some("watch") => Mode::Watch,
                Some("lua") => Mode::Lua,
                _ => Mode::Plain,
            },
        })
    }

    /// Opens a connection to a server that answers: one that recovers only accepts connections.
    fn open(&self) -> RedisResult<redis::Connection> {
        let mut connection = self.client.get_connection_with_timeout(PATIENCE)?;
        connection.set_read_timeout(Some(PATIENCE))?;
        connection.set_write_timeout(Some(PATIENCE))?;
        cmd("PING").exec(&mut connection)?;
        Ok(connection)
    }

    /// Returns the names of all objects.
    fn names(&self, connection: &mut redis::Connection) -> RedisResult<Vec<String>> {
        connection.scan_match(NAMES)?.collect()
    }

    fn error(&self, error: RedisError) -> DriverError {
        DriverError::new(&self.target, format!("Redis: {error}"))
    }
}

/// Appends the command that sets an object.
fn change(pipeline: &mut Pipeline, key: Key, value: Option<i64>) {
    match value {
        Some(value) => pipeline.set(name(key), value),
        None => pipeline.del(name(key)),
    };
}

impl Driver for Redis {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            abort: self.mode != Mode::Plain,
            ..Capabilities::ALL
        }
    }

    fn create(&self) -> Result<(), DriverError> {
        let names = self.open().and_then(|mut it| self.names(&mut it));
        if names.map_err(|error| self.error(error))?.is_empty() {
            return Ok(());
        }
        let problem = format!(
            "the database has keys `{NAMES}`, after another run perhaps; delete them, or name \
             another database"
        );
        Err(DriverError::new(&self.target, problem))
    }

    fn set(&self, objects: &[(Key, Option<i64>)]) -> Result<(), DriverError> {
        let mut all = pipe();
        for (key, value) in objects {
            change(&mut all, *key, *value);
        }
        let set = self.open().and_then(|mut it| all.exec(&mut it));
        set.map_err(|error| self.error(error))
    }

    fn connect(&self) -> Result<Box<dyn Connection>, DriverError> {
        let client = Client {
            connection: self.open().map_err(|error| self.error(error))?,
            mode: self.mode,
        };
        Ok(match self.mode {
            Mode::Plain => Box::new(client),
            Mode::Watch | Mode::Lua => Box::new(Optimistic::new(client)),
        })
    }

    fn destroy(&self) -> Result<(), DriverError> {
        let delete = |mut connection| {
            let names = self.names(&mut connection)?;
            let mut all = names.chunks(500);
            all.try_for_each(|some| cmd("DEL").arg(some).exec(&mut connection))
        };
        self.open()
            .and_then(delete)
            .map_err(|error| self.error(error))
    }
}

struct Client {
    connection: redis::Connection,
    mode: Mode,
}

impl Client {
    /// Executes a command. Each error is a lost connection: after an error of the server, it is
    /// not known in all cases whether a commit has happened.
    fn query<T: FromRedisValue>(&mut self, command: &Cmd) -> Result<T, StepError> {
        command.query(&mut self.connection).map_err(lost)
    }
}

fn lost(error: RedisError) -> StepError {
    StepError::Lost(format!("Redis: {error}"))
}

/// Returns an error if a command has found an object absent, or present.
fn done(is_done: bool) -> Result<(), StepError> {
    is_done.then_some(()).ok_or(StepError::Refused)
}

/// The mode `plain`.
impl Connection for Client {
    fn begin(&mut self) -> Result<(), StepError> {
        Ok(())
    }

    fn read(&mut self, key: Key) -> Result<Option<i64>, StepError> {
        self.query(cmd("GET").arg(name(key)))
    }

    fn write(&mut self, key: Key, value: i64) -> Result<(), StepError> {
        let set: Option<Value> = self.query(cmd("SET").arg(name(key)).arg(value).arg("XX"))?;
        done(set.is_some())
    }

    fn insert(&mut self, key: Key, value: i64) -> Result<(), StepError> {
        let set: Option<Value> = self.query(cmd("SET").arg(name(key)).arg(value).arg("NX"))?;
        done(set.is_some())
    }

    fn delete(&mut self, key: Key) -> Result<(), StepError> {
        done(self.query(cmd("DEL").arg(name(key)))?)
    }

    fn count(&mut self, range: Range<Key>) -> Result<u64, StepError> {
        let names: Vec<String> = range.map(name).collect();
        match names.is_empty() {
            true => Ok(0),
            false => self.query(cmd("EXISTS").arg(names)),
        }
    }

    fn commit(&mut self) -> Result<(), StepError> {
        Ok(())
    }

    fn abort(&mut self) -> Result<(), StepError> {
        Err(StepError::Lost("Redis cannot abort".into()))
    }
}

/// The modes `watch` and `lua`.
impl Requests for Client {
    fn begin(&mut self) -> Result<(), StepError> {
        match self.mode {
            // The transaction before may have ended without `EXEC`.
            Mode::Watch => self.query(&cmd("UNWATCH")),
            _ => Ok(()),
        }
    }

    fn fetch(&mut self, key: Key) -> Result<(Option<i64>, u64), StepError> {
        let mut commands = pipe();
        if self.mode == Mode::Watch {
            commands.cmd("WATCH").arg(name(key)).ignore();
        }
        let (value,) = commands
            .get(name(key))
            .query(&mut self.connection)
            .map_err(lost)?;
        Ok((value, 0))
    }

    fn commit(&mut self, objects: &BTreeMap<Key, Object>) -> Result<bool, StepError> {
        if self.mode == Mode::Watch {
            let mut changes = pipe();
            changes.atomic();
            for (key, object) in objects.iter().filter(|(_, it)| it.is_changed) {
                change(&mut changes, *key, object.value);
            }
            let executed: Option<Value> = changes.query(&mut self.connection).map_err(lost)?;
            return Ok(executed.is_some());
        }
        let names: Vec<String> = objects.keys().copied().map(name).collect();
        let text = |value: Option<i64>| value.map_or(String::new(), |it| it.to_string());
        let seen: Vec<String> = objects.values().map(|it| text(it.seen)).collect();
        let values: Vec<String> = objects.values().map(|it| text(it.value)).collect();
        let mut script = cmd("EVAL");
        script
            .arg(COMMIT)
            .arg(names.len())
            .arg(names)
            .arg(seen)
            .arg(values);
        self.query(&script)
    }
}
