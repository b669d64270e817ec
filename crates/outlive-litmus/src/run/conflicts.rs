//! Conflicts between transactions of a test: accesses to the same object, of which one is a write.

use super::execution::Execution;
use crate::test::{Step, Test, Transaction};
use std::collections::BTreeSet;

/// The pairs of transactions that conflict. A transaction can conflict with another execution of
/// itself.
pub(super) struct Conflicts(Vec<Vec<bool>>);

/// The objects that a transaction uses.
#[derive(Default)]
struct Accesses {
    reads: BTreeSet<usize>,
    writes: BTreeSet<usize>,
    /// Whether it counts objects.
    counts: bool,
    /// Whether it creates or deletes objects, which changes a count.
    changes_counts: bool,
}

impl Accesses {
    fn of(transaction: &Transaction) -> Self {
        let mut all = Self::default();
        for step in &transaction.steps {
            match step {
                Step::Read { object, .. } => drop(all.reads.insert(*object)),
                Step::Count { .. } => all.counts = true,
                Step::Write { object, .. } => drop(all.writes.insert(*object)),
                Step::Insert { object, .. } | Step::Delete { object } => {
                    all.writes.insert(*object);
                    all.changes_counts = true;
                }
                Step::Abort => {}
            }
        }
        all
    }

    /// Returns whether a write of `self` concerns `other`.
    fn changes(&self, other: &Self) -> bool {
        let is_used = |it| other.reads.contains(it) || other.writes.contains(it);
        self.writes.iter().any(is_used) || self.changes_counts && other.counts
    }
}

impl Conflicts {
    pub(super) fn of(test: &Test) -> Self {
        let all: Vec<Accesses> = test.transactions.iter().map(Accesses::of).collect();
        let row = |a: &Accesses| all.iter().map(|b| a.changes(b) || b.changes(a)).collect();
        Self(all.iter().map(row).collect())
    }

    /// Returns whether two transactions conflict.
    pub(super) fn are(&self, a: usize, b: usize) -> bool {
        self.0[a][b]
    }

    /// Returns whether two executions conflict and were concurrent.
    pub(super) fn met(&self, a: &Execution, b: &Execution) -> bool {
        self.are(a.transaction, b.transaction) && a.overlaps(b)
    }

    /// Returns whether two of the executions have met.
    pub(super) fn any_met(&self, executions: &[Execution]) -> bool {
        let mut pairs = (0..executions.len()).flat_map(|a| (0..a).map(move |b| (a, b)));
        pairs.any(|(a, b)| self.met(&executions[a], &executions[b]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::parse;

    #[test]
    fn accesses_to_one_object_conflict_if_one_is_a_write() {
        let text = "test a about \"b\" family read-write objects x = 0, y = 0
            transaction t1 { a = read x } transaction t2 { b = read x; write y = 1 }
            transaction t3 { write x = 1 } transaction t4 { n = count objects }
            transaction t5 { delete y } never x = 9 forbidden from serializable";
        let conflicts = Conflicts::of(&parse(text).unwrap()[0]);
        let with = |a: usize| (0..5).filter(|b| conflicts.are(a, *b)).collect::<Vec<_>>();
        let all: Vec<Vec<usize>> = (0..5).map(with).collect();
        assert_eq!(
            all,
            [
                vec![2],
                vec![1, 2, 4],
                vec![0, 1, 2],
                vec![4],
                vec![1, 3, 4]
            ]
        );
    }
}
