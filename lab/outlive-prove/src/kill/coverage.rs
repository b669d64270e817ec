//! Which of the declared crash points a kill has fallen on.

use core::fmt;
use outlive_memory::CrashPoint;
use std::collections::BTreeMap;

/// The crash points of one operation, with their type forgotten: what a [`CrashPoint`] enum declares.
pub struct PointKind {
    operation: &'static str,
    count: usize,
    name: fn(usize) -> &'static str,
}

impl PointKind {
    /// What `P` declares.
    pub fn of<P: CrashPoint>() -> &'static Self {
        const {
            &Self {
                operation: P::OPERATION,
                count: P::ALL.len(),
                name: |index| P::ALL[index].name(),
            }
        }
    }

    /// The operation's name.
    pub fn operation(&self) -> &'static str {
        self.operation
    }

    /// The names of the points, in the order in which the operation passes them.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + '_ {
        (0..self.count).map(|index| (self.name)(index))
    }
}

impl fmt::Debug for PointKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PointKind({}, {} points)", self.operation, self.count)
    }
}

/// A crash point that a victim had passed, and no other since, when it was killed.
#[derive(Clone, Copy)]
pub struct PassedPoint {
    pub(super) kind: &'static PointKind,
    pub(super) index: usize,
}

impl PassedPoint {
    /// The operation that declares it.
    pub fn operation(&self) -> &'static str {
        self.kind.operation
    }

    /// Its place in the order of the operation's points.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Its name.
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

/// How many kills fell between each crash point and the next one passed.
///
/// Every [report](super::SweepReport) has one. Merge those of all sweeps of an operation, then ask what
/// is [missing](Self::missing): a declared point that no sweep has reached is a claim that nothing tests.
///
/// ```
/// use outlive_prove::kill::Coverage;
/// outlive_memory::crash_points! {
///     /// Where a push may be cut short.
///     pub enum PushPoint for "stack.push" {
///         /// The node is written, nobody can reach it.
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
    /// Nothing covered yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts `kills` more at `point`.
    pub(super) fn count(&mut self, point: PassedPoint, kills: u64) {
        let key = (point.operation(), point.index);
        self.kills.entry(key).or_insert((point, 0)).1 += kills;
    }

    /// Adds what another sweep covered.
    pub fn merge(&mut self, other: &Self) {
        for (point, kills) in other.kills.values() {
            self.count(*point, *kills);
        }
    }

    /// The points of `P` at which no kill has fallen.
    pub fn missing<P: CrashPoint>(&self) -> Vec<&'static str> {
        self.missing_of(PointKind::of::<P>())
    }

    /// The points of `kind` at which no kill has fallen.
    pub fn missing_of(&self, kind: &'static PointKind) -> Vec<&'static str> {
        let uncovered = |index: &usize| !self.kills.contains_key(&(kind.operation, *index));
        let missing = (0..kind.count).filter(uncovered);
        missing.map(|index| (kind.name)(index)).collect()
    }

    /// Every point at which a kill has fallen, with the number of kills, by operation and order.
    pub fn points(&self) -> impl Iterator<Item = (PassedPoint, u64)> + '_ {
        self.kills.values().copied()
    }
}

impl fmt::Debug for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.kills.values().copied()).finish()
    }
}
