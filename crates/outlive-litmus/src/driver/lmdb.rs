//! LMDB, in a directory: `lmdb:PATH?begin=BEGIN`.
//!
//! | begin | transactions |
//! | --- | --- |
//! | `deferred` | begin as readers of a snapshot; the first write waits for other writers, and aborts the transaction if the snapshot is outdated (the default) |
//! | `immediate` | begin as writers, one at a time |
//!
//! An environment can be opened once by a process, and remains open until the process ends.

use super::target::{Parameters, Scheme};
use super::{Capabilities, Connection, Driver, DriverError, Key, StepError};
use heed::byteorder::BigEndian;
use heed::types::{I64, U64};
use heed::{CommitOrAbort, Database, Env, EnvOpenOptions, RoTxn, RwTxn, WithoutTls};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// The scheme `lmdb`.
pub const SCHEME: Scheme = Scheme {
    name: "lmdb",
    form: "lmdb:PATH",
    about: "LMDB, in a directory; it is created if it does not exist",
    open: |target, place| Ok(Box::new(Lmdb::new(target, place)?)),
};

/// The largest size of the data file, which is sparse.
const MAP: usize = 1 << 30;
/// The largest number of connections in all processes.
const READERS: u32 = 1024;

type Keys = U64<BigEndian>;
type Values = I64<BigEndian>;
type Rows = Database<'static, Keys, Values>;

/// An environment of LMDB.
#[derive(Debug)]
pub struct Lmdb {
    target: String,
    path: PathBuf,
    is_immediate: bool,
    opened: Mutex<Option<(&'static Env<WithoutTls>, Rows)>>,
}

impl Lmdb {
    /// Returns the driver for `target`, with `place` as the part after the scheme.
    ///
    /// # Errors
    /// If the target names no directory, or a parameter has no such value.
    pub fn new(target: &str, place: &str) -> Result<Self, DriverError> {
        let (path, mut given) = Parameters::split(target, place)?;
        let begin = given.choice("begin", &["deferred", "immediate"])?;
        given.end()?;
        if path.is_empty() {
            let problem = "the target names no directory; write `lmdb:PATH`";
            return Err(DriverError::malformed(target, problem));
        }
        Ok(Self {
            target: target.into(),
            path: path.into(),
            is_immediate: begin == Some("immediate"),
            opened: Mutex::new(None),
        })
    }

    /// Returns the environment and the driver's table, which are opened by the first call.
    fn open(&self) -> heed::Result<(&'static Env<WithoutTls>, Rows)> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(opened) = *opened {
            return Ok(opened);
        }
        std::fs::create_dir_all(&self.path)?;
        let mut options = EnvOpenOptions::new().read_txn_without_tls();
        options.map_size(MAP).max_dbs(1).max_readers(READERS);
        // SAFETY: LMDB alone writes the files; another program that did so would break the store
        // under test.
        let env = unsafe { options.open(&self.path) }?;
        // Transactions and tables borrow the environment.
        let env: &'static _ = Box::leak(Box::new(env));
        // Processes that were killed have left their readers.
        env.clear_stale_readers()?;
        let rows = env.create_databases_and_commit(env.write_txn()?, |opener, txn| {
            let rows = opener.create_database::<Keys, Values>(txn, Some("outlive_litmus"))?;
            heed::Result::Ok(CommitOrAbort::<_, ()>::Commit(rows))
        })?;
        Ok(*opened.insert((env, rows.unwrap_commit())))
    }

    /// Executes `work` in a transaction that writes.
    fn execute<T>(
        &self,
        work: impl FnOnce(&Rows, &mut RwTxn) -> heed::Result<T>,
    ) -> Result<T, DriverError> {
        let execute = || {
            let (env, rows) = self.open()?;
            let mut txn = env.write_txn()?;
            let result = work(&rows, &mut txn)?;
            txn.commit()?;
            Ok(result)
        };
        execute().map_err(|error| self.error(&error))
    }

    fn error(&self, error: &heed::Error) -> DriverError {
        DriverError::new(&self.target, format!("LMDB: {error}"))
    }
}

impl Driver for Lmdb {
    fn capabilities(&self) -> Capabilities {
        Capabilities::ALL
    }

    fn create(&self) -> Result<(), DriverError> {
        if self.execute(|rows, txn| rows.is_empty(txn))? {
            return Ok(());
        }
        let problem = "the database `outlive_litmus` is not empty, after another run perhaps; name \
                       another directory, or remove it with `mdb_drop -s outlive_litmus`";
        Err(DriverError::new(&self.target, problem))
    }

    fn set(&self, objects: &[(Key, Option<i64>)]) -> Result<(), DriverError> {
        self.execute(|rows, txn| {
            { objects.iter() }.try_for_each(|(key, value)| match value {
                Some(value) => rows.put(txn, key, value),
                None => rows.delete(txn, key).map(drop),
            })
        })
    }

    fn connect(&self) -> Result<Box<dyn Connection>, DriverError> {
        let (env, rows) = self.open().map_err(|error| self.error(&error))?;
        Ok(Box::new(Client {
            env,
            rows,
            is_immediate: self.is_immediate,
            txn: Txn::None,
        }))
    }

    fn destroy(&self) -> Result<(), DriverError> {
        // Connections still have the handle of the table, so it remains, without objects.
        self.execute(|rows, txn| rows.clear(txn))
    }
}

/// The transaction of a connection. LMDB aborts it when it is dropped.
enum Txn {
    None,
    Reads(RoTxn<'static, WithoutTls>),
    Writes(RwTxn<'static>),
}

struct Client {
    env: &'static Env<WithoutTls>,
    rows: Rows,
    is_immediate: bool,
    txn: Txn,
}

fn lost(error: heed::Error) -> StepError {
    StepError::Lost(format!("LMDB: {error}"))
}

impl Client {
    fn reads(&self) -> Result<&RoTxn<'static>, StepError> {
        match &self.txn {
            Txn::Reads(txn) => Ok(txn),
            Txn::Writes(txn) => Ok(txn),
            Txn::None => Err(StepError::Lost("no transaction has begun".into())),
        }
    }

    /// Returns the transaction as one that writes.
    fn writes(&mut self) -> Result<&mut RwTxn<'static>, StepError> {
        let snapshot = self.reads()?.id();
        if let Txn::Reads(_) = &self.txn {
            let txn = self.env.write_txn().map_err(lost)?;
            // The id of a writer is the next one after that of the newest snapshot.
            if txn.id() != snapshot + 1 {
                let reason = "another transaction has committed since the snapshot";
                return Err(self.end(StepError::Aborted(reason.into())));
            }
            self.txn = Txn::Writes(txn);
        }
        match &mut self.txn {
            Txn::Writes(txn) => Ok(txn),
            _ => unreachable!("it has become one that writes"),
        }
    }

    /// Aborts the transaction because of `error`.
    fn end(&mut self, error: StepError) -> StepError {
        self.txn = Txn::None;
        error
    }

    /// Changes an object that has to be present, or absent.
    fn change(&mut self, key: Key, is_present: bool, value: Option<i64>) -> Result<(), StepError> {
        let rows = self.rows;
        let txn = self.writes()?;
        if rows.get(txn, &key).map_err(lost)?.is_some() != is_present {
            return Err(self.end(StepError::Refused));
        }
        match value {
            Some(value) => rows.put(txn, &key, &value),
            None => rows.delete(txn, &key).map(drop),
        }
        .map_err(lost)
    }
}

impl Connection for Client {
    fn begin(&mut self) -> Result<(), StepError> {
        self.txn = match self.is_immediate {
            true => Txn::Writes(self.env.write_txn().map_err(lost)?),
            false => Txn::Reads(self.env.read_txn().map_err(lost)?),
        };
        Ok(())
    }

    fn read(&mut self, key: Key) -> Result<Option<i64>, StepError> {
        self.rows.get(self.reads()?, &key).map_err(lost)
    }

    fn write(&mut self, key: Key, value: i64) -> Result<(), StepError> {
        self.change(key, true, Some(value))
    }

    fn insert(&mut self, key: Key, value: i64) -> Result<(), StepError> {
        self.change(key, false, Some(value))
    }

    fn delete(&mut self, key: Key) -> Result<(), StepError> {
        self.change(key, true, None)
    }

    fn count(&mut self, range: Range<Key>) -> Result<u64, StepError> {
        let mut found = self.rows.range(self.reads()?, &range).map_err(lost)?;
        found
            .try_fold(0, |count, row| row.map(|_| count + 1))
            .map_err(lost)
    }

    fn commit(&mut self) -> Result<(), StepError> {
        match std::mem::replace(&mut self.txn, Txn::None) {
            Txn::Writes(txn) => txn.commit().map_err(lost),
            Txn::Reads(_) | Txn::None => Ok(()),
        }
    }

    fn abort(&mut self) -> Result<(), StepError> {
        self.txn = Txn::None;
        Ok(())
    }
}
