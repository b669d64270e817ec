//! The interface to a store under test.

use std::ops::Range;
use thiserror::Error;

/// The key of an object in the store.
pub type Key = u64;

/// A store under test: opens connections to it, and prepares its objects.
///
/// A driver puts all keys into a table or namespace of its own, which it creates.
pub trait Driver: Send + Sync {
    /// Returns the operations that the store can execute.
    fn capabilities(&self) -> Capabilities;

    /// Creates the driver's table in the store. Fails if the table exists and is not empty: it
    /// could be of another user.
    fn create(&self) -> Result<(), DriverError>;

    /// Sets objects to their values, `None` deletes them; no transaction of a test uses them at
    /// this time. On return, the values are durable and visible to all connections.
    fn set(&self, objects: &[(Key, Option<i64>)]) -> Result<(), DriverError>;

    /// Opens a connection.
    fn connect(&self) -> Result<Box<dyn Connection>, DriverError>;

    /// Removes the driver's table.
    fn destroy(&self) -> Result<(), DriverError>;
}

/// A connection, with one transaction at a time.
///
/// Each call except [`begin`](Self::begin) belongs to the transaction that was begun last. After an
/// error the transaction has ended, without a call of [`abort`](Self::abort). Dropped in the middle
/// of a transaction, the connection is cut as if the client had died.
pub trait Connection: Send {
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

    /// Returns the number of present objects with keys in `range`, as one predicate. Called only if
    /// [`Capabilities::count`] is set.
    fn count(&mut self, range: Range<Key>) -> Result<u64, StepError>;

    /// Commits the transaction. `Ok` acknowledges it.
    fn commit(&mut self) -> Result<(), StepError>;

    /// Aborts the transaction, as its user. Called only if [`Capabilities::abort`] is set.
    fn abort(&mut self) -> Result<(), StepError>;
}

/// The operations that a store can execute, beyond reads and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Creates and deletes objects.
    pub insert_delete: bool,
    /// Counts objects in a range of keys, as one predicate.
    pub count: bool,
    /// Aborts a transaction on the user's word, with all its writes undone.
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
    /// The object is absent, or present for an insertion: the transaction has no effect.
    #[error("the object is absent, or exists already")]
    Refused,
    /// The connection is lost. If the step was a commit, its outcome is unknown; else the
    /// transaction has no effect. The connection is of no use any more.
    #[error("the connection is lost: {0}")]
    Lost(String),
}

/// A failure of a driver, apart from transactions.
#[derive(Debug, Error)]
#[error("{target}: {problem}")]
pub struct DriverError {
    /// The store, as the user named it.
    pub target: String,
    /// The problem, and how to mend it.
    pub problem: String,
}
