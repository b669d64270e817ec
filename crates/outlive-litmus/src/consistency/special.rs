//! Histories that are not cycles of words: dirty reads, counts, and absent objects.

use super::history::{Change, Chronicle, Event, Executed, History, Version};
use crate::test::Family;

/// A history with its name and explanation.
pub struct Special {
    /// The name of the history's test.
    pub name: &'static str,
    /// The sentence that explains the history.
    pub about: &'static str,
    /// The family of the history's test.
    pub family: Family,
    /// The history that the test looks for.
    pub history: History,
}

/// Returns a history of committed transactions over objects that are present or not; a version
/// order is the order of the transactions.
fn history(present: &[bool], transactions: &[&[Event]]) -> History {
    let executed = |events: &&[Event]| Executed {
        events: events.to_vec(),
        commits: true,
    };
    let mut history = History {
        objects: Vec::new(),
        transactions: transactions.iter().map(executed).collect(),
        real_time: Vec::new(),
    };
    let all = 0..transactions.len();
    for (object, &present) in present.iter().enumerate() {
        let writes = |it: &usize| !history.writes(*it, object).is_empty();
        let writers = all.clone().filter(writes).collect();
        history.objects.push(Chronicle { present, writers });
    }
    history
}

/// Returns the history with its first transaction aborted.
fn aborted(mut history: History) -> History {
    history.transactions[0].commits = false;
    for object in &mut history.objects {
        object.writers.retain(|&it| it != 0);
    }
    history
}

fn write(object: usize, change: Change) -> Event {
    Event::Write { object, change }
}

fn update(object: usize) -> Event {
    write(object, Change::Update)
}

fn insert(object: usize) -> Event {
    write(object, Change::Insert)
}

fn delete(object: usize) -> Event {
    write(object, Change::Delete)
}

/// Returns a read of the version before the first transaction.
fn old(object: usize) -> Event {
    Event::Read {
        object,
        version: Version::Initial,
    }
}

/// Returns a read of the first write of a transaction.
fn new(object: usize, transaction: usize) -> Event {
    Event::Read {
        object,
        version: Version::of(transaction),
    }
}

/// Returns a count that sees the objects before the first transaction, except for `changed`: pairs
/// of an object and the transaction whose write of it is seen.
fn count(objects: usize, changed: &[(usize, usize)]) -> Event {
    let mut versions = vec![Version::Initial; objects];
    for &(object, transaction) in changed {
        versions[object] = Version::of(transaction);
    }
    Event::Count { versions }
}

impl Special {
    /// Returns all special tests.
    pub fn all() -> Vec<Self> {
        let all = [dirty(), phantoms(), count_cycles(), absences()];
        all.into_iter().flatten().collect()
    }
}

/// Reads of aborted and of intermediate values.
fn dirty() -> Vec<Special> {
    vec![
        Special {
            name: "aborted-read",
            about: "t2 reads a value of t1, which aborts.",
            family: Family::AbortedRead,
            history: aborted(history(&[true], &[&[update(0)], &[new(0, 0)]])),
        },
        Special {
            name: "aborted-insert",
            about: "t2 reads an object that t1 has inserted; t1 aborts.",
            family: Family::AbortedRead,
            history: aborted(history(&[false], &[&[insert(0)], &[new(0, 0)]])),
        },
        Special {
            name: "aborted-delete",
            about: "t2 does not find an object that t1 has deleted; t1 aborts.",
            family: Family::AbortedRead,
            history: aborted(history(&[true], &[&[delete(0)], &[new(0, 0)]])),
        },
        Special {
            name: "aborted-count",
            about: "t2 counts an object that t1 has inserted; t1 aborts.",
            family: Family::AbortedRead,
            history: aborted(history(&[false], &[&[insert(0)], &[count(1, &[(0, 0)])]])),
        },
        Special {
            name: "intermediate-read",
            about: "t2 reads a value that t1 overwrites before it commits.",
            family: Family::IntermediateRead,
            history: history(&[true], &[&[update(0), update(0)], &[new(0, 0)]]),
        },
        Special {
            name: "intermediate-insert",
            about: "t2 reads the value of an insertion by t1, which overwrites it before it commits.",
            family: Family::IntermediateRead,
            history: history(&[false], &[&[insert(0), update(0)], &[new(0, 0)]]),
        },
    ]
}

/// Two counts, or a count and a read, that see different states.
fn phantoms() -> Vec<Special> {
    vec![
        Special {
            name: "phantom-insert",
            about: "t1 counts before and after t2 inserts an object.",
            family: Family::Predicate,
            history: history(
                &[false],
                &[&[count(1, &[]), count(1, &[(0, 1)])], &[insert(0)]],
            ),
        },
        Special {
            name: "phantom-delete",
            about: "t1 counts before and after t2 deletes an object.",
            family: Family::Predicate,
            history: history(
                &[true],
                &[&[count(1, &[]), count(1, &[(0, 1)])], &[delete(0)]],
            ),
        },
        Special {
            name: "count-then-read",
            about: "t1 counts before t2 inserts an object, then reads a write of t2.",
            family: Family::Predicate,
            history: history(
                &[false, true],
                &[&[count(2, &[]), new(1, 1)], &[insert(0), update(1)]],
            ),
        },
        Special {
            name: "read-then-count",
            about: "t1 reads an object before t2 writes it, then counts an insertion of t2.",
            family: Family::Predicate,
            history: history(
                &[false, true],
                &[&[old(1), count(2, &[(0, 1)])], &[insert(0), update(1)]],
            ),
        },
        Special {
            name: "stale-count",
            about: "t2 begins after the insertion of t1 was acknowledged, and does not count it.",
            family: Family::RealTime,
            history: History {
                real_time: vec![(0, 1)],
                ..history(&[false], &[&[insert(0)], &[count(1, &[])]])
            },
        },
    ]
}

/// Cycles of transactions that count objects and change their presence.
fn count_cycles() -> Vec<Special> {
    vec![
        Special {
            name: "write-skew-insert",
            about: "Two transactions insert objects, and neither counts the other's.",
            family: Family::Predicate,
            history: history(
                &[false, false],
                &[&[count(2, &[]), insert(0)], &[count(2, &[]), insert(1)]],
            ),
        },
        Special {
            name: "write-skew-delete",
            about: "Two transactions delete objects, and both count all objects before.",
            family: Family::Predicate,
            history: history(
                &[true, true],
                &[&[count(2, &[]), delete(0)], &[count(2, &[]), delete(1)]],
            ),
        },
        Special {
            name: "write-skew-count",
            about: "t1 does not count the insertion of t2, and t2 does not read the write of t1.",
            family: Family::Predicate,
            history: history(
                &[false, true],
                &[&[count(2, &[]), update(1)], &[old(1), insert(0)]],
            ),
        },
        Special {
            name: "mutual-count",
            about: "Two transactions insert objects, and each counts the other's.",
            family: Family::Predicate,
            history: history(
                &[false, false],
                &[
                    &[insert(0), count(2, &[(0, 0), (1, 1)])],
                    &[insert(1), count(2, &[(0, 0), (1, 1)])],
                ],
            ),
        },
    ]
}

/// Cycles through the absence of objects.
fn absences() -> Vec<Special> {
    vec![
        Special {
            name: "write-skew-absent",
            about: "Two transactions insert objects, and neither finds the other's.",
            family: Family::Predicate,
            history: history(
                &[false, false],
                &[&[old(1), insert(0)], &[old(0), insert(1)]],
            ),
        },
        Special {
            name: "read-skew-absent",
            about: "t1 does not find one object that t2 inserts, then finds the other.",
            family: Family::Predicate,
            history: history(
                &[false, false],
                &[&[old(0), new(1, 1)], &[insert(0), insert(1)]],
            ),
        },
        Special {
            name: "half-deleted",
            about: "t1 finds one object that t2 deletes, then does not find the other.",
            family: Family::Predicate,
            history: history(
                &[true, true],
                &[&[old(0), new(1, 1)], &[delete(0), delete(1)]],
            ),
        },
    ]
}
