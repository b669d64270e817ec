//! The declared crash points at which threads have died.

use outlive_memory::CrashPoint;
use std::collections::BTreeMap;
use std::fmt;

/// The number of deaths by the last crash point that the dead thread had passed.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    operations: BTreeMap<&'static str, Vec<(&'static str, u64)>>,
}

impl Coverage {
    /// Adds the points of an operation, covered or not.
    pub fn declare<P: CrashPoint>(&mut self) {
        self.operations
            .entry(P::OPERATION)
            .or_insert_with(|| P::ALL.iter().map(|point| (point.name(), 0)).collect());
    }

    pub(crate) fn died_after(&mut self, operation: &'static str, index: usize) {
        if let Some(points) = self.operations.get_mut(operation) {
            points[index].1 += 1;
        }
    }

    /// Returns the number of deaths at a point.
    pub fn deaths_at<P: CrashPoint>(&self, point: P) -> u64 {
        self.operations
            .get(P::OPERATION)
            .map_or(0, |points| points[point.index()].1)
    }

    /// Returns the declared points at which no thread died, as `operation::Point`.
    pub fn missing(&self) -> Vec<String> {
        let uncovered = |(operation, points): (&&str, &Vec<(&str, u64)>)| {
            let of = operation.to_string();
            let points = points.iter().filter(|(_, deaths)| *deaths == 0);
            points
                .map(|(name, _)| format!("{of}::{name}"))
                .collect::<Vec<_>>()
        };
        self.operations.iter().flat_map(uncovered).collect()
    }

    /// Adds the coverage of another exploration.
    pub fn merge(&mut self, other: &Coverage) {
        for (operation, points) in &other.operations {
            let mine = self.operations.entry(operation);
            let mine = mine.or_insert_with(|| points.iter().map(|(name, _)| (*name, 0)).collect());
            for (mine, theirs) in mine.iter_mut().zip(points) {
                mine.1 += theirs.1;
            }
        }
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (operation, points) in &self.operations {
            for (name, deaths) in points {
                writeln!(f, "{operation}::{name}: {deaths} deaths")?;
            }
        }
        Ok(())
    }
}
