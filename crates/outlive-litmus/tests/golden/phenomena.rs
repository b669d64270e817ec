//! The tests of the suite by the phenomenon that they show.

/// Cycles with two adjacent `rw` edges or more: the outcomes that snapshot isolation allows.
pub const WRITE_SKEW: &[&str] = &[
    "litmus-2",
    "litmus-2-delete-insert",
    "litmus-2-four-objects",
    "litmus-2-three-transactions",
    "litmus-2-insert-delete",
    "write-skew",
    "write-skew-both",
    "write-skew-delete",
    "write-skew-three",
    "read-only-anomaly",
    "absence-write-skew",
    "predicate-write-skew",
    "predicate-write-skew-delete",
    "real-time-write-skew",
];

/// Writes to an object that another transaction has changed since the writer read: lost updates,
/// and skews with a write.
pub const LOST_UPDATE: &[&str] = &[
    "litmus-3",
    "litmus-3-followers-first",
    "litmus-3-crosswise",
    "litmus-3-delete-insert",
    "litmus-3-insert-delete",
    "litmus-3-three-followers",
    "litmus-3-two-counters",
    "lost-update",
    "lost-update-three",
    "lost-write",
    "predicate-many-preceders-write",
    "read-skew-write",
    "read-skew-delete",
];

/// Two statements of a transaction that see two states.
pub const READ_SKEW: &[&str] = &[
    "unrepeatable-read",
    "read-skew",
    "long-fork",
    "predicate-many-preceders",
    "predicate-many-preceders-delete",
];

/// Reads of writes that are overwritten or part of a transaction that is not over (G1b, G1c).
#[cfg(any(feature = "mariadb", feature = "redis"))]
pub const DIRTY_READ: &[&str] = &[
    "intermediate-read",
    "intermediate-insert",
    "intermediate-delete",
    "intermediate-insert-counted",
    "circular-information-flow",
    "circular-information-flow-three",
    "observed-transaction-vanishes",
    "partial-count",
];

/// Reads of writes that are rolled back (G1a).
#[cfg(feature = "mariadb")]
pub const ABORTED_READ: &[&str] = &[
    "aborted-read",
    "aborted-increment",
    "aborted-insert",
    "aborted-delete",
    "aborted-insert-counted",
];
