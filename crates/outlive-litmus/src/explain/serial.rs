//! The values that transactions show if they are executed one after another.

use super::Serial;
use super::candidates::permutations;
use super::search::Found;
use super::words::Words;
use super::world::{Action, World};
use crate::level::Level;
use crate::test::{Step, Test};

/// The maximum number of transactions whose orders are all executed.
const MOST: usize = 3;

/// Names with their values.
type Values = Vec<(String, Option<i64>)>;

/// Returns the state that the assertion read.
pub(super) fn state(world: &World<'_>) -> Values {
    let state = world.state.as_ref().map(|it| named(world.test, it));
    state.unwrap_or_default()
}

/// Returns the values of all objects by name.
pub(super) fn named(test: &Test, state: &[Option<i64>]) -> Values {
    let objects = test.objects.iter().map(|it| it.name.clone());
    objects.zip(state.iter().copied()).collect()
}

/// A value that was observed.
#[derive(Clone, Copy)]
enum Source {
    Object(usize),
    /// A read or count: an execution, and the number of its action.
    Action(usize, usize),
}

/// Returns the observed values, and the same after each serial execution of the committed
/// transactions, if they are few.
pub(super) fn values(
    world: &World<'_>,
    found: &Found,
    words: &Words<'_>,
    refuted: &[Level],
) -> (Values, Vec<Serial>) {
    let mut observed = Values::new();
    let mut sources = Vec::new();
    for (place, (number, _)) in found.part.0.iter().enumerate() {
        let attempt = &found.all[*number];
        let Some(transaction) = attempt.transaction else {
            continue;
        };
        let locals = &world.test.transactions[transaction].locals;
        for &at in &found.events[place] {
            let reads = |it: &&Action| !matches!(it, Action::Write { .. });
            let value = match attempt.actions[at] {
                Action::Read { value, .. } => value,
                Action::Count { number } => Some(number),
                Action::Write { .. } => continue,
            };
            let local = attempt.actions[..at].iter().filter(reads).count();
            observed.push((format!("{}.{}", words.name(*number), locals[local]), value));
            sources.push(Source::Action(*number, at));
        }
    }
    for (object, it) in state(world).into_iter().enumerate() {
        observed.push(it);
        sources.push(Source::Object(object));
    }
    let all = 0..found.all.len();
    let executes = |it: &usize| found.all[*it].commits() && found.all[*it].transaction.is_some();
    let committed: Vec<usize> = all.filter(executes).collect();
    if committed.len() > MOST {
        return (observed, Vec::new());
    }
    let in_time = |order: &[usize]| {
        let follows = |(at, it): (usize, &usize)| {
            let later = order[at + 1..].iter();
            { later }.all(|other| !found.all[*other].precedes(&found.all[*it]))
        };
        order.iter().enumerate().all(follows)
    };
    let is_strict = !refuted.is_empty() && refuted.iter().all(|it| it.real_time);
    let mut orders = permutations(&committed);
    orders.retain(|it| !is_strict || in_time(it));
    let serial = |order: Vec<usize>| {
        let (reads, objects) = execute(world.test, found, &order);
        let value = |source: &Source| match *source {
            Source::Object(object) => objects[object],
            Source::Action(number, at) => {
                let of_it = reads.iter().find(|it| it.0 == (number, at));
                of_it.and_then(|it| it.1)
            }
        };
        Serial {
            order: order.iter().map(|&it| words.name(it)).collect(),
            values: sources.iter().map(value).collect(),
        }
    };
    (observed, orders.into_iter().map(serial).collect())
}

/// The value that an action of an execution returned.
type Returned = ((usize, usize), Option<i64>);

/// Executes transactions one after another. Returns the values of their reads and of all objects.
fn execute(test: &Test, found: &Found, order: &[usize]) -> (Vec<Returned>, Vec<Option<i64>>) {
    let mut objects = found.initial.clone();
    let mut reads = Vec::new();
    for &number in order {
        let Some(transaction) = found.all[number].transaction else {
            continue;
        };
        let transaction = &test.transactions[transaction];
        let mut next = objects.clone();
        let mut locals = vec![None; transaction.locals.len()];
        let mut is_refused = false;
        for (at, step) in transaction.steps.iter().enumerate() {
            let (object, is_insertion, value) = match step {
                Step::Read { object, into } => {
                    locals[into.0] = next[*object];
                    reads.push(((number, at), next[*object]));
                    continue;
                }
                Step::Count { into } => {
                    let count = next.iter().flatten().count() as i64;
                    locals[into.0] = Some(count);
                    reads.push(((number, at), Some(count)));
                    continue;
                }
                Step::Write { object, value } | Step::Insert { object, value } => {
                    let value = value.evaluate(&|it| locals[it.0]);
                    is_refused |= value.is_none();
                    (*object, matches!(step, Step::Insert { .. }), value)
                }
                Step::Delete { object } => (*object, false, None),
                Step::Abort => {
                    is_refused = true;
                    break;
                }
            };
            is_refused |= next[object].is_none() != is_insertion;
            if is_refused {
                break;
            }
            next[object] = value;
        }
        if !is_refused {
            objects = next;
        }
    }
    (reads, objects)
}
