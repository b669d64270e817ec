//! The proof that an assertion never fails in a correct execution.
//!
//! An `always` assertion is scalable under serializability if it holds in the first state, and each
//! transaction, executed alone from any state in which it holds, ends in a state in which it holds.
//! Then it holds after any number of instances, repeated, concurrent, aborted or cut off. [`prove`]
//! shows this in one of two ways:
//!
//! 1. By enumeration, if the objects have few values: the values that each object can have, from the
//!    first ones on, are computed until no transaction adds one; then each transaction is executed
//!    from each state of these values in which the assertion holds. At most [`MAX_VALUES`] values
//!    per object and [`MAX_STATES`] states are accepted.
//! 2. Inductively, if values grow without a bound: for each transaction, and each choice of the
//!    objects that are present, the values after the transaction are sums of a value before it and a
//!    constant, or the `max` or `min` of such sums. "The assertion holds before and not after" is then
//!    a condition on differences of two integers, and is decided exactly, for all integers, by the
//!    search of negative cycles. Accepted are conditions of which each comparison has at most one
//!    value with `+` and one with `-` (`x = y + 1`, not `x + y = 10`) after the insertion of the
//!    transaction's values. Arithmetic is that of the integers; constants have at most 32 bits, so
//!    that no execution of practical length leaves the 64 bits of a value.
//!
//! Everything else is refused as [`NotScalable::Undecided`]; no execution of limited length counts
//! as a proof. A refusal with a counterexample names the state, the transaction, and the state after
//! it. The state need not occur; a stronger assertion that excludes it can be scalable.
//!
//! A `never` assertion is of one instance on objects of its own. It must be false after all serial
//! executions of the instance that respect the test's order, in which each transaction commits,
//! aborts, or is cut off with or without its effect.

mod differences;
mod enumeration;
mod inductive;
mod instance;
mod linear;
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
    /// It is false in the first state.
    #[error("the assertion fails before the first transaction, in the state {state}")]
    Initially {
        /// The first state.
        state: String,
    },
    /// A transaction leads to a state in which it is false.
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
    #[error("the assertion is not decided: {reason}; {instead}")]
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
        Some([]) => "this is the first state".into(),
        Some(path) => format!("the state occurs after {}", path.join(", ")),
        None => "if this state cannot occur, exclude it in the assertion".into(),
    }
}

/// Shows that the assertion of a test holds in all serializable executions.
///
/// # Errors
/// If it does not, with a counterexample; or if that is not decided.
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
