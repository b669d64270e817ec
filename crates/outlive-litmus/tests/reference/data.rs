//! Committed versions of objects.

use outlive_litmus::driver::Key;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The values of all present objects.
pub type Values = BTreeMap<Key, i64>;

/// The time for which a stale snapshot is used at most.
const STALENESS: Duration = Duration::from_millis(20);

/// The objects of a store.
#[derive(Default)]
pub struct Data {
    pub values: Values,
    /// The number of the last commit that wrote an object.
    changed: BTreeMap<Key, u64>,
    pub commits: u64,
    /// The snapshot for stale reads, with its commit and time.
    old: Option<(Arc<Values>, u64, Instant)>,
    /// The values of the last checkpoint.
    checkpoint: Values,
    /// Objects that a transaction has written in place.
    pub locked: BTreeSet<Key>,
}

impl Data {
    pub fn set(&mut self, objects: &[(Key, Option<i64>)]) {
        self.commits += 1;
        for (key, value) in objects {
            self.put(*key, *value);
        }
        self.refresh();
        self.checkpoint = self.values.clone();
    }

    /// Returns those objects to their values of the last checkpoint that `lose` them.
    pub fn lose_commits(&mut self, lose: impl Fn(Key) -> bool) {
        self.values.retain(|key, _| !lose(*key));
        let lost = self.checkpoint.iter().filter(|(key, _)| lose(**key));
        self.values.extend(lost);
        self.refresh();
    }

    pub fn put(&mut self, key: Key, value: Option<i64>) {
        match value {
            Some(value) => self.values.insert(key, value),
            None => self.values.remove(&key),
        };
        self.changed.insert(key, self.commits);
    }

    /// Installs the writes of a transaction.
    pub fn install(&mut self, writes: &BTreeMap<Key, Option<i64>>) {
        self.commits += 1;
        for (key, value) in writes {
            self.put(*key, *value);
        }
        if self.commits.is_multiple_of(64) {
            self.checkpoint = self.values.clone();
        }
    }

    /// Returns whether the object was not changed since the commit with number `snapshot`.
    pub fn is_unchanged(&self, key: Key, snapshot: u64) -> bool {
        self.changed.get(&key).is_none_or(|it| *it <= snapshot)
    }

    /// Returns a snapshot and the number of its last commit.
    pub fn snapshot(&self) -> (Arc<Values>, u64) {
        (Arc::new(self.values.clone()), self.commits)
    }

    /// Forgets the snapshot for stale reads.
    pub fn refresh(&mut self) {
        self.old = None;
    }

    /// Returns a snapshot that may be old.
    pub fn stale_snapshot(&mut self) -> (Arc<Values>, u64) {
        let is_usable = |it: &(_, _, Instant)| it.2.elapsed() < STALENESS;
        if !self.old.as_ref().is_some_and(is_usable) {
            let (values, commit) = self.snapshot();
            self.old = Some((values, commit, Instant::now()));
        }
        let (values, commit, _) = self.old.as_ref().unwrap();
        (Arc::clone(values), *commit)
    }
}
