//! The proof that an assertion never fails in a correct execution.
//!
//! An `always` assertion is scalable under serializability if it holds in the first state, and each
//! transaction, executed alone from any state in which it holds, ends in a state in which it holds.
//! Then it holds after any number of instances, repeated, concurrent, aborted or cut off. [`prove`]
//! shows this in one of two ways:
//!
//! 1. By enumeration, if the objects have few values: the values that each object can have, from
//!    the first ones on, are computed until no transaction adds one; then each transaction is
//!    executed from each state of these values in which the assertion holds. At most [`MAX_VALUES`]
//!    values per object and [`MAX_STATES`] states are accepted.
//! 2. Inductively, if values grow without a bound: for each transaction, and each choice of the
//!    objects that are present, the values after the transaction are sums of a value before it and
//!    a constant, or the `max` or `min` of such sums. "The assertion holds before and not after" is
//!    then a condition on differences of two integers, and is decided exactly, for all integers, by
//!    a search for negative cycles. A condition is accepted if, after the transaction's values are
//!    inserted, each of its comparisons has at most one value with `+` and one with `-`:
//!    `x = y + 1`, but not `x + y = 10`. Arithmetic is that of the integers; constants and
//!    factors have at most 32 bits, also in sums, so that no execution of practical length leaves
//!    the 64 bits of a value.
//!
//! Everything else is refused as [`NotScalable::Undecided`]; no execution of limited length counts
//! as a proof. A refusal with a counterexample names the state, the transaction, and the state
//! after it. The state need not occur; a stronger assertion that excludes it can be scalable.
//!
//! A `never` assertion is about one instance, which has its own objects. It must be false after all
//! serial executions of the instance that respect the test's order, in which each transaction
//! commits, aborts, or is cut off with or without its effect. A transaction without effect may have
//! read any values: optimistic stores abort transactions because their reads do not belong
//! together.

mod differences;
mod enumeration;
mod inductive;
mod instance;
mod linear;
mod possible;
mod serial;

use crate::test::{Assertion, Test};
use serial::State;
use std::fmt;
use thiserror::Error;

pub use enumeration::{MAX_STATES, MAX_VALUES};
pub use instance::MAX_EXECUTIONS;

/// The proof that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// All states in which the assertion holds were enumerated.
    Enumerated {
        /// The number of states.
        states: u64,
    },
    /// All integers were covered by conditions on differences.
    Inductive {
        /// The number of pairs of a transaction and the present objects.
        cases: u64,
    },
    /// All serial executions of an instance were enumerated.
    Instance {
        /// The number of executions.
        executions: u64,
    },
}

impl fmt::Display for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Enumerated { states } => {
                write!(f, "scalable: closed, by enumeration of {states} states")
            }
            Self::Inductive { cases } => {
                write!(f, "scalable: closed for all integers, by {cases} cases")
            }
            Self::Instance { executions } => {
                write!(
                    f,
                    "false after all {executions} serial executions of an instance"
                )
            }
        }
    }
}

/// The reason why an assertion is not known to hold in all correct executions. States are texts
/// such as `x = 1, y absent`.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NotScalable {
    /// The assertion is false in the first state.
    #[error("the assertion fails before the first transaction, in the state {state}")]
    Initially {
        /// The first state.
        state: String,
    },
    /// A transaction leads to a state in which the assertion is false.
    #[error(
        "the assertion is not closed: it holds in the state {before}, and after {transaction} it \
         fails in the state {after}; {}",
        hint(path.as_deref())
    )]
    NotClosed {
        /// A state in which the assertion holds.
        before: String,
        /// The name of the transaction.
        transaction: String,
        /// The state after the transaction.
        after: String,
        /// The names of the transactions that lead from the first state to the state before, if a
        /// short execution is known.
        path: Option<Vec<String>>,
    },
    /// A serial execution of an instance has the outcome that `never` excludes.
    #[error("the outcome occurs in a correct execution: {execution}; exclude it in the condition")]
    Serial {
        /// The transactions and their ends.
        execution: String,
    },
    /// Neither proof accepts the test.
    #[error("it cannot be decided whether the assertion is scalable: {reason}; {instead}")]
    Undecided {
        /// The part of the test that is not accepted.
        reason: String,
        /// A form that is accepted.
        instead: String,
    },
}

/// Returns the part of a message that says how a state occurs.
fn hint(path: Option<&[String]>) -> String {
    match path {
        Some([]) => "no transaction precedes the first of these states".into(),
        Some(path) => format!("the first of these states occurs after {}", path.join(", ")),
        None => "if the first of these states cannot occur, exclude it in the assertion".into(),
    }
}

/// Shows that the assertion of a test holds in all serializable executions.
///
/// # Errors
/// If the assertion fails, with a counterexample; or if neither proof can decide it.
pub fn prove(test: &Test) -> Result<Proof, NotScalable> {
    let condition = match &test.assertion {
        Assertion::Always(condition) => condition,
        Assertion::Never(condition) => return instance::prove(test, condition),
    };
    let first = serial::initial(&test.objects);
    if !enumeration::holds(condition, &first) {
        return Err(NotScalable::Initially {
            state: shown(test, &first),
        });
    }
    match enumeration::prove(test, condition) {
        Some(result) => result,
        None => inductive::prove(test, condition),
    }
}

/// Returns a state as text.
fn shown(test: &Test, state: &State) -> String {
    let objects = test
        .objects
        .iter()
        .zip(state)
        .map(|(it, value)| match value {
            Some(value) => format!("{} = {value}", it.name),
            None => format!("{} absent", it.name),
        });
    objects.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::{Condition, Seen};
    use crate::text::parse;

    const OBJECTS: [&str; 2] = ["objects x = 0, y = 0", "objects x absent, y = 1"];
    const FACTS: [&str; 12] = [
        "x = y",
        "x != y",
        "x < y",
        "x <= y + 1",
        "y = x + 1",
        "x = 1",
        "y < 2",
        "y is absent",
        "x is absent",
        "x = max(y, 1)",
        "y <= min(x, 2)",
        "y >= max(1, x) - 1",
    ];

    /// Returns the tests with these transactions and conditions of one or two facts.
    fn tests(transactions: &str) -> Vec<Test> {
        let mut conditions = Vec::new();
        for a in FACTS {
            conditions.extend([a.to_owned(), format!("not {a}")]);
            for b in FACTS {
                conditions.extend([
                    format!("{a} and {b}"),
                    format!("not {a} and {b}"),
                    format!("{a} or {b}"),
                    format!("{a} or not {b}"),
                ]);
            }
        }
        let mut tests = Vec::new();
        for objects in OBJECTS {
            for condition in &conditions {
                let text = format!(
                    "test a about \"b\" family read-write {objects} {transactions}
                    always {condition} forbidden from serializable"
                );
                tests.append(&mut parse(&text).expect("a sound text"));
            }
        }
        tests
    }

    fn condition(test: &Test) -> &Condition<Seen> {
        match &test.assertion {
            Assertion::Always(condition) | Assertion::Never(condition) => condition,
        }
    }

    /// If one proof for all integers exists, that of the values which occur exists too.
    #[test]
    fn both_proofs_agree_on_finite_values() {
        let (mut closed, mut open) = (0, 0);
        for transactions in [
            "transaction t1 { write x = 1; write y = 1 } transaction t2 { delete x; delete y }
            transaction t3 { insert x = 2; insert y = 2 }",
            "transaction t1 { a = read x; write y = a } transaction t2 { delete x }
            transaction t3 { n = count objects; insert x = n }",
            "transaction t1 { a = read x; write y = min(a, 1) }
            transaction t2 { b = read y; write x = max(b, 1); c = read x; write y = c }",
        ] {
            for test in tests(transactions) {
                let finite = enumeration::prove(&test, condition(&test)).expect("few values");
                match inductive::prove(&test, condition(&test)) {
                    Ok(_) => {
                        assert!(finite.is_ok(), "{finite:?} {test:?}");
                        closed += 1;
                    }
                    Err(NotScalable::NotClosed { path: Some(_), .. }) => {
                        assert!(finite.is_err(), "{test:?}");
                        open += 1;
                    }
                    Err(NotScalable::NotClosed { path: None, .. }) => {}
                    Err(other) => panic!("{other:?} {test:?}"),
                }
            }
        }
        assert!(closed > 50 && open > 50, "{closed} closed, {open} open");
    }

    /// Without a bound of the values: no transaction fails a proved assertion from a state near 0.
    /// Counterexamples are executed by the proof itself.
    #[test]
    fn proofs_for_all_integers_hold_near_zero() {
        let mut closed = 0;
        for transactions in [
            "transaction t1 { a = read x; write y = a + 1 }
            transaction t2 { a = read y; write x = a + 1 }",
            "transaction t1 { a = read x; write x = a + 1; write y = max(a, 1) }
            transaction t2 { delete y } transaction t3 { b = read x; insert y = b - 1 }",
        ] {
            for test in tests(transactions) {
                let condition = condition(&test);
                match inductive::prove(&test, condition) {
                    Ok(_) => closed += 1,
                    Err(NotScalable::NotClosed { .. }) => continue,
                    Err(other) => panic!("{other:?} {test:?}"),
                }
                let can_change = transactions.contains("delete");
                let values = || (-4..=4).map(Some).chain(can_change.then_some(None));
                for state in values().flat_map(|x| values().map(move |y| vec![x, y])) {
                    // An object that no transaction creates or deletes keeps its presence.
                    let is_possible = state[0].is_some() == test.objects[0].initial.is_some()
                        && (can_change || state[1].is_some());
                    if !is_possible || !enumeration::holds(condition, &state) {
                        continue;
                    }
                    for transaction in &test.transactions {
                        let after = serial::execute(transaction, &state);
                        let is_kept = after.is_none_or(|it| enumeration::holds(condition, &it.0));
                        assert!(is_kept, "{state:?} {transaction:?} {condition:?}");
                    }
                }
            }
        }
        assert!(closed > 20, "{closed} closed");
    }
}
