//! A reader of recorded histories, which asserts the rules of Jepsen's format.

use super::edn::Edn;
use std::collections::{BTreeMap, BTreeSet};

/// An operation of a transaction: a write, or a read with its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Read(i64, Option<i64>),
    Write(i64, i64),
}

/// A transaction.
#[derive(Clone, Debug)]
pub struct Transaction {
    /// `ok`, `fail` or `info`.
    pub completion: String,
    pub operations: Vec<Operation>,
}

/// Reads a history, and asserts that it is well-formed and complete.
pub fn read(text: &str) -> Vec<Transaction> {
    assert!(
        text.is_empty() || text.ends_with('\n'),
        "the last line is cut"
    );
    let mut transactions = Vec::new();
    let mut open: BTreeMap<i64, (i64, Vec<Operation>)> = BTreeMap::new();
    let mut blocked = BTreeSet::new();
    for (index, line) in text.lines().enumerate() {
        let line = Edn::read(line);
        assert_eq!(line.get("index").integer(), index as i64);
        assert_eq!(line.get("f").keyword(), "txn");
        let (process, time) = (line.get("process").integer(), line.get("time").integer());
        assert!(
            !blocked.contains(&process),
            "process {process} has an unknown outcome"
        );
        let operations: Vec<_> = line.get("value").vector().iter().map(operation).collect();
        let kind = line.get("type").keyword();
        if kind == "invoke" {
            let before = open.insert(process, (time, operations));
            assert!(before.is_none(), "process {process} has two transactions");
            continue;
        }
        let (begin, invoked) = open.remove(&process).expect("an invocation before");
        assert!(begin <= time);
        assert_eq!(
            invoked,
            operations.iter().map(without_value).collect::<Vec<_>>()
        );
        match kind {
            "ok" => {}
            "fail" | "info" => assert_eq!(invoked, operations),
            other => panic!("a completion of type {other}"),
        }
        if kind == "info" {
            blocked.insert(process);
        }
        transactions.push(Transaction {
            completion: kind.into(),
            operations,
        });
    }
    assert!(
        open.is_empty(),
        "{} transactions have no completion",
        open.len()
    );
    values_are_written_once(&transactions);
    transactions
}

fn operation(edn: &Edn) -> Operation {
    let [kind, object, value] = edn.vector() else {
        panic!("not an operation: {edn:?}");
    };
    match (kind.keyword(), value) {
        ("r", Edn::Nil) => Operation::Read(object.integer(), None),
        ("r", value) => Operation::Read(object.integer(), Some(value.integer())),
        ("w", value) => Operation::Write(object.integer(), value.integer()),
        (other, _) => panic!("an operation {other}"),
    }
}

fn without_value(operation: &Operation) -> Operation {
    match *operation {
        Operation::Read(object, _) => Operation::Read(object, None),
        write => write,
    }
}

/// Asserts that all writes of an object have different values, and that reads return these.
fn values_are_written_once(transactions: &[Transaction]) {
    let all = || transactions.iter().flat_map(|it| &it.operations);
    let mut written = BTreeSet::new();
    for operation in all() {
        if let Operation::Write(object, value) = *operation {
            assert!(
                written.insert((object, value)),
                "{object} is set to {value} twice"
            );
        }
    }
    for operation in all() {
        if let Operation::Read(object, Some(value)) = *operation {
            assert!(
                written.contains(&(object, value)),
                "{object} was never {value}"
            );
        }
    }
}

/// Returns the number of versions that two committed transactions have read and replaced.
pub fn lost_updates(transactions: &[Transaction]) -> usize {
    let mut replaced: BTreeMap<(i64, Option<i64>), u64> = BTreeMap::new();
    for transaction in transactions.iter().filter(|it| it.completion == "ok") {
        let mut seen = BTreeMap::new();
        for operation in &transaction.operations {
            match *operation {
                Operation::Read(object, value) => {
                    seen.entry(object).or_insert(value);
                }
                Operation::Write(object, _) => {
                    if let Some(value) = seen.remove(&object) {
                        *replaced.entry((object, value)).or_default() += 1;
                    }
                }
            }
        }
    }
    replaced.values().filter(|it| **it > 1).count()
}
