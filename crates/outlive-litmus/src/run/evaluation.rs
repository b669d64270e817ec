//! Assertions evaluated on an execution.

use super::execution::{Execution, Outcome};
use crate::test::{Condition, Expression, Object, Seen};

/// Returns the names in a condition.
pub(super) fn names(condition: &Condition<Seen>) -> Vec<Seen> {
    fn of_expression(expression: &Expression<Seen>, names: &mut Vec<Seen>) {
        match expression {
            Expression::Constant(_) => {}
            Expression::Value(name) => names.push(*name),
            Expression::Add(a, b)
            | Expression::Subtract(a, b)
            | Expression::Max(a, b)
            | Expression::Min(a, b) => {
                of_expression(a, names);
                of_expression(b, names);
            }
        }
    }
    fn of_condition(condition: &Condition<Seen>, names: &mut Vec<Seen>) {
        match condition {
            Condition::Compare(a, _, b) => {
                of_expression(a, names);
                of_expression(b, names);
            }
            Condition::Absent(name) => names.push(*name),
            Condition::All(parts) | Condition::Any(parts) => {
                parts.iter().for_each(|it| of_condition(it, names));
            }
            Condition::Not(part) => of_condition(part, names),
        }
    }
    let mut all = Vec::new();
    of_condition(condition, &mut all);
    all.sort_unstable();
    all.dedup();
    all
}

/// Returns whether an assertion about objects holds in a state.
pub(super) fn holds(condition: &Condition<Seen>, state: &[Option<i64>]) -> bool {
    condition.holds(&|name| match name {
        Seen::Object(object) => state[object],
        Seen::Read { .. } | Seen::Committed(_) => None,
    })
}

/// The maximum number of unknown outcomes in an assertion that is evaluated: 3^8 assignments.
pub(super) const MAX_UNKNOWN: usize = 8;

/// Whether the outcome that must not occur did occur.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Occurrence {
    Occurs,
    /// It did not, or an unknown outcome decides whether it did.
    NotShown,
    /// The assertion names more than [`MAX_UNKNOWN`] unknown outcomes, so it was not evaluated.
    Undecided,
}

/// Returns whether the outcome that must not occur did occur, in an instance and the state after
/// it.
///
/// An unknown outcome is evaluated as committed, as aborted, and as absent. The reads of a
/// transaction prove nothing if it did not commit, or if its outcome is unknown: isolation is
/// promised to transactions that commit.
pub(super) fn occurs(
    condition: &Condition<Seen>,
    state: &[Option<i64>],
    instance: &[Execution],
) -> Occurrence {
    let outcome = |transaction: usize| instance[transaction].outcome;
    let mut unknown = Vec::new();
    for name in names(condition) {
        match name {
            Seen::Read { transaction, .. } if outcome(transaction) != Outcome::Committed => {
                return Occurrence::NotShown;
            }
            Seen::Committed(transaction) if outcome(transaction) == Outcome::Unknown => {
                unknown.push(transaction);
            }
            _ => {}
        }
    }
    if unknown.len() > MAX_UNKNOWN {
        return Occurrence::Undecided;
    }
    // Each number is an assignment of the three values to the unknown outcomes.
    let always = (0..3_usize.pow(unknown.len() as u32)).all(|assignment| {
        condition.holds(&|name| match name {
            Seen::Object(object) => state.get(object).copied().flatten(),
            Seen::Read { transaction, local } => instance[transaction].values[local.0],
            Seen::Committed(transaction) => {
                match unknown.iter().position(|it| *it == transaction) {
                    None => outcome(transaction).is_committed().map(i64::from),
                    Some(at) => match assignment / 3_usize.pow(at as u32) % 3 {
                        2 => None,
                        value => Some(value as i64),
                    },
                }
            }
        })
    });
    match always {
        true => Occurrence::Occurs,
        false => Occurrence::NotShown,
    }
}

/// Returns whether an object has a value that only transactions without effect have requested to
/// write: the store reported them as aborted, or their clients crashed before the commit.
///
/// A value that the object had at first, or that a transaction with an unknown outcome has written
/// too, is no evidence. Without `undoes_lost`, the same applies to a transaction that lost its
/// connection.
pub(super) fn shows_aborted_write(
    objects: &[Object],
    state: &[Option<i64>],
    executions: &[Execution],
    undoes_lost: bool,
) -> bool {
    let may_have_effect = |it: &Execution| {
        it.outcome.is_committed() != Some(false) || it.outcome == Outcome::Lost && !undoes_lost
    };
    let values = objects.iter().zip(state).enumerate();
    let mut values = values.filter(|(_, (object, value))| object.initial != **value);
    values.any(|(object, (_, value))| {
        let wrote = |it: &&Execution| it.writes.contains(&(object, *value));
        let mut writers = executions.iter().filter(wrote).peekable();
        writers.peek().is_some() && !writers.any(may_have_effect)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::{Comparison, Local};
    use std::time::Instant;

    fn instance(outcomes: &[Outcome]) -> Vec<Execution> {
        let now = Instant::now();
        let one = |(transaction, outcome): (usize, &Outcome)| Execution {
            transaction,
            outcome: *outcome,
            values: vec![Some(1)],
            writes: vec![(0, Some(1))],
            crashed: None,
            begin: now,
            end: now,
        };
        outcomes.iter().enumerate().map(one).collect()
    }

    fn equals(name: Seen, value: i64) -> Condition<Seen> {
        let (name, value) = (Expression::Value(name), Expression::Constant(value));
        Condition::Compare(name, Comparison::Equal, value)
    }

    fn has_occurred(condition: &Condition<Seen>, outcomes: &[Outcome]) -> bool {
        occurs(condition, &[], &instance(outcomes)) == Occurrence::Occurs
    }

    #[test]
    fn an_unknown_outcome_proves_nothing() {
        let committed = equals(Seen::Committed(0), 1);
        let not = Condition::Not(Box::new(committed.clone()));
        let either = Condition::Any(vec![committed.clone(), equals(Seen::Committed(0), 0)]);
        for condition in [&committed, &not, &either] {
            assert!(!has_occurred(condition, &[Outcome::Unknown]));
        }
        assert!(has_occurred(&committed, &[Outcome::Committed]));
        assert!(!has_occurred(&committed, &[Outcome::Aborted]));
        assert!(has_occurred(&not, &[Outcome::Aborted]));
    }

    #[test]
    fn the_number_of_unknown_outcomes_is_bounded() {
        let any = |count: usize| {
            let one = |it| [0, 1].map(|value| equals(Seen::Committed(it), value));
            let absent = |it| Condition::Absent(Seen::Committed(it));
            let all = (0..count).flat_map(|it| one(it).into_iter().chain([absent(it)]));
            Condition::Any(all.collect())
        };
        let unknown = |count| occurs(&any(count), &[], &instance(&vec![Outcome::Unknown; count]));
        assert_eq!(unknown(MAX_UNKNOWN), Occurrence::Occurs);
        assert_eq!(unknown(MAX_UNKNOWN + 1), Occurrence::Undecided);
        assert_eq!(unknown(64), Occurrence::Undecided);
    }

    #[test]
    fn reads_count_if_their_transaction_committed() {
        let read = Seen::Read {
            transaction: 0,
            local: Local(0),
        };
        let condition = equals(read, 1);
        for outcome in Outcome::ALL {
            let has_occurred = has_occurred(&condition, &[outcome]);
            assert_eq!(has_occurred, outcome == Outcome::Committed, "{outcome}");
        }
    }

    #[test]
    fn a_value_is_that_of_an_aborted_transaction_if_no_other_wrote_it() {
        let objects = [Object {
            name: "x".into(),
            initial: Some(0),
        }];
        let shows = |value, outcomes: &[Outcome]| {
            shows_aborted_write(&objects, &[Some(value)], &instance(outcomes), true)
        };
        assert!(shows(1, &[Outcome::Aborted]));
        assert!(shows(1, &[Outcome::Aborted, Outcome::Crashed]));
        assert!(!shows(1, &[Outcome::Aborted, Outcome::Committed]));
        assert!(!shows(1, &[Outcome::Aborted, Outcome::Unknown]));
        assert!(!shows(1, &[]) && !shows(0, &[Outcome::Aborted]));
    }

    #[test]
    fn objects_have_the_values_that_were_read() {
        let condition = equals(Seen::Object(1), 5);
        assert!(holds(&condition, &[None, Some(5)]));
        assert!(!holds(&condition, &[Some(5), None]));
        let found = occurs(&condition, &[None, Some(5)], &[]);
        assert_eq!(found, Occurrence::Occurs);
        assert_eq!(names(&condition), [Seen::Object(1)]);
    }
}
