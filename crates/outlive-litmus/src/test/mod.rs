//! Tests: objects, the transactions of an instance, assertions.

mod expression;

pub use expression::{Comparison, Condition, Expression, Local};

use crate::level::Level;

/// A litmus test.
///
/// The runner executes instances of it: the transactions of an instance run concurrently, each on
/// a connection of its own, once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Test {
    /// The name of the test, unique in a suite: lower-case letters, digits and hyphens.
    pub name: String,
    /// The sentence that explains the test.
    pub about: String,
    /// The kind of anomaly that the test looks for.
    pub family: Family,
    /// The objects, in the order of their names in the file.
    pub objects: Vec<Object>,
    /// The transactions of an instance.
    pub transactions: Vec<Transaction>,
    /// Pairs of transactions (indices): the second begins after the first has ended, also if that
    /// was not committed.
    pub order: Vec<(usize, usize)>,
    /// The assertion.
    pub assertion: Assertion,
    /// The weakest levels that forbid a failing assertion. None of them implies another.
    pub forbidden_from: Vec<Level>,
}

impl Test {
    /// Returns whether `level` forbids a failing assertion.
    pub fn is_forbidden_at(&self, level: Level) -> bool {
        { self.forbidden_from.iter() }.any(|&it| level.implies(it))
    }
}

/// The kind of anomaly that a test looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// A cycle with two writes of the same objects (Litmus 1).
    DirectWrite,
    /// A cycle with anti-dependencies: a read and a later write (Litmus 2).
    ReadWrite,
    /// A cycle through several objects that depend on one (Litmus 3).
    IndirectWrite,
    /// A cycle of transactions that read each other's writes (G1c).
    WriteRead,
    /// A read of a value whose writer aborted.
    AbortedRead,
    /// A read of a value that its writer has overwritten before it committed.
    IntermediateRead,
    /// A cycle through a count of objects, or the absence of one.
    Predicate,
    /// A transaction that does not see an earlier, acknowledged one.
    RealTime,
}

impl Family {
    /// All variants.
    pub const ALL: [Self; 8] = [
        Self::DirectWrite,
        Self::ReadWrite,
        Self::IndirectWrite,
        Self::WriteRead,
        Self::AbortedRead,
        Self::IntermediateRead,
        Self::Predicate,
        Self::RealTime,
    ];

    /// Returns the name of the family in test files and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::DirectWrite => "direct-write",
            Self::ReadWrite => "read-write",
            Self::IndirectWrite => "indirect-write",
            Self::WriteRead => "write-read",
            Self::AbortedRead => "aborted-read",
            Self::IntermediateRead => "intermediate-read",
            Self::Predicate => "predicate",
            Self::RealTime => "real-time",
        }
    }
}

/// An object of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// The name of the object in the file: a lower-case letter, then letters, digits or
    /// underscores.
    pub name: String,
    /// The value of the object before the first transaction; `None` if the object does not exist.
    pub initial: Option<i64>,
}

/// A transaction of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// The name of the transaction in the file.
    pub name: String,
    /// The names of the transaction's reads and counts in the file, by [`Local`].
    pub locals: Vec<String>,
    /// The steps of the transaction. A transaction without [`Step::Abort`] commits after the last
    /// one.
    pub steps: Vec<Step>,
}

/// A step of a transaction. Objects are indices into [`Test::objects`].
///
/// A write or a deletion of an absent object, an insertion of a present one, and a value computed
/// from an absent one abort the transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Reads the value of an object; it may be absent.
    Read {
        /// The object.
        object: usize,
        /// The name of the value.
        into: Local,
    },
    /// Counts the present objects of the test, as one predicate.
    Count {
        /// The name of the number.
        into: Local,
    },
    /// Overwrites the value of a present object.
    Write {
        /// The object.
        object: usize,
        /// Its value from here on.
        value: Expression<Local>,
    },
    /// Creates an absent object.
    Insert {
        /// The object.
        object: usize,
        /// Its value from here on.
        value: Expression<Local>,
    },
    /// Deletes a present object.
    Delete {
        /// The object.
        object: usize,
    },
    /// Aborts the transaction at the request of its user.
    Abort,
}

/// A value that an assertion is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Seen {
    /// The value of an object, as the transaction of the assertion reads it.
    Object(usize),
    /// The value of a read of a transaction of the instance; absent if the object was absent, or if
    /// the transaction ended before the read.
    Read {
        /// The transaction.
        transaction: usize,
        /// The read.
        local: Local,
    },
    /// 1 if the transaction was acknowledged as committed, 0 if it aborted, absent if its outcome
    /// is unknown.
    Committed(usize),
}

/// The assertion of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Assertion {
    /// Holds whenever one transaction reads all objects, with any number of instances on the same
    /// objects, also if they are concurrent, repeated, or cut off by a crash of the client: the
    /// assertion is scalable. It names only [`Seen::Object`].
    Always(Condition<Seen>),
    /// Is the outcome that must not occur after all transactions of an instance have ended. Each
    /// instance has its own objects. A condition on an unknown outcome is false.
    Never(Condition<Seen>),
}
