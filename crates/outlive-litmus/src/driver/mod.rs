//! The interface to a store under test, and the drivers.
//!
//! [`open`] returns the driver for a target such as `sqlite:/tmp/x.db`. A store without a driver is
//! connected in one of two ways: by a program in any language that reads requests from its standard
//! input and writes answers to its standard output ([`exec`]), or by an implementation of
//! [`Driver`] and [`Connection`], as here for a store in memory. [`conformance`] checks that an
//! implementation keeps the contract.
//!
//! ```
//! use outlive_litmus::driver::{Capabilities, Connection, Driver, DriverError, Key, StepError};
//! use outlive_litmus::driver::conformance;
//! use std::collections::BTreeMap;
//! use std::ops::Range;
//! use std::sync::{Arc, Mutex};
//!
//! /// The objects, and the number of commits so far.
//! type Shared = Arc<Mutex<(BTreeMap<Key, i64>, u64)>>;
//!
//! /// A store with transactions on copies. A commit succeeds if there was no other one since
//! /// its transaction began.
//! struct Memory(Shared);
//!
//! impl Driver for Memory {
//!     fn capabilities(&self) -> Capabilities {
//!         Capabilities::ALL
//!     }
//!     fn create(&self) -> Result<(), DriverError> {
//!         match self.0.lock().unwrap().0.len() {
//!             0 => Ok(()),
//!             n => Err(DriverError::new("memory", format!("the store has {n} objects"))),
//!         }
//!     }
//!     fn set(&self, objects: &[(Key, Option<i64>)]) -> Result<(), DriverError> {
//!         let mut shared = self.0.lock().unwrap();
//!         for &(key, value) in objects {
//!             match value {
//!                 Some(value) => shared.0.insert(key, value),
//!                 None => shared.0.remove(&key),
//!             };
//!         }
//!         Ok(())
//!     }
//!     fn connect(&self) -> Result<Box<dyn Connection>, DriverError> {
//!         let (copy, begun) = Default::default();
//!         Ok(Box::new(Client { shared: Arc::clone(&self.0), copy, begun }))
//!     }
//!     fn destroy(&self) -> Result<(), DriverError> {
//!         self.0.lock().unwrap().0.clear();
//!         Ok(())
//!     }
//! }
//!
//! struct Client {
//!     shared: Shared,
//!     copy: BTreeMap<Key, i64>,
//!     begun: u64,
//! }
//!
//! /// Returns an error if `value`, which a statement has found or replaced, is absent.
//! fn present(value: Option<i64>) -> Result<(), StepError> {
//!     value.map(drop).ok_or(StepError::Refused)
//! }
//!
//! impl Connection for Client {
//!     fn begin(&mut self) -> Result<(), StepError> {
//!         (self.copy, self.begun) = self.shared.lock().unwrap().clone();
//!         Ok(())
//!     }
//!     fn read(&mut self, key: Key) -> Result<Option<i64>, StepError> {
//!         Ok(self.copy.get(&key).copied())
//!     }
//!     fn write(&mut self, key: Key, value: i64) -> Result<(), StepError> {
//!         present(self.copy.insert(key, value))
//!     }
//!     fn insert(&mut self, key: Key, value: i64) -> Result<(), StepError> {
//!         match self.copy.insert(key, value) {
//!             Some(_) => Err(StepError::Refused),
//!             None => Ok(()),
//!         }
//!     }
//!     fn delete(&mut self, key: Key) -> Result<(), StepError> {
//!         present(self.copy.remove(&key))
//!     }
//!     fn count(&mut self, range: Range<Key>) -> Result<u64, StepError> {
//!         Ok(self.copy.range(range).count() as u64)
//!     }
//!     fn commit(&mut self) -> Result<(), StepError> {
//!         let mut shared = self.shared.lock().unwrap();
//!         if shared.1 != self.begun {
//!             return Err(StepError::Aborted("another transaction has committed".into()));
//!         }
//!         *shared = (std::mem::take(&mut self.copy), self.begun + 1);
//!         Ok(())
//!     }
//!     fn abort(&mut self) -> Result<(), StepError> {
//!         Ok(())
//!     }
//! }
//!
//! conformance::check(&Memory(Shared::default()))?;
//! # Ok::<(), conformance::Violation>(())
//! ```

pub mod conformance;
#[cfg(feature = "etcd")]
pub mod etcd;
pub mod exec;
#[cfg(feature = "lmdb")]
pub mod lmdb;
#[cfg(feature = "mariadb")]
pub mod mariadb;
#[cfg(any(feature = "etcd", feature = "redis"))]
mod optimistic;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(any(feature = "mariadb", feature = "postgres"))]
mod sql;
#[cfg(feature = "sqlite")]
pub mod sqlite;
mod target;

pub use target::{Open, Parameters, SCHEMES, Scheme, open, open_among};

use std::ops::Range;
use std::time::Duration;
use thiserror::Error;

/// The key of an object in the store, less than 2^63, because many stores have signed keys.
pub type Key = u64;

/// A store under test: opens connections to it, and prepares its objects.
///
/// A driver puts all keys into a table or namespace of its own, which it creates.
pub trait Driver: Send + Sync {
    /// Returns the operations that the store can execute.
    fn capabilities(&self) -> Capabilities;

    /// Creates the driver's table in the store. Fails if the table exists and is not empty: it
    /// could belong to another user.
    fn create(&self) -> Result<(), DriverError>;

    /// Sets objects to their values; `None` deletes an object. No transaction of a test uses these
    /// objects at this time. On return, the values are durable and visible to all connections.
    fn set(&self, objects: &[(Key, Option<i64>)]) -> Result<(), DriverError>;

    /// Opens a connection.
    fn connect(&self) -> Result<Box<dyn Connection>, DriverError>;

    /// Removes the driver's table.
    fn destroy(&self) -> Result<(), DriverError>;

    /// Returns whether [`Connection::commit_and_kill`] kills clients: each connection is a process
    /// of its own.
    fn kills_in_commits(&self) -> bool {
        false
    }
}

/// A connection, with one transaction at a time.
///
/// Each call except [`begin`](Self::begin) belongs to the transaction that was begun last. After an
/// error the transaction has ended, without a call of [`abort`](Self::abort). A connection that is
/// dropped in the middle of a transaction is cut, as if the client had died.
///
/// A connection remains on the thread that opened it, so it need not be [`Send`].
pub trait Connection {
    /// Begins a transaction.
    fn begin(&mut self) -> Result<(), StepError>;

    /// Returns the value of an object, `None` if it is absent.
    fn read(&mut self, key: Key) -> Result<Option<i64>, StepError>;

    /// Overwrites a present object.
    fn write(&mut self, key: Key, value: i64) -> Result<(), StepError>;

    /// Creates an absent object.
    fn insert(&mut self, key: Key, value: i64) -> Result<(), StepError>;

    /// Deletes a present object.
    fn delete(&mut self, key: Key) -> Result<(), StepError>;

    /// Returns the number of present objects with keys in `range`, as one predicate. The range has
    /// the objects of one instance of a test, so a driver may read each key. Called only if
    /// [`Capabilities::count`] is set.
    fn count(&mut self, range: Range<Key>) -> Result<u64, StepError>;

    /// Commits the transaction. `Ok` acknowledges it.
    fn commit(&mut self) -> Result<(), StepError>;

    /// Requests the commit of the transaction, and kills the client if the answer has not arrived
    /// after `delay`. Returns the answer, or `None` if the client was killed before it: the outcome
    /// is then unknown, and the connection cannot be used any more. Called only if
    /// [`Driver::kills_in_commits`] is true.
    fn commit_and_kill(&mut self, delay: Duration) -> Option<Result<(), StepError>> {
        let _ = delay;
        Some(self.commit())
    }

    /// Aborts the transaction at the request of its user. Called only if [`Capabilities::abort`] is
    /// set.
    fn abort(&mut self) -> Result<(), StepError>;
}

/// The operations that a store can execute, beyond reads and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Whether the store creates and deletes objects.
    pub insert_delete: bool,
    /// Whether the store counts the objects in a range of keys, as one predicate.
    pub count: bool,
    /// Whether the store aborts a transaction at the request of its user, and undoes all its
    /// writes.
    pub abort: bool,
}

impl Capabilities {
    /// All operations.
    pub const ALL: Self = Self {
        insert_delete: true,
        count: true,
        abort: true,
    };
}

/// The reason why a step did not succeed. The transaction has ended.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StepError {
    /// The store aborted the transaction, because of a conflict or a deadlock: it has no effect.
    #[error("the store aborted the transaction: {0}")]
    Aborted(String),
    /// The object is absent, or, for an insertion, present: the transaction has no effect.
    #[error("the object is absent, or an insertion found it present")]
    Refused,
    /// The connection is lost. If the step was a commit, its outcome is unknown; otherwise the
    /// transaction has no effect. The connection cannot be used any more.
    #[error("the connection is lost: {0}")]
    Lost(String),
}

/// A failure of a driver, apart from transactions.
#[derive(Debug, Error)]
#[error("{target}: {problem}")]
pub struct DriverError {
    /// The store, as the user named it.
    pub target: String,
    /// The problem, and the action that solves it.
    pub problem: String,
    /// Whether the text of the target is wrong, whatever the store is doing.
    pub is_malformed: bool,
}

impl DriverError {
    /// Returns the failure of the driver for `target`.
    pub fn new(target: impl Into<String>, problem: impl Into<String>) -> Self {
        Self {
            target: target.into(),
            problem: problem.into(),
            is_malformed: false,
        }
    }

    /// Returns the failure to understand `target`.
    pub fn malformed(target: impl Into<String>, problem: impl Into<String>) -> Self {
        Self {
            is_malformed: true,
            ..Self::new(target, problem)
        }
    }
}
