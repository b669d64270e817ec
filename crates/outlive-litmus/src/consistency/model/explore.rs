//! All executions of a test in a model.

use super::machine::{Machine, Next, State, Status};
use super::{Model, Rules};
use crate::test::{Assertion, Comparison, Condition, Expression, Seen, Test};
use std::collections::HashSet;

/// The maximum number of states of an exploration.
const MOST_STATES: usize = 1_000_000;

/// The result of an exploration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exploration {
    /// Whether the assertion failed in some execution.
    pub fails: bool,
    /// The number of states that the exploration reached.
    pub states: usize,
}

/// Executes `instances` instances of `test` concurrently in a model, in all interleavings, until
/// the assertion fails. The instances share the objects; [`Assertion::Never`] is about one
/// instance, so `instances` must then be 1.
///
/// Returns `None` if there are too many states.
pub fn explore(test: &Test, instances: usize, model: &Model) -> Option<Exploration> {
    let machine = Machine {
        test,
        instances,
        rules: model.rules,
    };
    let initial = machine.initial();
    let mut seen = HashSet::from([initial.clone()]);
    let mut left = vec![initial];
    let mut fails = false;
    while let Some(state) = left.pop() {
        if is_violation(test, &state, model.rules) {
            fails = true;
            break;
        }
        for next in successors(&machine, &state) {
            let next = machine.canonical(next);
            if can_violate(test, &next) && !seen.contains(&next) {
                seen.insert(next.clone());
                left.push(next);
            }
        }
        if seen.len() > MOST_STATES {
            return None;
        }
    }
    let states = seen.len();
    Some(Exploration { fails, states })
}

/// Returns the next states. If all transactions wait for locks, one of them aborts.
fn successors(machine: &Machine<'_>, state: &State) -> Vec<State> {
    let mut blocked = Vec::new();
    let mut found = Vec::new();
    for at in 0..state.running.len() {
        match machine.next(state, at) {
            Next::None => {}
            Next::Blocked => blocked.push(at),
            Next::States(states) => found.extend(states),
        }
    }
    if found.is_empty() {
        let running =
            { blocked.into_iter() }.filter(|&it| state.running[it].status == Status::Running);
        found.extend(running.map(|it| machine.aborted(state, it)));
    }
    found
}

/// Returns whether the assertion fails in the state.
fn is_violation(test: &Test, state: &State, rules: Rules) -> bool {
    match &test.assertion {
        Assertion::Never(condition) => {
            state.is_final() && condition.holds(&|seen| value(state, seen))
        }
        // A transaction that reads all objects sees a committed state if it is isolated; otherwise
        // the assertion is checked when all transactions have ended.
        Assertion::Always(condition) => {
            let is_isolated = matches!(
                rules,
                Rules::ItemLocks | Rules::Snapshot { .. } | Rules::Serial { .. }
            );
            (is_isolated || state.is_final()) && !condition.holds(&|seen| value(state, seen))
        }
    }
}

/// Returns the value that an assertion is about, in the first instance.
fn value(state: &State, seen: Seen) -> Option<i64> {
    match seen {
        Seen::Object(object) => state.current[object],
        Seen::Read { transaction, local } => state.running[transaction].locals[local.0],
        Seen::Committed(transaction) => match state.running[transaction].status {
            Status::Committed => Some(1),
            Status::Aborted => Some(0),
            Status::Waiting | Status::Running => None,
        },
    }
}

/// Returns whether the assertion can still fail after the state. A conjunction cannot become true
/// if a value that does not change again differs from the one that it demands.
fn can_violate(test: &Test, state: &State) -> bool {
    let Assertion::Never(Condition::All(parts)) = &test.assertion else {
        return true;
    };
    let is_open = |part: &Condition<Seen>| {
        let Condition::Compare(
            Expression::Value(seen),
            Comparison::Equal,
            Expression::Constant(constant),
        ) = part
        else {
            return true;
        };
        match seen {
            Seen::Object(_) => true,
            _ => value(state, *seen).is_none_or(|it| it == *constant),
        }
    };
    parts.iter().all(is_open)
}
