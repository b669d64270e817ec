//! The declared crash points at which kills have fallen.

use core::fmt;
use outlive_memory::CrashPoint;
use std::collections::BTreeMap;

/// The crash points of one operation, as a [`CrashPoint`] enum declares them, without their type.
pub struct PointKind {
    operation: &'static str,
    count: usize,
    name: fn(usize) -> &'static str,
}

impl PointKind {
    /// Returns the declaration of `P`.
    pub fn of<P: CrashPoint>() -> &'static Self {
        const {
            &Self {
                operation: P::OPERATION,
                count: P::ALL.len(),
                name: |index| P::ALL[index].name(),
            }
        }
    }

    /// Returns the operation's name.
    pub fn operation(&self) -> &'static str {
        self.operation
    }

    /// Returns the names of the points, in the order in which the operation passes them.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + '_ {
        (0..self.count).map(|index| (self.name)(index))
    }
}

impl fmt::Debug for PointKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PointKind({}, {} points)", self.operation, self.count)
    }
}

/// The last crash point that a victim had passed when it was killed.
#[derive(Clone, Copy)]
pub struct PassedPoint {
    pub(super) kind: &'static PointKind,
    pub(super) index: usize,
}

impl PassedPoint {
    /// Returns the name of the operation that declares it.
    pub fn operation(&self) -> &'static str {
        self.kind.operation
    }

    /// Returns its position in the order of the operation's points.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Returns its name.
    pub fn name(&self) -> &'static str {
        (self.kind.name)(self.index)
    }
}

impl fmt::Display for PassedPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.operation(), self.name())
    }
}

impl fmt::Debug for PassedPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// The number of kills between each crash point and the next one passed.
///
/// Every [report](super::SweepReport) has one. Merge those of all sweeps of an operation, then ask
/// for the [missing](Self::missing) points: a declared point that no sweep reached is untested.
///
/// ```
/// use outlive_prove::kill::Coverage;
/// outlive_memory::crash_points! {
///     /// Where a push may be cut short.
///     pub enum PushPoint for "stack.push" {
///         /// The node is written, no thread can reach it.
///         Written,
///         /// The node is reachable.
///         Linked,
///     }
/// }
/// // No sweep has run, so both points are missing.
/// assert_eq!(Coverage::new().missing::<PushPoint>(), ["Written", "Linked"]);
/// ```
#[derive(Clone, Default)]
pub struct Coverage {
    kills: BTreeMap<(&'static str, usize), (PassedPoint, u64)>,
}

impl Coverage {
    /// Returns an empty coverage.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `kills` at `point`.
    pub(super) fn count(&mut self, point: PassedPoint, kills: u64) {
        let key = (point.operation(), point.index);
        self.kills.entry(key).or_insert((point, 0)).1 += kills;
    }

    /// Adds the coverage of another sweep.
    pub fn merge(&mut self, other: &Self) {
        for (point, kills) in other.kills.values() {
            self.count(*point, *kills);
        }
    }

    /// Returns the points of `P` at which no kill has fallen.
    pub fn missing<P: CrashPoint>(&self) -> Vec<&'static str> {
        self.missing_of(PointKind::of::<P>())
    }

    /// Returns the points of `kind` at which no kill has fallen.
    pub fn missing_of(&self, kind: &'static PointKind) -> Vec<&'static str> {
        let uncovered = |index: &usize| !self.kills.contains_key(&(kind.operation, *index));
        let missing = (0..kind.count).filter(uncovered);
        missing.map(|index| (kind.name)(index)).collect()
    }

    /// Returns every point at which kills have fallen, with their number, by operation and order.
    pub fn points(&self) -> impl Iterator<Item = (PassedPoint, u64)> + '_ {
        self.kills.values().copied()
    }
}

impl fmt::Debug for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.kills.values().copied()).finish()
    }
}
