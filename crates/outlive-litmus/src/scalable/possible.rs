//! Conditions of which some values are not known.

use crate::test::{Condition, Expression};

/// A value that is known (a number, or absent), or that can be any value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    Value(Option<i64>),
    Any,
}

/// Returns whether the condition can be true, given the values that are known. Each comparison with
/// another value counts as one that can be true or false, whatever the others are.
pub(super) fn can_be<N: Copy>(
    condition: &Condition<N>,
    truth: bool,
    value: &impl Fn(N) -> Known,
) -> bool {
    let known = |it: N| match value(it) {
        Known::Value(value) => value,
        Known::Any => None,
    };
    match condition {
        Condition::Compare(a, _, b) => {
            is_open(a, value) || is_open(b, value) || condition.holds(&known) == truth
        }
        Condition::Absent(it) => value(*it) == Known::Any || condition.holds(&known) == truth,
        Condition::All(parts) if truth => parts.iter().all(|it| can_be(it, true, value)),
        Condition::All(parts) => parts.iter().any(|it| can_be(it, false, value)),
        Condition::Any(parts) if truth => parts.iter().any(|it| can_be(it, true, value)),
        Condition::Any(parts) => parts.iter().all(|it| can_be(it, false, value)),
        Condition::Not(part) => can_be(part, !truth, value),
    }
}

/// Returns whether a value in the expression is not known.
fn is_open<N: Copy>(expression: &Expression<N>, value: &impl Fn(N) -> Known) -> bool {
    match expression {
        Expression::Constant(_) => false,
        Expression::Value(it) => value(*it) == Known::Any,
        Expression::Add(a, b)
        | Expression::Subtract(a, b)
        | Expression::Max(a, b)
        | Expression::Min(a, b) => is_open(a, value) || is_open(b, value),
    }
}
