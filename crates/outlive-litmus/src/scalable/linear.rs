//! Values after a transaction as sums of the values before it, and comparisons of them.

use super::NotScalable;
use super::differences::{Formula, Variable, ZERO};
use crate::test::{Comparison, Condition, Expression};
use std::collections::BTreeMap;

/// The greatest constant, and the greatest factor of a variable, in a sum that is accepted.
const MAX_NUMBER: i128 = 1 << 32;
/// The maximum number of sums in a value, and of comparisons of sums in a condition.
const MAX_SUMS: usize = 256;

/// A value.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Sum(Sum),
    Max(Box<Self>, Box<Self>),
    Min(Box<Self>, Box<Self>),
}

/// A sum of variables, each with a factor other than 0, and a constant.
#[derive(Clone, Debug)]
pub(super) struct Sum {
    factors: BTreeMap<Variable, i128>,
    constant: i128,
}

impl Sum {
    /// Returns `self + factor * other`. A value that is added to itself again and again doubles its
    /// factors and its constant each time, so they are bounded here too.
    fn plus(&self, factor: i128, other: &Self) -> Result<Self, NotScalable> {
        let mut factors = self.factors.clone();
        for (&variable, &it) in &other.factors {
            let sum = factors.entry(variable).or_insert(0);
            *sum = added(*sum, factor, it)?;
            if *sum == 0 {
                factors.remove(&variable);
            }
        }
        Ok(Self {
            factors,
            constant: added(self.constant, factor, other.constant)?,
        })
    }
}

/// Returns `a + factor * b`, if it has at most 32 bits.
fn added(a: i128, factor: i128, b: i128) -> Result<i128, NotScalable> {
    let sum = factor.checked_mul(b).and_then(|it| a.checked_add(it));
    let is_small = |it: &i128| it.unsigned_abs() <= MAX_NUMBER.unsigned_abs();
    sum.filter(is_small).ok_or_else(|| NotScalable::Undecided {
        reason: "a sum has a constant, or a multiple of a value, of more than 32 bits".into(),
        instead: "add smaller numbers, and add a value to itself less often".into(),
    })
}

fn too_complex() -> NotScalable {
    NotScalable::Undecided {
        reason: format!("a value or a comparison consists of more than {MAX_SUMS} sums"),
        instead: "write shorter sums, with fewer of `max` and `min`".into(),
    }
}

impl Value {
    /// Returns the value that is equal to the variable `it`.
    pub fn variable(it: Variable) -> Self {
        Self::Sum(Sum {
            factors: BTreeMap::from([(it, 1)]),
            constant: 0,
        })
    }

    /// Returns the value that is equal to `constant`.
    pub fn constant(constant: i128) -> Self {
        Self::Sum(Sum {
            factors: BTreeMap::new(),
            constant,
        })
    }

    /// Returns the value of an expression, `None` if a value in it is absent.
    pub fn of<N: Copy>(
        expression: &Expression<N>,
        value: &impl Fn(N) -> Option<Self>,
    ) -> Result<Option<Self>, NotScalable> {
        let (a, b) = match expression {
            Expression::Constant(it) if i128::from(*it).abs() > MAX_NUMBER => {
                return Err(NotScalable::Undecided {
                    reason: format!("the constant {it} has more than 32 bits"),
                    instead: "write a smaller one".into(),
                });
            }
            Expression::Constant(it) => return Ok(Some(Self::constant((*it).into()))),
            Expression::Value(it) => return Ok(value(*it)),
            Expression::Add(a, b)
            | Expression::Subtract(a, b)
            | Expression::Max(a, b)
            | Expression::Min(a, b) => (Self::of(a, value)?, Self::of(b, value)?),
        };
        let (Some(a), Some(b)) = (a, b) else {
            return Ok(None);
        };
        if a.sums() + b.sums() > MAX_SUMS {
            return Err(too_complex());
        }
        Ok(Some(match expression {
            Expression::Add(..) => a.plus(1, &b)?,
            Expression::Subtract(..) => a.plus(-1, &b)?,
            Expression::Max(..) => Self::Max(Box::new(a), Box::new(b)),
            _ => Self::Min(Box::new(a), Box::new(b)),
        }))
    }

    fn sums(&self) -> usize {
        match self {
            Self::Sum(_) => 1,
            Self::Max(a, b) | Self::Min(a, b) => a.sums() + b.sums(),
        }
    }

    /// Returns `self + factor * other`, with `factor` 1 or -1.
    fn plus(&self, factor: i128, other: &Self) -> Result<Self, NotScalable> {
        if self.sums().saturating_mul(other.sums()) > MAX_SUMS {
            return Err(too_complex());
        }
        let both = |a: Result<Self, _>, b: Result<Self, _>| Ok((Box::new(a?), Box::new(b?)));
        // The sum with the greater of two values is the greater of two sums. The difference to the
        // greater of two values is the smaller of two differences.
        Ok(match (self, other) {
            (Self::Sum(a), Self::Sum(b)) => Self::Sum(a.plus(factor, b)?),
            (Self::Max(a, b), _) => {
                let (a, b) = both(a.plus(factor, other), b.plus(factor, other))?;
                Self::Max(a, b)
            }
            (Self::Min(a, b), _) => {
                let (a, b) = both(a.plus(factor, other), b.plus(factor, other))?;
                Self::Min(a, b)
            }
            (_, Self::Max(a, b) | Self::Min(a, b)) => {
                let (a, b) = both(self.plus(factor, a), self.plus(factor, b))?;
                match matches!(other, Self::Max(..)) == (factor > 0) {
                    true => Self::Max(a, b),
                    false => Self::Min(a, b),
                }
            }
        })
    }

    /// Returns the condition `self + distance <= other`.
    fn at_most(&self, distance: i128, other: &Self) -> Result<Formula, NotScalable> {
        let both = |a: Result<Formula, _>, b: Result<Formula, _>| Ok(vec![a?, b?]);
        Ok(match (self, other) {
            (Self::Max(a, b), _) => Formula::All(both(
                a.at_most(distance, other),
                b.at_most(distance, other),
            )?),
            (Self::Min(a, b), _) => Formula::Any(both(
                a.at_most(distance, other),
                b.at_most(distance, other),
            )?),
            (_, Self::Max(a, b)) => {
                Formula::Any(both(self.at_most(distance, a), self.at_most(distance, b))?)
            }
            (_, Self::Min(a, b)) => {
                Formula::All(both(self.at_most(distance, a), self.at_most(distance, b))?)
            }
            (Self::Sum(a), Self::Sum(b)) => constraint(&a.plus(-1, b)?, distance)?,
        })
    }
}

/// Returns the condition `sum + distance <= 0`.
fn constraint(sum: &Sum, distance: i128) -> Result<Formula, NotScalable> {
    let bound = -(sum.constant + distance);
    let with = |wanted: i128| {
        let found: Vec<Variable> = { sum.factors.iter() }
            .filter_map(|(&it, &factor)| (factor == wanted).then_some(it))
            .collect();
        match found[..] {
            [] => Some(ZERO),
            [one] => Some(one),
            _ => None,
        }
    };
    let is_difference = sum.factors.values().all(|it| it.abs() == 1);
    match (with(1), with(-1)) {
        (Some(ZERO), Some(ZERO)) if is_difference => Ok(Formula::constant(bound >= 0)),
        (Some(plus), Some(minus)) if is_difference => {
            Ok(Formula::Constraint { plus, minus, bound })
        }
        _ => Err(NotScalable::Undecided {
            reason: "a comparison, with the values that a transaction writes, has more than one \
                     value with `+` or more than one with `-`"
                .into(),
            instead:
                "compare differences of two values, as in `x = y + 1`, or write values from a \
                      finite set"
                    .into(),
        }),
    }
}

/// Returns the formula that is true if the condition has the truth value `wanted`.
pub(super) fn formula<N: Copy>(
    condition: &Condition<N>,
    wanted: bool,
    value: &impl Fn(N) -> Option<Value>,
) -> Result<Formula, NotScalable> {
    let parts = |parts: &[Condition<N>]| -> Result<Vec<Formula>, NotScalable> {
        parts.iter().map(|it| formula(it, wanted, value)).collect()
    };
    Ok(match condition {
        Condition::Compare(a, comparison, b) => {
            let (Some(a), Some(b)) = (Value::of(a, value)?, Value::of(b, value)?) else {
                return Ok(Formula::constant(!wanted));
            };
            if a.sums().saturating_mul(b.sums()) > MAX_SUMS {
                return Err(too_complex());
            }
            match (comparison, wanted) {
                (Comparison::Equal, true) | (Comparison::Different, false) => {
                    Formula::All(vec![a.at_most(0, &b)?, b.at_most(0, &a)?])
                }
                (Comparison::Different, true) | (Comparison::Equal, false) => {
                    Formula::Any(vec![a.at_most(1, &b)?, b.at_most(1, &a)?])
                }
                (Comparison::Less, true) => a.at_most(1, &b)?,
                (Comparison::Less, false) => b.at_most(0, &a)?,
                (Comparison::AtMost, true) => a.at_most(0, &b)?,
                (Comparison::AtMost, false) => b.at_most(1, &a)?,
            }
        }
        Condition::Absent(it) => Formula::constant(value(*it).is_none() == wanted),
        Condition::All(all) if wanted => Formula::All(parts(all)?),
        Condition::All(all) => Formula::Any(parts(all)?),
        Condition::Any(any) if wanted => Formula::Any(parts(any)?),
        Condition::Any(any) => Formula::All(parts(any)?),
        Condition::Not(part) => formula(part, !wanted, value)?,
    })
}
