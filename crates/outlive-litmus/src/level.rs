//! Isolation levels.

use std::fmt;

/// The isolation between transactions, by Adya's definitions.
///
/// The order of the variants is not that of strength: [`RepeatableRead`](Self::RepeatableRead) and
/// [`Snapshot`](Self::Snapshot) are incomparable. [`Level::implies`] compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Isolation {
    /// No guarantee.
    None,
    /// PL-1: no cycle of write dependencies (G0).
    ReadUncommitted,
    /// PL-2: additionally no read of aborted or intermediate values, and no cycle of write and read
    /// dependencies (G1).
    ReadCommitted,
    /// PL-2.99: additionally no cycle with an anti-dependency on an object (G2-item). Predicates
    /// are not covered.
    RepeatableRead,
    /// PL-SI: PL-2, and each transaction reads from a snapshot, and at most one of several
    /// concurrent writers of an object commits (G-SI).
    Snapshot,
    /// PL-3: no cycle of dependencies at all (G2).
    Serializable,
}

impl Isolation {
    /// All variants.
    pub const ALL: [Self; 6] = [
        Self::None,
        Self::ReadUncommitted,
        Self::ReadCommitted,
        Self::RepeatableRead,
        Self::Snapshot,
        Self::Serializable,
    ];

    /// Returns the name of the isolation in test files and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::ReadUncommitted => "read-uncommitted",
            Self::ReadCommitted => "read-committed",
            Self::RepeatableRead => "repeatable-read",
            Self::Snapshot => "snapshot",
            Self::Serializable => "serializable",
        }
    }

    /// Returns whether each execution that `self` allows is allowed by `other` too.
    fn implies(self, other: Self) -> bool {
        match (self, other) {
            (Self::RepeatableRead, Self::Snapshot) | (Self::Snapshot, Self::RepeatableRead) => {
                false
            }
            _ => self >= other,
        }
    }
}

/// An isolation level: the isolation of concurrent transactions, and whether the order of the
/// transactions respects real time.
///
/// ```
/// use outlive_litmus::level::{Isolation, Level};
///
/// let strict = Level::new(Isolation::Serializable, true);
/// assert_eq!(strict.to_string(), "strict-serializable");
/// assert!(strict.implies(Level::new(Isolation::Snapshot, false)));
/// assert!(!Level::new(Isolation::Serializable, false).implies(strict));
/// assert_eq!(Level::named("strict-serializable"), Some(strict));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Level {
    /// The isolation of concurrent transactions.
    pub isolation: Isolation,
    /// Whether the order of the transactions is that of real time: the phenomena are defined on the
    /// graph with an edge from each transaction to those that began after it was acknowledged.
    pub real_time: bool,
}

impl Level {
    /// Returns the level of `isolation` with or without real-time order.
    pub const fn new(isolation: Isolation, real_time: bool) -> Self {
        Self {
            isolation,
            real_time,
        }
    }

    /// Returns all levels.
    pub fn all() -> impl Iterator<Item = Self> {
        let both = |isolation| [false, true].map(|real_time| Self::new(isolation, real_time));
        Isolation::ALL.into_iter().flat_map(both)
    }

    /// Returns the level with this name, as [`Display`](fmt::Display) prints it.
    pub fn named(name: &str) -> Option<Self> {
        Self::all().find(|it| it.to_string() == name)
    }

    /// Returns whether each execution that this level allows is allowed by `other` too.
    pub fn implies(self, other: Self) -> bool {
        self.isolation.implies(other.isolation) && self.real_time >= other.real_time
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let strict = if self.real_time { "strict-" } else { "" };
        write!(f, "{strict}{}", self.isolation.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_levels_are_a_partial_order() {
        let all: Vec<Level> = Level::all().collect();
        for &a in &all {
            assert!(a.implies(a));
            assert_eq!(Level::named(&a.to_string()), Some(a));
            for &b in &all {
                assert!(a == b || !(a.implies(b) && b.implies(a)), "{a} {b}");
                for &c in &all {
                    assert!(
                        !(a.implies(b) && b.implies(c)) || a.implies(c),
                        "{a} {b} {c}"
                    );
                }
            }
        }
    }
}
