//! Proofs by enumeration of all states.

use super::serial::{State, execute, initial};
use super::{NotScalable, Proof, shown};
use crate::test::{Condition, Expression, Local, Seen, Step, Test, Transaction};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The maximum number of values of an object.
pub const MAX_VALUES: usize = 16;
/// The maximum number of states.
pub const MAX_STATES: u64 = 1 << 18;
/// The maximum number of combinations of values for which an expression is evaluated.
const MAX_COMBINATIONS: usize = 1 << 12;

/// Returns whether an assertion on objects holds in a state.
pub(super) fn holds(condition: &Condition<Seen>, state: &State) -> bool {
    condition.holds(&|it| match it {
        Seen::Object(object) => state[object],
        // `always` names objects only.
        Seen::Read { .. } | Seen::Committed(_) => None,
    })
}

/// The values that a name can have.
type Values = BTreeSet<Option<i64>>;

/// Shows that each transaction keeps the assertion. Returns `None` if there are too many states.
pub(super) fn prove(
    test: &Test,
    condition: &Condition<Seen>,
) -> Option<Result<Proof, NotScalable>> {
    let domains = domains(test)?;
    let mut total = 1_u64;
    for values in &domains {
        total = total.checked_mul(values.len() as u64)?;
    }
    if total > MAX_STATES {
        return None;
    }
    let reached = reached(test);
    let mut states = 0;
    let mut open = None;
    for number in 0..total {
        let state = state(&domains, number);
        if !holds(condition, &state) {
            continue;
        }
        states += 1;
        for transaction in &test.transactions {
            let Some((after, _)) = execute(transaction, &state) else {
                continue;
            };
            if holds(condition, &after) {
                continue;
            }
            let path = reached.get(&state).cloned();
            let occurs = path.is_some();
            let found = NotScalable::NotClosed {
                before: shown(test, &state),
                transaction: transaction.name.clone(),
                after: shown(test, &after),
                path,
            };
            match occurs {
                true => return Some(Err(found)),
                false => open.get_or_insert(found),
            };
        }
    }
    Some(open.map_or(Ok(Proof::Enumerated { states }), Err))
}

/// Returns the state with this number.
fn state(domains: &[Values], mut number: u64) -> State {
    let mut state = Vec::with_capacity(domains.len());
    for values in domains {
        let size = values.len() as u64;
        let index = usize::try_from(number % size).unwrap_or(0);
        state.extend(values.iter().nth(index));
        number /= size;
    }
    state
}

/// Returns the values that each object can have, at least; `None` if there are too many.
fn domains(test: &Test) -> Option<Vec<Values>> {
    let mut domains: Vec<Values> = { test.objects.iter() }
        .map(|it| Values::from([it.initial]))
        .collect();
    loop {
        let before = domains.clone();
        for transaction in &test.transactions {
            add(transaction, &before, &mut domains)?;
        }
        if domains.iter().any(|it| it.len() > MAX_VALUES) {
            return None;
        }
        if domains == before {
            return Some(domains);
        }
    }
}

/// Adds the values that a transaction can write. A read can see each value of the object, and each
/// that the transaction writes to it.
fn add(transaction: &Transaction, objects: &[Values], domains: &mut [Values]) -> Option<()> {
    let counts = 0..=i64::try_from(objects.len()).ok()?;
    let mut locals = vec![Values::new(); transaction.locals.len()];
    for step in &transaction.steps {
        match step {
            Step::Read { object, into } => locals[into.0].clone_from(&domains[*object]),
            Step::Count { into } => locals[into.0] = counts.clone().map(Some).collect(),
            Step::Write { object, value } | Step::Insert { object, value } => {
                // It aborts if the object is always absent, or always present.
                let is_insertion = matches!(step, Step::Insert { .. });
                if !domains[*object]
                    .iter()
                    .any(|it| it.is_none() == is_insertion)
                {
                    break;
                }
                let values = values(value, &locals)?;
                domains[*object].extend(values.into_iter().filter(Option::is_some));
            }
            Step::Delete { object } => {
                if domains[*object].iter().all(Option::is_none) {
                    break;
                }
                domains[*object].insert(None);
            }
            Step::Abort => break,
        }
    }
    Some(())
}

/// Returns the values of an expression; `None` if there are too many combinations.
fn values(expression: &Expression<Local>, locals: &[Values]) -> Option<Values> {
    let mut used = BTreeSet::new();
    names(expression, &mut used);
    let used: Vec<Local> = used.into_iter().collect();
    let mut total = 1_usize;
    for it in &used {
        total = total.checked_mul(locals[it.0].len())?;
    }
    if total > MAX_COMBINATIONS {
        return None;
    }
    let mut found = Values::new();
    for mut number in 0..total {
        let mut chosen = BTreeMap::new();
        for &it in &used {
            let size = locals[it.0].len();
            chosen.insert(
                it,
                locals[it.0].iter().nth(number % size).copied().flatten(),
            );
            number /= size;
        }
        found.insert(expression.evaluate(&|it: Local| chosen[&it]));
    }
    Some(found)
}

/// Adds the names that an expression uses.
fn names(expression: &Expression<Local>, found: &mut BTreeSet<Local>) {
    match expression {
        Expression::Constant(_) => {}
        Expression::Value(it) => {
            found.insert(*it);
        }
        Expression::Add(a, b)
        | Expression::Subtract(a, b)
        | Expression::Max(a, b)
        | Expression::Min(a, b) => {
            names(a, found);
            names(b, found);
        }
    }
}

/// The maximum number of states of which [`reached`] remembers how they occur.
const MAX_REACHED: usize = 1 << 8;

/// Returns states that occur, with the shortest sequences of transactions that lead to them.
pub(super) fn reached(test: &Test) -> BTreeMap<State, Vec<String>> {
    let first = initial(&test.objects);
    let mut paths = BTreeMap::from([(first.clone(), Vec::new())]);
    let mut next = VecDeque::from([first]);
    while let Some(state) = next.pop_front() {
        for transaction in &test.transactions {
            let Some((after, _)) = execute(transaction, &state) else {
                continue;
            };
            if paths.len() < MAX_REACHED && !paths.contains_key(&after) {
                let mut path: Vec<String> = paths[&state].clone();
                path.push(transaction.name.clone());
                paths.insert(after.clone(), path);
                next.push_back(after);
            }
        }
    }
    paths
}
