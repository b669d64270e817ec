//! Transactions executed alone, one after the other.

use crate::test::{Expression, Local, Object, Step, Transaction};

/// The values of all objects, `None` for absent ones.
pub(super) type State = Vec<Option<i64>>;

/// Returns the state before the first transaction.
pub(super) fn initial(objects: &[Object]) -> State {
    objects.iter().map(|it| it.initial).collect()
}

/// Executes a transaction. Returns the state after it and the values that it read, or `None` if it
/// aborted.
pub(super) fn execute(transaction: &Transaction, before: &State) -> Option<(State, State)> {
    let mut state = before.clone();
    let mut locals = vec![None; transaction.locals.len()];
    for step in &transaction.steps {
        let evaluate = |it: &Expression<Local>| it.evaluate(&|it: Local| locals[it.0]);
        match step {
            Step::Read { object, into } => locals[into.0] = state[*object],
            Step::Count { into } => {
                let present = state.iter().flatten().count();
                locals[into.0] = Some(i64::try_from(present).unwrap_or(i64::MAX));
            }
            Step::Write { object, value } => {
                state[*object]?;
                state[*object] = Some(evaluate(value)?);
            }
            Step::Insert { object, value } => {
                if state[*object].is_some() {
                    return None;
                }
                state[*object] = Some(evaluate(value)?);
            }
            Step::Delete { object } => {
                state[*object].take()?;
            }
            Step::Abort => return None,
        }
    }
    Some((state, locals))
}
