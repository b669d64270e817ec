//! Expressions over the values of reads, and conditions over them.

/// A number computed from values. A value may be absent; a number computed from an absent value is
/// absent too.
///
/// `N` names a value: a [`Local`] within a transaction, a [`Seen`](super::Seen) within an
/// assertion.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Expression<N> {
    /// A constant.
    Constant(i64),
    /// The value with this name.
    Value(N),
    /// A sum.
    Add(Box<Self>, Box<Self>),
    /// A difference.
    Subtract(Box<Self>, Box<Self>),
    /// The greater of two numbers.
    Max(Box<Self>, Box<Self>),
    /// The smaller of two numbers.
    Min(Box<Self>, Box<Self>),
}

impl<N: Copy> Expression<N> {
    /// Returns the number, where `value` returns the value of a name; `None` if one of the values
    /// is absent.
    pub fn evaluate(&self, value: &impl Fn(N) -> Option<i64>) -> Option<i64> {
        let both = |a: &Self, b: &Self| Some((a.evaluate(value)?, b.evaluate(value)?));
        match self {
            Self::Constant(number) => Some(*number),
            Self::Value(name) => value(*name),
            Self::Add(a, b) => both(a, b).map(|(a, b)| a.wrapping_add(b)),
            Self::Subtract(a, b) => both(a, b).map(|(a, b)| a.wrapping_sub(b)),
            Self::Max(a, b) => both(a, b).map(|(a, b)| a.max(b)),
            Self::Min(a, b) => both(a, b).map(|(a, b)| a.min(b)),
        }
    }
}

/// The index of a read or count among those of its transaction, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Local(pub usize);

/// A comparison of two numbers. It is false if one of them is absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Comparison {
    /// Equal.
    Equal,
    /// Both present, and not equal.
    Different,
    /// Less.
    Less,
    /// Less or equal.
    AtMost,
}

/// A condition over values.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Condition<N> {
    /// A comparison.
    Compare(Expression<N>, Comparison, Expression<N>),
    /// The value is absent.
    Absent(N),
    /// All of the conditions are true.
    All(Vec<Self>),
    /// At least one of the conditions is true.
    Any(Vec<Self>),
    /// The condition is false.
    Not(Box<Self>),
}

impl<N: Copy> Condition<N> {
    /// Returns whether the condition is true, where `value` returns the value of a name.
    pub fn holds(&self, value: &impl Fn(N) -> Option<i64>) -> bool {
        match self {
            Self::Compare(a, comparison, b) => {
                let (Some(a), Some(b)) = (a.evaluate(value), b.evaluate(value)) else {
                    return false;
                };
                match comparison {
                    Comparison::Equal => a == b,
                    Comparison::Different => a != b,
                    Comparison::Less => a < b,
                    Comparison::AtMost => a <= b,
                }
            }
            Self::Absent(name) => value(*name).is_none(),
            Self::All(parts) => parts.iter().all(|it| it.holds(value)),
            Self::Any(parts) => parts.iter().any(|it| it.holds(value)),
            Self::Not(part) => !part.holds(value),
        }
    }
}
