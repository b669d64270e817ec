//! Proofs for all integers.

use super::differences::{Formula, Search, search};
use super::enumeration::{holds, reached};
use super::linear::{Value, formula};
use super::serial::{State, execute};
use super::{NotScalable, Proof, shown};
use crate::test::{Condition, Expression, Local, Seen, Step, Test, Transaction};

/// The maximum number of objects that transactions create or delete.
const MAX_CHANGING: usize = 10;

/// The values of all objects in terms of the values before a transaction.
type Values = Vec<Option<Value>>;

/// Shows that each transaction keeps the assertion.
pub(super) fn prove(test: &Test, condition: &Condition<Seen>) -> Result<Proof, NotScalable> {
    let mut reached: Vec<_> = reached(test).into_iter().collect();
    reached.sort_by_key(|(_, path)| path.len());
    for (state, path) in &reached {
        for transaction in &test.transactions {
            demand_kept(test, condition, transaction, state, Some(path))?;
        }
    }
    let changing: Vec<usize> = (0..test.objects.len())
        .filter(|&object| { test.transactions.iter() }.any(|it| changes(it, object)))
        .collect();
    if changing.len() > MAX_CHANGING {
        return Err(NotScalable::Undecided {
            reason: format!("transactions create or delete more than {MAX_CHANGING} objects"),
            instead: "write a test with fewer objects".into(),
        });
    }
    let (mut cases, mut choices) = (0, 0);
    for present in 0..1_u32 << changing.len() {
        let before = (0..test.objects.len()).map(|object| {
            let is_present = match changing.iter().position(|it| *it == object) {
                Some(bit) => present >> bit & 1 == 1,
                None => test.objects[object].initial.is_some(),
            };
            is_present.then(|| Value::variable(object + 1))
        });
        let before: Values = before.collect();
        for transaction in &test.transactions {
            cases += 1;
            let Some(after) = symbolic(transaction, &before)? else {
                continue;
            };
            let formulas = [
                on_objects(condition, true, &before)?,
                on_objects(condition, false, &after)?,
            ];
            match search(&formulas, test.objects.len() + 1, &mut choices) {
                Search::NoSolution => {}
                Search::GaveUp => {
                    return Err(NotScalable::Undecided {
                        reason: "the condition has too many alternatives".into(),
                        instead: "write fewer of `or`, `!=`, `max` and `min`".into(),
                    });
                }
                Search::Solution(values) => {
                    let values = before.iter().zip(values);
                    let state: Option<State> = values
                        .map(|(it, value)| match it {
                            Some(_) => i64::try_from(value).ok().map(Some),
                            None => Some(None),
                        })
                        .collect();
                    if let Some(state) = state {
                        demand_kept(test, condition, transaction, &state, None)?;
                    }
                    return Err(NotScalable::Undecided {
                        reason: "it fails for integers of more than 64 bits".into(),
                        instead: "write smaller constants".into(),
                    });
                }
            }
        }
    }
    Ok(Proof::Inductive { cases })
}

/// Demands that a transaction keeps the assertion, if it holds in `state`.
fn demand_kept(
    test: &Test,
    condition: &Condition<Seen>,
    transaction: &Transaction,
    state: &State,
    path: Option<&Vec<String>>,
) -> Result<(), NotScalable> {
    let Some((after, _)) = execute(transaction, state) else {
        return Ok(());
    };
    if !holds(condition, state) || holds(condition, &after) {
        return Ok(());
    }
    Err(NotScalable::NotClosed {
        before: shown(test, state),
        transaction: transaction.name.clone(),
        after: shown(test, &after),
        path: path.cloned(),
    })
}

/// Returns whether a transaction creates or deletes an object.
fn changes(transaction: &Transaction, wanted: usize) -> bool {
    transaction.steps.iter().any(|it| match it {
        Step::Insert { object, .. } | Step::Delete { object } => *object == wanted,
        Step::Read { .. } | Step::Count { .. } | Step::Write { .. } | Step::Abort => false,
    })
}

fn on_objects(
    condition: &Condition<Seen>,
    wanted: bool,
    values: &Values,
) -> Result<Formula, NotScalable> {
    formula(condition, wanted, &|it| match it {
        Seen::Object(object) => values[object].clone(),
        // `always` names objects only.
        Seen::Read { .. } | Seen::Committed(_) => None,
    })
}

/// Executes a transaction on values that are not known. Returns the values after it, or `None` if
/// it aborts: that depends on the present objects alone.
fn symbolic(transaction: &Transaction, before: &Values) -> Result<Option<Values>, NotScalable> {
    let mut state = before.clone();
    let mut locals: Values = vec![None; transaction.locals.len()];
    for step in &transaction.steps {
        let evaluate = |it: &Expression<Local>| Value::of(it, &|it: Local| locals[it.0].clone());
        match step {
            Step::Read { object, into } => locals[into.0] = state[*object].clone(),
            Step::Count { into } => {
                let present = state.iter().flatten().count();
                locals[into.0] = Some(Value::constant(present as i128));
            }
            Step::Write { object, value } | Step::Insert { object, value } => {
                let must_be_present = matches!(step, Step::Write { .. });
                let value = evaluate(value)?;
                if state[*object].is_some() != must_be_present || value.is_none() {
                    return Ok(None);
                }
                state[*object] = value;
            }
            Step::Delete { object } => {
                if state[*object].take().is_none() {
                    return Ok(None);
                }
            }
            Step::Abort => return Ok(None),
        }
    }
    Ok(Some(state))
}
