//! Histories of transactions, and an exact check for strict serializability.
//!
//! The check searches an order of the transactions in which each one returns the results that it
//! returned, and which agrees with real time: a transaction that ended before another began comes
//! first. A committed transaction must be in the order, an aborted one must not. One without an
//! answer, because its compute server died, may be in it. The search is exhaustive, so histories
//! are small. It remembers the states that it has refuted.
//!
//! A search for dependency cycles would be faster for large histories, and needs the order of the
//! versions of each key. Here deletions end the versions of a key, absent keys are read, and a
//! transaction without an answer may have written what no other one has read: the order of these is
//! not visible in values, so it would be a part of the search again.

use outlive_store::tables::TransactionId;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};

/// An access of a transaction with its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// A key was read.
    Read(u64, Option<u64>),
    /// A key was written if it existed. The result is whether it did.
    Write(u64, u64, bool),
    /// A key was inserted if it did not exist. The result is whether it was inserted.
    Insert(u64, u64, bool),
    /// A key was deleted. The result is the previous value.
    Delete(u64, Option<u64>),
}

type State = BTreeMap<u64, u64>;

impl Access {
    /// Executes the access. Returns whether the result is the recorded one.
    fn replay(&self, state: &mut State) -> bool {
        match *self {
            Self::Read(key, value) => state.get(&key).copied() == value,
            Self::Write(key, value, existed) => match state.get_mut(&key) {
                Some(now) => {
                    *now = value;
                    existed
                }
                None => !existed,
            },
            Self::Insert(key, value, is_new) => {
                let absent = !state.contains_key(&key);
                if absent {
                    state.insert(key, value);
                }
                absent == is_new
            }
            Self::Delete(key, value) => state.remove(&key) == value,
        }
    }
}

/// What a client knows of its transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The client has been told of the commit.
    Committed,
    /// The client has been told that it was not committed.
    Aborted,
    /// The client has found out, after the death of the coordinator, that it had no effect: it was
    /// not committed, or wrote nothing.
    NoEffect,
    /// The client has received no answer.
    Unknown,
}

/// A transaction in a history.
#[derive(Clone, Debug)]
pub struct Record {
    /// The name in messages.
    pub name: String,
    /// The accesses of the last attempt.
    pub accesses: Vec<Access>,
    /// Whether the body of the last attempt has returned.
    pub is_complete: bool,
    /// The outcome.
    pub outcome: Outcome,
    /// Whether the client has found out the outcome after the death of the coordinator.
    pub was_resolved: bool,
    /// The compute server that executed it.
    pub compute: usize,
    /// The last attempt.
    pub attempt: Option<TransactionId>,
    begin: u64,
    end: u64,
}

/// The transactions of a run in the order of their beginnings. Time is the order of the calls.
#[derive(Debug, Default)]
pub struct History {
    records: RefCell<Vec<Record>>,
    time: RefCell<u64>,
}

impl History {
    fn tick(&self) -> u64 {
        let mut time = self.time.borrow_mut();
        *time += 1;
        *time
    }

    /// Begins a transaction of `compute`. Returns its number.
    pub fn begin(&self, name: String, compute: usize) -> usize {
        let begin = self.tick();
        let mut records = self.records.borrow_mut();
        records.push(Record {
            name,
            accesses: Vec::new(),
            is_complete: false,
            outcome: Outcome::Unknown,
            was_resolved: false,
            compute,
            attempt: None,
            begin,
            end: u64::MAX,
        });
        records.len() - 1
    }

    /// Begins an attempt.
    pub fn restart(&self, number: usize, attempt: Option<TransactionId>) {
        let mut records = self.records.borrow_mut();
        records[number].attempt = attempt;
        records[number].accesses.clear();
        records[number].is_complete = false;
    }

    /// Adds an access to the attempt.
    pub fn add(&self, number: usize, access: Access) {
        self.records.borrow_mut()[number].accesses.push(access);
    }

    /// The body of the attempt has returned.
    pub fn complete(&self, number: usize) {
        self.records.borrow_mut()[number].is_complete = true;
    }

    /// Ends a transaction.
    pub fn end(&self, number: usize, outcome: Outcome) {
        let end = self.tick();
        let mut records = self.records.borrow_mut();
        records[number].outcome = outcome;
        records[number].end = end;
    }

    /// Gives transactions without an answer the outcomes that `outcome` returns for their compute
    /// servers and last attempts.
    pub fn resolve(&self, outcome: impl Fn(usize, TransactionId) -> Option<Outcome>) {
        let end = self.tick();
        for record in self.records.borrow_mut().iter_mut() {
            if record.outcome == Outcome::Unknown
                && let Some(attempt) = record.attempt
                && let Some(resolved) = outcome(record.compute, attempt)
            {
                record.outcome = resolved;
                record.was_resolved = true;
                record.end = end;
            }
        }
    }

    /// The number of transactions for which `which` holds.
    pub fn count(&self, which: impl Fn(&Record) -> bool) -> usize {
        self.records.borrow().iter().filter(|it| which(it)).count()
    }

    /// Checks that the history is strictly serializable from an empty state.
    ///
    /// # Errors
    /// The history, if it is not.
    pub fn check(&self) -> Result<(), String> {
        let records = self.records.borrow();
        // An attempt whose body did not return cannot have been committed.
        let can_commit = |it: &&Record| match it.outcome {
            Outcome::Committed => true,
            Outcome::Unknown => it.is_complete,
            Outcome::Aborted | Outcome::NoEffect => false,
        };
        let relevant: Vec<&Record> = records.iter().filter(can_commit).collect();
        assert!(relevant.len() <= 64, "the history is small");
        let mut search = Search {
            records: &relevant,
            refuted: HashSet::new(),
        };
        match search.extend(0, &State::new()) {
            true => Ok(()),
            false => {
                let lines = records.iter().map(|it| {
                    let end = if it.end == u64::MAX { 0 } else { it.end };
                    let span = format!("{}..{end}", it.begin);
                    format!("  {} {span} {:?}: {:?}", it.name, it.outcome, it.accesses)
                });
                let lines: Vec<String> = lines.collect();
                Err(format!("not strictly serializable:\n{}", lines.join("\n")))
            }
        }
    }
}

struct Search<'a> {
    records: &'a [&'a Record],
    /// The sets of transactions with the states after them that lead to no order.
    refuted: HashSet<(u64, Vec<(u64, u64)>)>,
}

impl Search<'_> {
    /// Returns whether the transactions that are not in `done` can follow in `state`.
    fn extend(&mut self, done: u64, state: &State) -> bool {
        let left = |index: &usize| done >> index & 1 == 0;
        let indices = || (0..self.records.len()).filter(left);
        let must = indices().filter(|it| self.records[*it].outcome == Outcome::Committed);
        // No transaction that is left may have ended before the next one began.
        let Some(first_end) = must.map(|it| self.records[it].end).min() else {
            return true;
        };
        let key = (
            done,
            state.iter().map(|(key, value)| (*key, *value)).collect(),
        );
        if self.refuted.contains(&key) {
            return false;
        }
        for index in indices().collect::<Vec<_>>() {
            let record = self.records[index];
            if record.begin > first_end {
                continue;
            }
            let mut next = state.clone();
            let is_right = record
                .accesses
                .iter()
                .all(|access| access.replay(&mut next));
            if is_right && self.extend(done | 1 << index, &next) {
                return true;
            }
        }
        self.refuted.insert(key);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(transactions: &[(&[Access], Outcome)], is_concurrent: bool) -> History {
        let history = History::default();
        let begin = |number: usize| history.begin(number.to_string(), 0);
        let concurrent: Vec<usize> = match is_concurrent {
            true => (0..transactions.len()).map(begin).collect(),
            false => Vec::new(),
        };
        for (number, (accesses, outcome)) in transactions.iter().enumerate() {
            let number = concurrent
                .get(number)
                .copied()
                .unwrap_or_else(|| begin(number));
            accesses
                .iter()
                .for_each(|it| history.add(number, it.clone()));
            history.complete(number);
            history.end(number, *outcome);
        }
        history
    }

    #[test]
    fn orders_that_explain_all_results_are_found() {
        let insert = [Access::Insert(1, 7, true)];
        let read = [Access::Read(1, Some(7))];
        let committed = Outcome::Committed;
        let concurrent = history(&[(&read, committed), (&insert, committed)], true);
        assert!(concurrent.check().is_ok());
        let late = history(&[(&read, committed), (&insert, committed)], false);
        assert!(late.check().is_err(), "a read before the write began");
        let unknown = history(&[(&insert, Outcome::Unknown), (&read, committed)], false);
        assert!(unknown.check().is_ok());
        let aborted = history(&[(&insert, Outcome::Aborted), (&read, committed)], false);
        assert!(
            aborted.check().is_err(),
            "the value of an aborted transaction"
        );
    }

    #[test]
    fn write_skew_is_found() {
        let first = [Access::Read(1, None), Access::Insert(2, 2, true)];
        let second = [Access::Read(2, None), Access::Insert(1, 1, true)];
        let committed = Outcome::Committed;
        let skewed = history(&[(&first, committed), (&second, committed)], true);
        assert!(skewed.check().is_err());
    }

    #[test]
    fn a_lost_acknowledged_write_is_found() {
        let insert = [Access::Insert(1, 7, true)];
        let read = [Access::Read(1, None)];
        let committed = Outcome::Committed;
        assert!(
            history(&[(&insert, committed), (&read, committed)], false)
                .check()
                .is_err()
        );
    }
}
