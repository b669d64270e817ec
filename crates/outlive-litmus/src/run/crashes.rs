//! Crashes of clients, by the statement that they follow.

use super::execution::Execution;
use crate::test::{Step, Test};

/// A position of a transaction at which a client can crash: 0 is after its beginning, `n` after its
/// step `n`. If it commits, the next one is after the commit, and the last one within the commit,
/// if the driver can kill a client there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crash {
    /// The name of the transaction.
    pub transaction: String,
    /// The position: the number of steps before it, where the commit counts as one.
    pub position: usize,
    /// The statement before it, such as `write x`.
    pub after: String,
    /// Whether the client is killed within the commit: after its request, and before its answer.
    pub within_commit: bool,
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
    /// Returns counters of zero. With `in_commits`, clients also crash within commits.
    pub(super) fn new(test: &Test, in_commits: bool) -> Self {
        let counts = test.transactions.iter().map(|transaction| {
            let commits = match transaction.steps.contains(&Step::Abort) {
                true => 0,
                false => 1 + usize::from(in_commits),
            };
            vec![0; transaction.steps.len() + 1 + commits]
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
            within_commit: position == within_commit(test, transaction),
            crashes: self.counts[transaction][position],
        };
        self.positions().into_iter().map(one).collect()
    }
}

/// Returns the position within the commit of a transaction.
pub(super) fn within_commit(test: &Test, transaction: usize) -> usize {
    test.transactions[transaction].steps.len() + 2
}

/// Returns the statement before a position.
fn statement(test: &Test, transaction: usize, position: usize) -> String {
    let Some(at) = position.checked_sub(1) else {
        return "begin".into();
    };
    if position == within_commit(test, transaction) {
        return "request of the commit".into();
    }
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
