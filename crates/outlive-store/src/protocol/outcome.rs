//! The outcomes of transactions, for clients whose coordinator has died.

use crate::tables::TransactionId;

/// The outcome of an attempt, which another program can determine by the attempt's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The attempt was committed.
    Committed,
    /// The attempt has had no effect and never will have one: it was aborted, or wrote no object.
    NoEffect,
    /// The outcome is not known: the compute server is live or not recovered yet, or the
    /// coordinator has begun later commits.
    Unknown,
}

/// The record of a coordinator's last commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastCommit {
    /// The last attempt that began its commit. Before the first commit, a number before that of all
    /// attempts.
    pub begun: TransactionId,
    /// The last attempt that was committed, if any.
    pub committed: Option<TransactionId>,
}

impl LastCommit {
    /// Returns the outcome of `attempt`. `has_failed` tells whether its compute server has failed,
    /// so that its logs are recovered.
    pub fn outcome(&self, attempt: TransactionId, has_failed: bool) -> Outcome {
        if self.committed == Some(attempt) {
            return Outcome::Committed;
        }
        let is_last = attempt == self.begun || attempt.follows(self.begun);
        match has_failed && is_last {
            true => Outcome::NoEffect,
            false => Outcome::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_commit_has_a_known_outcome() {
        let id = |attempt| TransactionId::new(3, 4, attempt);
        let last = |begun, committed: Option<u32>| LastCommit {
            begun: id(begun),
            committed: committed.map(id),
        };
        assert_eq!(last(7, Some(7)).outcome(id(7), false), Outcome::Committed);
        assert_eq!(last(7, Some(5)).outcome(id(5), true), Outcome::Committed);
        assert_eq!(last(7, Some(5)).outcome(id(7), true), Outcome::NoEffect);
        assert_eq!(last(7, Some(5)).outcome(id(7), false), Outcome::Unknown);
        assert_eq!(last(7, Some(7)).outcome(id(8), true), Outcome::NoEffect);
        assert_eq!(last(7, Some(7)).outcome(id(6), true), Outcome::Unknown);
        assert_eq!(last(u32::MAX, None).outcome(id(2), true), Outcome::NoEffect);
        let other = TransactionId::new(3, 5, 7);
        assert_eq!(last(7, Some(7)).outcome(other, true), Outcome::Unknown);
    }
}
