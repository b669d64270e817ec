//! Transactions of the stores in memory.

use super::data::{Data, Values};
use super::{Kind, Shared};
use outlive_litmus::driver::{Connection, Key, StepError};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

/// A connection to a store in memory.
pub struct Client {
    shared: Arc<Shared>,
    transaction: Option<Transaction>,
    /// The number of the store's crashes before the connection was opened.
    crashes: u64,
}

#[derive(Default)]
struct Transaction {
    snapshot: Arc<Values>,
    /// The number of the snapshot's last commit.
    commit: u64,
    reads: BTreeSet<Key>,
    counts: Vec<Range<Key>>,
    /// The writes of a transaction that installs them at its commit.
    writes: BTreeMap<Key, Option<i64>>,
    /// Whether each changed object has to be present.
    present: BTreeMap<Key, bool>,
    /// The values before writes in place.
    undo: Vec<(Key, Option<i64>)>,
}

impl Client {
    pub fn new(shared: &Arc<Shared>) -> Self {
        Self {
            shared: Arc::clone(shared),
            transaction: None,
            crashes: shared.crashes.load(Ordering::Relaxed),
        }
    }

    /// Returns an error if the store has crashed since the connection was opened.
    fn check(&mut self) -> Result<(), StepError> {
        match self.shared.crashes.load(Ordering::Relaxed) == self.crashes {
            true => Ok(()),
            false => {
                self.roll_back();
                Err(StepError::Lost("the store has crashed".into()))
            }
        }
    }

    fn kind(&self) -> Kind {
        self.shared.kind
    }

    fn is_serial(&self) -> bool {
        use Kind::{AbortsAll, KeepsCrashedLock, KeepsCrashedWrites, LosesAnswers, Serial};
        let kind = self.kind();
        matches!(
            kind,
            Serial | AbortsAll | LosesAnswers | Kind::SplitsKilledCommits
        ) || matches!(kind, KeepsCrashedWrites | KeepsCrashedLock)
    }

    fn writes_in_place(&self) -> bool {
        self.is_serial() || matches!(self.kind(), Kind::DirtyReads | Kind::NoAtomicity)
    }

    fn transaction(&mut self) -> &mut Transaction {
        self.transaction.as_mut().expect("a transaction has begun")
    }

    /// Returns the values that a statement sees, without the transaction's own writes.
    fn visible(&self) -> Arc<Values> {
        let transaction = self.transaction.as_ref().expect("a transaction has begun");
        match self.writes_in_place() || self.kind() == Kind::ReadCommitted {
            true => self.shared.data().snapshot().0,
            false => Arc::clone(&transaction.snapshot),
        }
    }

    /// Returns the value of an object.
    fn value(&mut self, key: Key) -> Option<i64> {
        let visible = self.visible();
        let transaction = self.transaction();
        transaction.reads.insert(key);
        match transaction.writes.get(&key) {
            Some(value) => *value,
            None => visible.get(&key).copied(),
        }
    }

    /// Changes an object that has to be present or absent.
    fn change(&mut self, key: Key, present: bool, value: Option<i64>) -> Result<(), StepError> {
        self.check()?;
        thread::yield_now();
        if self.kind() == Kind::DirtyReads {
            let shared = Arc::clone(&self.shared);
            let is_own = self.transaction().undo.iter().any(|it| it.0 == key);
            // Without waiting there is no deadlock.
            if !is_own && !shared.data().locked.insert(key) {
                return Err(self.aborts("the object is locked"));
            }
            // Rolled back with the others, which unlocks the object.
            let old = shared.data().values.get(&key).copied();
            self.transaction().undo.push((key, old));
        }
        let old = self.value(key);
        if old.is_some() != present {
            self.roll_back();
            return Err(StepError::Refused);
        }
        if self.writes_in_place() {
            let shared = Arc::clone(&self.shared);
            self.transaction().undo.push((key, old));
            shared.data().put(key, value);
        } else {
            let transaction = self.transaction();
            transaction.writes.insert(key, value);
            transaction.present.entry(key).or_insert(present);
        }
        Ok(())
    }

    fn aborts(&mut self, reason: &str) -> StepError {
        self.roll_back();
        StepError::Aborted(reason.into())
    }

    fn roll_back(&mut self) {
        if let Some(transaction) = self.transaction.take() {
            let mut data = self.shared.data();
            for (key, value) in transaction.undo.iter().rev() {
                data.put(*key, *value);
            }
            self.unlock(&transaction, &mut data);
        }
    }

    fn unlock(&self, transaction: &Transaction, data: &mut Data) {
        for (key, _) in &transaction.undo {
            data.locked.remove(key);
        }
        if self.is_serial() {
            self.shared.release();
        }
    }

    /// Returns the reason why a transaction cannot commit.
    fn conflict(&self, transaction: &Transaction, data: &Data) -> Option<&'static str> {
        let is_unchanged = |key: &Key| data.is_unchanged(*key, transaction.commit);
        let validates = match self.kind() {
            Kind::Optimistic | Kind::OptimisticItems | Kind::AppliesAborted => true,
            Kind::Stale => !transaction.writes.is_empty(),
            _ => false,
        };
        let is_possible = |(key, present): (&Key, &bool)| data.values.contains_key(key) == *present;
        let counted = |values: &Values, it: &Range<Key>| values.range(it.clone()).count();
        let is_same = |it| counted(&data.values, it) == counted(&transaction.snapshot, it);
        if self.kind() == Kind::ReadCommitted && !transaction.present.iter().all(is_possible) {
            Some("a written object was created or deleted")
        } else if self.kind() == Kind::Snapshot && !transaction.writes.keys().all(is_unchanged) {
            Some("a written object has changed")
        } else if validates && !transaction.reads.iter().all(is_unchanged) {
            Some("a read object has changed")
        } else if validates
            && self.kind() != Kind::OptimisticItems
            && !transaction.counts.iter().all(is_same)
        {
            Some("a count has changed")
        } else {
            None
        }
    }
}

impl Drop for Client {
    /// The crash of the client, if a transaction runs.
    fn drop(&mut self) {
        match (self.kind(), &self.transaction) {
            (Kind::KeepsCrashedWrites, Some(_)) => self.shared.release(),
            (Kind::KeepsCrashedLock, Some(_)) => {}
            _ => self.roll_back(),
        }
    }
}

impl Connection for Client {
    fn begin(&mut self) -> Result<(), StepError> {
        self.check()?;
        if self.is_serial() {
            self.shared.take();
        }
        let mut data = self.shared.data();
        let (snapshot, commit) = match self.shared.kind {
            Kind::Stale => data.stale_snapshot(),
            _ => data.snapshot(),
        };
        drop(data);
        self.transaction = Some(Transaction {
            snapshot,
            commit,
            ..Transaction::default()
        });
        Ok(())
    }

    fn read(&mut self, key: Key) -> Result<Option<i64>, StepError> {
        self.check()?;
        Ok(self.value(key))
    }

    fn write(&mut self, key: Key, value: i64) -> Result<(), StepError> {
        self.change(key, true, Some(value))
    }

    fn insert(&mut self, key: Key, value: i64) -> Result<(), StepError> {
        self.change(key, false, Some(value))
    }

    fn delete(&mut self, key: Key) -> Result<(), StepError> {
        self.change(key, true, None)
    }

    fn count(&mut self, range: Range<Key>) -> Result<u64, StepError> {
        self.check()?;
        let visible = self.visible();
        let transaction = self.transaction();
        let own = transaction.writes.range(range.clone());
        let own: BTreeMap<Key, Option<i64>> = own.map(|(key, value)| (*key, *value)).collect();
        let others = visible
            .range(range.clone())
            .filter(|it| !own.contains_key(it.0));
        let count = others.count() + own.values().flatten().count();
        transaction.counts.push(range);
        Ok(count as u64)
    }

    fn commit(&mut self) -> Result<(), StepError> {
        self.check()?;
        match self.kind() {
            Kind::AbortsAll => return Err(self.aborts("no transaction commits")),
            Kind::LosesAnswers if fastrand::u8(0..8) == 0 => {
                self.roll_back();
                return Err(StepError::Lost("before the commit".into()));
            }
            _ => {}
        }
        let transaction = self.transaction.take().expect("a transaction has begun");
        let shared = Arc::clone(&self.shared);
        let mut data = shared.data();
        if shared.crashes.load(Ordering::Relaxed) != self.crashes {
            return Err(StepError::Lost("the store has crashed".into()));
        }
        if let Some(reason) = self.conflict(&transaction, &data) {
            if self.kind() == Kind::AppliesAborted {
                data.install(&transaction.writes);
            }
            data.refresh();
            return Err(StepError::Aborted(reason.into()));
        }
        data.install(&transaction.writes);
        self.unlock(&transaction, &mut data);
        match self.kind() {
            Kind::LosesAnswers if fastrand::u8(0..8) == 0 => {
                Err(StepError::Lost("after the commit".into()))
            }
            _ => Ok(()),
        }
    }

    fn commit_and_kill(&mut self, _: Duration) -> Option<Result<(), StepError>> {
        match (self.kind(), fastrand::u8(0..4)) {
            (Kind::SplitsKilledCommits, 0..2) => {
                let undo = &mut self.transaction().undo;
                // Only the last write is rolled back.
                let last = undo.pop();
                *undo = last.into_iter().collect();
                self.roll_back();
                None
            }
            (_, 0) => {
                self.roll_back();
                None
            }
            (_, 1) => {
                // The commit happens or is aborted, and the answer is lost.
                let _ = self.commit();
                None
            }
            _ => Some(self.commit()),
        }
    }

    fn abort(&mut self) -> Result<(), StepError> {
        self.roll_back();
        Ok(())
    }
}
