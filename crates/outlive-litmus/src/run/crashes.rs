//! Crashes of clients, by the statement that they follow.

use super::execution::Execution;
use crate::test::{Step, Test};

/// A position of a transaction after which a client can crash: 0 is after its beginning, `n` after
/// its step `n`, and the last one after its commit, if it commits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crash {
    /// The name of the transaction.
    pub transaction: String,
    /// The position: the number of steps before it, where the commit counts as one.
    pub position: usize,
    /// The statement before it, such as `write x`.
    pub after: String,
    /// The number of crashes at this position.
    pub crashes: u64,
}

/// The crashes of a test.
#[derive(Clone, Debug)]
pub(super) struct Crashes {
    /// By transaction and position.
    counts: Vec<Vec<u64>>,
}

impl Crashes {
    pub(super) fn new(test: &Test) -> Self {
        let counts = test.transactions.iter().map(|transaction| {
            let commits = !transaction.steps.contains(&Step::Abort);
            vec![0; transaction.steps.len() + 1 + usize::from(commits)]
        });
        Self {
            counts: counts.collect(),
        }
    }

    /// Returns all positions: transactions and positions within them.
    pub(super) fn positions(&self) -> Vec<(usize, usize)> {
        let of = |(at, positions): (usize, &Vec<u64>)| (0..positions.len()).map(move |it| (at, it));
        self.counts.iter().enumerate().flat_map(of).collect()
    }

    /// Counts the crash of an execution, if there was one.
    pub(super) fn count(&mut self, execution: &Execution) {
        if let Some(position) = execution.crashed {
            self.counts[execution.transaction][position] += 1;
        }
    }

    /// Returns whether there was a crash at each position.
    pub(super) fn are_complete(&self) -> bool {
        self.counts.iter().flatten().all(|it| *it > 0)
    }

    /// Returns the number of crashes at each position.
    pub(super) fn report(&self, test: &Test) -> Vec<Crash> {
        let one = |(transaction, position): (usize, usize)| Crash {
            transaction: test.transactions[transaction].name.clone(),
            position,
            after: statement(test, transaction, position),
            crashes: self.counts[transaction][position],
        };
        self.positions().into_iter().map(one).collect()
    }
}

/// Returns the statement before a position.
fn statement(test: &Test, transaction: usize, position: usize) -> String {
    let Some(at) = position.checked_sub(1) else {
        return "begin".into();
    };
    let name = |object: &usize| &*test.objects[*object].name;
    match test.transactions[transaction].steps.get(at) {
        Some(Step::Read { object, .. }) => format!("read {}", name(object)),
        Some(Step::Count { .. }) => "count".into(),
        Some(Step::Write { object, .. }) => format!("write {}", name(object)),
        Some(Step::Insert { object, .. }) => format!("insert {}", name(object)),
        Some(Step::Delete { object }) => format!("delete {}", name(object)),
        Some(Step::Abort) => "abort".into(),
        None => "commit".into(),
    }
}
