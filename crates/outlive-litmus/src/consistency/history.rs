//! Histories: transactions with the versions that they read and wrote.

use super::orders::Relation;

/// An execution of a few transactions (definition 2.5.1 of the thesis, after Adya).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    /// The objects that the transactions access.
    pub objects: Vec<Chronicle>,
    /// The transactions of the execution.
    pub transactions: Vec<Executed>,
    /// Pairs of transactions: the second began after the first had ended.
    pub real_time: Vec<(usize, usize)>,
}

/// An object with its versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chronicle {
    /// Whether the object exists before the first transaction.
    pub present: bool,
    /// The committed transactions that wrote the object, in the order of their versions. The
    /// version of a transaction is its last write.
    pub writers: Vec<usize>,
}

/// A transaction of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Executed {
    /// The reads and writes of the transaction in program order.
    pub events: Vec<Event>,
    /// Whether the transaction committed; otherwise it aborted.
    pub commits: bool,
}

/// A read or a write.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Event {
    /// A read of an object.
    Read {
        /// The object.
        object: usize,
        /// The version that it saw.
        version: Version,
    },
    /// A count of the present objects, as one predicate.
    Count {
        /// The version that it saw, for each object.
        versions: Vec<Version>,
    },
    /// A write of an object.
    Write {
        /// The object.
        object: usize,
        /// Its kind.
        change: Change,
    },
}

impl Event {
    /// Returns the object; `None` for a count.
    pub fn object(&self) -> Option<usize> {
        match self {
            Self::Read { object, .. } | Self::Write { object, .. } => Some(*object),
            Self::Count { .. } => None,
        }
    }
}

/// The kind of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Change {
    /// Overwrites the value.
    Update,
    /// Creates the object.
    Insert,
    /// Deletes the object.
    Delete,
}

/// A version of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Version {
    /// The state before the first transaction.
    Initial,
    /// The state after a write.
    Written {
        /// The transaction that wrote the version.
        transaction: usize,
        /// The number of the write among the writer's writes of the object, from 0 on.
        write: usize,
    },
}

impl Version {
    /// Returns the version after the first write of `transaction`.
    pub fn of(transaction: usize) -> Self {
        Self::Written {
            transaction,
            write: 0,
        }
    }
}

impl History {
    /// Returns the kinds of the writes of `object` by `transaction`, in program order.
    pub fn writes(&self, transaction: usize, object: usize) -> Vec<Change> {
        let events = &self.transactions[transaction].events;
        let of_object = |event: &Event| match event {
            Event::Write { object: it, change } if *it == object => Some(*change),
            _ => None,
        };
        events.iter().filter_map(of_object).collect()
    }

    /// Returns the position of `version` in the version order of `object`, 0 for the initial one;
    /// `None` if it is not in that order, since its writer aborted or overwrote it.
    pub fn place(&self, object: usize, version: Version) -> Option<usize> {
        let Version::Written { transaction, write } = version else {
            return Some(0);
        };
        let place = { self.objects[object].writers.iter() }.position(|&it| it == transaction)?;
        (write + 1 == self.writes(transaction, object).len()).then_some(place + 1)
    }

    /// Returns whether the object exists in its version at the position `place`.
    pub fn is_present(&self, object: usize, place: usize) -> bool {
        let chronicle = &self.objects[object];
        match place.checked_sub(1) {
            None => chronicle.present,
            Some(at) => self.writes(chronicle.writers[at], object).last() != Some(&Change::Delete),
        }
    }

    /// Returns the positions of the versions of `object` that change whether it is present.
    pub fn changes_of_presence(&self, object: usize) -> Vec<usize> {
        let places = 1..=self.objects[object].writers.len();
        let changes =
            |&place: &usize| self.is_present(object, place) != self.is_present(object, place - 1);
        places.filter(changes).collect()
    }

    /// Returns the numbers of the committed transactions.
    pub fn committed(&self) -> Vec<usize> {
        let all = 0..self.transactions.len();
        all.filter(|&it| self.transactions[it].commits).collect()
    }

    /// Returns the pairs of committed transactions in real-time order, transitively closed.
    pub fn real_time_order(&self) -> Vec<(usize, usize)> {
        let all = self.transactions.len();
        let closed = Relation::of(all, self.real_time.iter().copied()).close();
        let committed = self.committed();
        let pairs = { committed.iter() }.flat_map(|&a| committed.iter().map(move |&b| (a, b)));
        pairs.filter(|&(a, b)| closed.has(a, b)).collect()
    }

    /// Returns the versions of other transactions that a transaction read, with their objects: one
    /// list for each read and count, and whether it is a count. The transaction's own writes are
    /// left out; a count sees its own write of an object if that made it present or absent.
    pub(super) fn views(&self, transaction: usize) -> Vec<(bool, Vec<(usize, Version)>)> {
        let is_own = |version: Version| matches!(version, Version::Written { transaction: it, .. } if it == transaction);
        let counts_own = |object: usize, version: Version| {
            let Some(place) = self.place(object, version) else {
                return false;
            };
            let changes = self.changes_of_presence(object);
            let last = changes.iter().rfind(|&&it| it <= place);
            last.is_some_and(|&it| self.objects[object].writers[it - 1] == transaction)
        };
        let mut views = Vec::new();
        for event in &self.transactions[transaction].events {
            let (is_count, mut view) = match event {
                Event::Read { object, version } => (false, vec![(*object, *version)]),
                Event::Count { versions } => (true, versions.iter().copied().enumerate().collect()),
                Event::Write { .. } => continue,
            };
            view.retain(|&(object, version)| {
                !(is_own(version) || is_count && counts_own(object, version))
            });
            if !view.is_empty() {
                views.push((is_count, view));
            }
        }
        views
    }
}
