//! The test of a history: its transactions, and the assertion that its outcome does not occur.

use super::history::{Change, Event, History, Version};
use super::levels::{Disagreement, forbidden, forbidden_by_values, weakest};
use crate::test::{
    Assertion, Comparison, Condition, Expression, Family, Local, Object, Seen, Step, Test,
    Transaction,
};

/// Returns the test that looks for `history`; `None` if its values do not distinguish it from a
/// history that more levels allow.
pub fn test_of(
    history: &History,
    name: String,
    about: String,
    family: Family,
) -> Result<Option<Test>, Disagreement> {
    let levels = forbidden_by_values(history)?;
    if levels != forbidden(history)? {
        return Ok(None);
    }
    let transactions = 0..history.transactions.len();
    Ok(Some(Test {
        name,
        about,
        family,
        objects: (0..history.objects.len())
            .map(|it| object(history, it))
            .collect(),
        transactions: transactions.map(|it| transaction(history, it)).collect(),
        order: history.real_time.clone(),
        assertion: Assertion::Never(Condition::All(outcome(history))),
        forbidden_from: weakest(&levels),
    }))
}

/// Returns the name of an object.
pub(super) fn object_name(number: usize) -> String {
    const NAMES: [&str; 4] = ["x", "y", "z", "w"];
    NAMES[number].to_string()
}

/// Returns the name of a transaction.
pub(super) fn transaction_name(number: usize) -> String {
    format!("t{}", number + 1)
}

fn object(history: &History, number: usize) -> Object {
    Object {
        name: object_name(number),
        initial: history.objects[number].present.then_some(0),
    }
}

/// Returns the value of a write. Different writes of an object have different values.
fn value(transaction: usize, write: usize) -> i64 {
    (transaction + 1 + 10 * write) as i64
}

fn transaction(history: &History, number: usize) -> Transaction {
    let executed = &history.transactions[number];
    let mut steps = Vec::new();
    let mut locals = 0;
    let mut written = vec![0; history.objects.len()];
    for event in &executed.events {
        let into = Local(locals);
        steps.push(match event {
            Event::Read { object, .. } => Step::Read {
                object: *object,
                into,
            },
            Event::Count { .. } => Step::Count { into },
            Event::Write { object, change } => {
                let (object, write) = (*object, written[*object]);
                let value = Expression::Constant(value(number, write));
                written[object] += 1;
                match change {
                    Change::Update => Step::Write { object, value },
                    Change::Insert => Step::Insert { object, value },
                    Change::Delete => Step::Delete { object },
                }
            }
        });
        locals += usize::from(!matches!(event, Event::Write { .. }));
    }
    if !executed.commits {
        steps.push(Step::Abort);
    }
    Transaction {
        name: transaction_name(number),
        locals: (1..=locals).map(|it| format!("r{it}")).collect(),
        steps,
    }
}

/// Returns the conditions on the values that make up the outcome: the transactions committed, the
/// reads saw their versions, and objects with several writers have the value of the last one.
fn outcome(history: &History) -> Vec<Condition<Seen>> {
    let is = |seen: Seen, value: i64| {
        let value = Expression::Constant(value);
        Condition::Compare(Expression::Value(seen), Comparison::Equal, value)
    };
    let mut parts = Vec::new();
    for (transaction, executed) in history.transactions.iter().enumerate() {
        if executed.commits {
            parts.push(is(Seen::Committed(transaction), 1));
        }
        let reads = { executed.events.iter() }.filter(|it| !matches!(it, Event::Write { .. }));
        for (local, event) in reads.enumerate() {
            let local = Local(local);
            let seen = Seen::Read { transaction, local };
            parts.push(match event {
                Event::Count { versions } => {
                    let each = versions.iter().enumerate();
                    let present =
                        each.filter(|&(object, &it)| content(history, object, it).is_some());
                    is(seen, present.count() as i64)
                }
                Event::Read { object, version } => match content(history, *object, *version) {
                    Some(value) => is(seen, value),
                    None => Condition::Absent(seen),
                },
                Event::Write { .. } => unreachable!("writes are filtered out"),
            });
        }
    }
    for (object, chronicle) in history.objects.iter().enumerate() {
        if let [_, .., last] = chronicle.writers[..] {
            let version = Version::Written {
                transaction: last,
                write: history.writes(last, object).len() - 1,
            };
            let seen = Seen::Object(object);
            parts.push(match content(history, object, version) {
                Some(value) => is(seen, value),
                None => Condition::Absent(seen),
            });
        }
    }
    parts
}

/// Returns the value of a version; `None` if the object is absent in it.
fn content(history: &History, object: usize, version: Version) -> Option<i64> {
    match version {
        Version::Initial => history.objects[object].present.then_some(0),
        Version::Written { transaction, write } => {
            let change = history.writes(transaction, object)[write];
            (change != Change::Delete).then(|| value(transaction, write))
        }
    }
}
