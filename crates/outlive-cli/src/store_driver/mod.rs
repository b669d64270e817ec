//! The driver of `outlive litmus` for a store of this project: `outlive-store:PATH`.
//!
//! A driver is one compute server, and each connection a coordinator with a worker of its own. All
//! objects are in the table `outlive_litmus`, which remains, empty, at the end, because tables
//! cannot be removed.

mod session;

use outlive_litmus::driver::{
    Capabilities, Connection, Driver, DriverError, Key, Parameters, Scheme,
};
use outlive_store::protocol::{Abort, Coordinator, Retry, Table, TransactionError, Worker};
use outlive_store::servers::{ComputeServer, Connector, Direct, Members, Store, StoreError};
use outlive_store::verbs::block_on;
use session::Session;
use std::rc::Rc;
use std::time::Duration;

/// The scheme `outlive-store`.
pub const SCHEME: Scheme = Scheme {
    name: "outlive-store",
    form: "outlive-store:PATH",
    about: "a store with live memory servers (`outlive store create`, `outlive store memory`)",
    open: |target, place| {
        let (path, mut given) = Parameters::split(target, place)?;
        let keys = given.number("keys")?.unwrap_or(DEFAULT_KEYS);
        given.end()?;
        let joined = Store::open(path).and_then(|it| it.join_compute());
        let compute = joined.map_err(|error| DriverError::new(target, error.to_string()))?;
        let driver = StoreDriver::new(target, compute, keys, ComputeServer::worker);
        Ok(Box::new(driver))
    },
};

/// The table of the objects.
const TABLE: &str = "outlive_litmus";

/// The number of keys for which the table is created, unless the target has the parameter `keys`.
const DEFAULT_KEYS: u32 = 100_000;

/// The number of objects that one transaction sets: few, because log slots bound transactions.
const SET_AT_ONCE: usize = 8;

/// The time for which a transaction waits for recoveries, and a preparation for other transactions.
const PATIENCE: Duration = Duration::from_secs(10);

/// A store, with workers of type `Worker<Members<C>>` that execute the transactions.
pub struct StoreDriver<C: Connector = Direct> {
    target: String,
    compute: ComputeServer,
    keys: u32,
    worker: Box<MakeWorker<C>>,
}

/// Returns a worker for the calling thread.
type MakeWorker<C> = dyn Fn(&ComputeServer) -> Made<C> + Send + Sync;

/// A new worker.
type Made<C> = Result<Rc<Worker<Members<C>>>, StoreError>;

impl<C: Connector + 'static> StoreDriver<C> {
    /// Returns a driver of the store that `compute` has joined, under the name `target`. Its table
    /// is created for `keys` keys. `worker` makes a worker for each connection.
    pub fn new(
        target: &str,
        compute: ComputeServer,
        keys: u32,
        worker: impl Fn(&ComputeServer) -> Made<C> + Send + Sync + 'static,
    ) -> Self {
        Self {
            target: target.into(),
            compute,
            keys,
            worker: Box::new(worker),
        }
    }

    fn error(&self, error: impl ToString) -> DriverError {
        DriverError::new(&self.target, error.to_string())
    }

    fn table(&self) -> Result<Table<i64>, DriverError> {
        let table = self.compute.table(TABLE, self.keys.into());
        table.map_err(|error| self.error(error))
    }

    fn worker(&self) -> Result<Rc<Worker<Members<C>>>, DriverError> {
        (self.worker)(&self.compute).map_err(|error| self.error(error))
    }

    /// Returns a coordinator that attempts each transaction `attempts` times at most.
    fn coordinator(
        &self,
        worker: &Rc<Worker<Members<C>>>,
        attempts: u32,
    ) -> Result<Coordinator<Members<C>>, DriverError> {
        let coordinator = worker.coordinator().map_err(|error| self.error(error))?;
        Ok(coordinator.retry(Retry {
            attempts,
            deadline: Some(PATIENCE),
            ..Retry::default()
        }))
    }

    /// Returns the keys of all objects.
    fn all(&self) -> Result<Vec<Key>, DriverError> {
        let table = self.table()?;
        let mut coordinator = self.coordinator(&self.worker()?, u32::MAX)?;
        let rows = block_on(coordinator.snapshot(&[table.number()]));
        let rows = rows.map_err(|error| self.error(error))?;
        Ok(rows.iter().flat_map(|it| it.keys()).copied().collect())
    }
}

impl<C: Connector + 'static> Driver for StoreDriver<C> {
    fn capabilities(&self) -> Capabilities {
        Capabilities::ALL
    }

    fn create(&self) -> Result<(), DriverError> {
        if self.all()?.is_empty() {
            return Ok(());
        }
        Err(self.error(format_args!(
            "the table `{TABLE}` is not empty, after another run perhaps; use a new store, or \
             delete the keys (`outlive store scan`, `outlive store delete`)"
        )))
    }

    fn set(&self, objects: &[(Key, Option<i64>)]) -> Result<(), DriverError> {
        let table = self.table()?;
        let mut coordinator = self.coordinator(&self.worker()?, u32::MAX)?;
        let mut parts: Vec<_> = objects.chunks(SET_AT_ONCE).collect();
        while let Some(objects) = parts.pop() {
            let setting = coordinator.transaction(async |tx| {
                for (key, value) in objects {
                    match value {
                        Some(value) => tx.put(table, *key, value).await?,
                        None => drop(tx.delete(table, *key).await?),
                    }
                }
                Ok(())
            });
            match block_on(setting) {
                // The log slots of the store are small, or its protocol logs more.
                Err(TransactionError::Aborted(Abort::WriteSetTooLarge { .. }))
                    if objects.len() > 1 =>
                {
                    parts.extend(<[_; 2]>::from(objects.split_at(objects.len() / 2)));
                }
                other => drop(other.map_err(|error| self.error(error))?),
            }
        }
        Ok(())
    }

    fn connect(&self) -> Result<Box<dyn Connection>, DriverError> {
        let worker = self.worker()?;
        let coordinator = self.coordinator(&worker, 1)?;
        let session = Session::new(worker, coordinator, self.table()?);
        Ok(Box::new(session))
    }

    fn destroy(&self) -> Result<(), DriverError> {
        let objects: Vec<_> = self.all()?.into_iter().map(|key| (key, None)).collect();
        self.set(&objects)
    }
}
