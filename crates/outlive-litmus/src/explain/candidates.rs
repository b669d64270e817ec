//! The histories that agree with the values of a violation.

use super::world::{Action, Attempt, World};
use crate::consistency::{Change, Chronicle, Event, Executed, History, Version};
use std::time::Instant;

/// The maximum number of candidates for a set of transactions.
const MOST: usize = 600;
/// The maximum number of writers of an object whose orders are all tried.
const MOST_WRITERS: usize = 5;

/// The meaning of the state that the assertion read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// The last version of each object.
    Last,
    /// Versions that a transaction read, the last one of `attempts`. With `after`, all others had
    /// ended before.
    Transaction { after: bool },
}

/// Executions that are to be explained, from a state.
pub(super) struct Setting<'w> {
    pub world: &'w World<'w>,
    pub initial: &'w [Option<i64>],
    /// Executions; the one of the assertion is the last one, if it is a transaction.
    pub attempts: Vec<&'w Attempt>,
    pub reading: Reading,
    /// The time at which the enumeration ends.
    pub deadline: Instant,
}

impl Setting<'_> {
    /// Returns whether each value that was read can come from one of the writes, as far as single
    /// values show.
    pub(super) fn is_covered(&self) -> bool {
        let writes = |object: usize, value: Option<i64>| {
            { self.attempts.iter() }.any(|it| {
                it.actions
                    .iter()
                    .any(|it| it.written(object) == Some(value))
            })
        };
        let exists = |object: usize, value| self.initial[object] == value || writes(object, value);
        let committed = self.attempts.iter().filter(|it| it.commits());
        let reads = committed.flat_map(|it| &it.actions).all(|it| match it {
            Action::Read { object, value } => exists(*object, *value),
            _ => true,
        });
        let state = match (&self.world.state, self.reading) {
            (Some(state), Reading::Last) => (state.iter().enumerate()).all(|(object, value)| {
                self.orders(object).next().is_some() && exists(object, *value)
            }),
            _ => true,
        };
        reads && state
    }

    /// Calls `visit` with histories whose reads return the recorded values, until it returns false.
    /// There are no more than a fixed number of them.
    pub(super) fn histories(&self, visit: &mut dyn FnMut(History) -> bool) {
        let mut left = MOST;
        let mut visit = |history| {
            left -= 1;
            visit(history) && left > 0
        };
        let mut open = Vec::new();
        for (number, attempt) in self.attempts.iter().enumerate() {
            if attempt.commits() {
                open.extend((0..attempt.actions.len()).map(|at| (number, at)));
            }
        }
        open.retain(|&(number, at)| {
            !matches!(self.attempts[number].actions[at], Action::Write { .. })
        });
        self.choose(&open, &mut Vec::new(), &mut visit);
    }

    /// Chooses versions for the reads in `open`, after those of `chosen`.
    fn choose(
        &self,
        open: &[(usize, usize)],
        chosen: &mut Vec<Vec<Version>>,
        visit: &mut dyn FnMut(History) -> bool,
    ) -> bool {
        if Instant::now() >= self.deadline {
            return false;
        }
        let Some(&(number, at)) = open.get(chosen.len()) else {
            return self.order(open, chosen, &mut Vec::new(), visit);
        };
        let options: Vec<Vec<Version>> = match self.attempts[number].actions[at] {
            Action::Read { object, value } => {
                let versions = self.versions(number, at, object);
                let matching = versions.into_iter().filter(|it| it.1 == value);
                matching.map(|it| vec![it.0]).collect()
            }
            Action::Count { number: count } => self.counted(number, at, count),
            Action::Write { .. } => unreachable!("writes are not open"),
        };
        for option in options {
            chosen.push(option);
            let goes_on = self.choose(open, chosen, visit);
            chosen.pop();
            if !goes_on {
                return false;
            }
        }
        true
    }

    /// Returns the versions of an object, with their values, that an action can have seen: the
    /// own one, if there is one, or those of others.
    fn versions(&self, number: usize, at: usize, object: usize) -> Vec<(Version, Option<i64>)> {
        let reader = self.attempts[number];
        let writes = |other: usize, before: usize| {
            let actions = self.attempts[other].actions[..before].iter();
            let values = actions.filter_map(move |it| it.written(object));
            let version = move |(write, value)| {
                let transaction = other;
                (Version::Written { transaction, write }, value)
            };
            values.enumerate().map(version)
        };
        if let Some(own) = writes(number, at).last() {
            return vec![own];
        }
        let mut found = vec![(Version::Initial, self.initial[object])];
        for (other, attempt) in self.attempts.iter().enumerate() {
            // A transaction that began later was not seen.
            if other != number && !reader.precedes(attempt) {
                found.extend(writes(other, attempt.actions.len()));
            }
        }
        found
    }

    /// Returns versions of all objects of which `count` are present.
    fn counted(&self, number: usize, at: usize, count: i64) -> Vec<Vec<Version>> {
        let mut found: Vec<(Vec<Version>, i64)> = vec![(Vec::new(), 0)];
        for object in 0..self.initial.len() {
            let versions = self.versions(number, at, object);
            let extend = |(chosen, present): &(Vec<Version>, i64)| {
                let (chosen, present) = (chosen.clone(), *present);
                versions.iter().map(move |(version, value)| {
                    let mut chosen = chosen.clone();
                    chosen.push(*version);
                    (chosen, present + i64::from(value.is_some()))
                })
            };
            found = found.iter().flat_map(extend).take(MOST).collect();
        }
        found.retain(|it| it.1 == count);
        found.into_iter().map(|it| it.0).collect()
    }

    /// Chooses orders of the writers of the objects, after those of `orders`.
    fn order(
        &self,
        open: &[(usize, usize)],
        chosen: &[Vec<Version>],
        orders: &mut Vec<Vec<usize>>,
        visit: &mut dyn FnMut(History) -> bool,
    ) -> bool {
        let object = orders.len();
        if object == self.initial.len() {
            return visit(self.history(open, chosen, orders));
        }
        for order in self.orders(object) {
            orders.push(order);
            let goes_on = self.order(open, chosen, orders, visit);
            orders.pop();
            if !goes_on {
                return false;
            }
        }
        true
    }

    /// Returns the orders of the committed writers of an object, those that agree with the times
    /// first. If the assertion read the last versions, they end with the value that it read.
    fn orders(&self, object: usize) -> impl Iterator<Item = Vec<usize>> {
        let writes = |it: &usize| self.written(*it, object).next().is_some();
        let all = 0..self.attempts.len();
        let mut writers: Vec<usize> = all.filter(writes).collect();
        writers.retain(|&it| self.attempts[it].commits());
        let mut orders = match writers.len() <= MOST_WRITERS {
            true => permutations(&writers),
            false => {
                writers.sort_by_key(|&it| self.attempts[it].end);
                vec![writers]
            }
        };
        orders.sort_by_cached_key(|order| {
            let pairs = (0..order.len()).flat_map(|b| (0..b).map(move |a| (a, b)));
            pairs
                .filter(|&(a, b)| {
                    let attempt = |at: usize| self.attempts[order[at]];
                    attempt(b).precedes(attempt(a))
                })
                .count()
        });
        let last = match (&self.world.state, self.reading) {
            (Some(state), Reading::Last) => Some(state[object]),
            _ => None,
        };
        let initial = self.initial[object];
        orders.into_iter().filter(move |order| {
            let value = match order.last() {
                Some(&writer) => self.written(writer, object).last().unwrap_or(initial),
                None => initial,
            };
            last.is_none_or(|it| it == value)
        })
    }

    /// Returns the values that an execution wrote to an object.
    fn written(&self, number: usize, object: usize) -> impl Iterator<Item = Option<i64>> {
        let actions = self.attempts[number].actions.iter();
        actions.filter_map(move |it| it.written(object))
    }

    fn history(
        &self,
        open: &[(usize, usize)],
        chosen: &[Vec<Version>],
        orders: &[Vec<usize>],
    ) -> History {
        let version = |number: usize, at: usize| {
            let place = open.iter().position(|it| *it == (number, at));
            chosen[place.expect("a version is chosen for each read")].clone()
        };
        let event = |number: usize, (at, action): (usize, &Action)| match action {
            Action::Read { object, .. } => Event::Read {
                object: *object,
                version: version(number, at)[0],
            },
            Action::Count { .. } => Event::Count {
                versions: version(number, at),
            },
            Action::Write { object, change, .. } => Event::Write {
                object: *object,
                change: *change,
            },
        };
        let executed = |(number, attempt): (usize, &&Attempt)| Executed {
            events: attempt
                .actions
                .iter()
                .enumerate()
                .map(|it| event(number, it))
                .collect(),
            commits: attempt.commits(),
        };
        let chronicle = |(object, writers): (usize, &Vec<usize>)| Chronicle {
            present: self.initial[object].is_some(),
            writers: writers.clone(),
        };
        History {
            objects: orders.iter().enumerate().map(chronicle).collect(),
            transactions: self.attempts.iter().enumerate().map(executed).collect(),
            real_time: self.real_time(),
        }
    }

    /// Returns the pairs of executions that the runner ordered.
    fn real_time(&self) -> Vec<(usize, usize)> {
        let size = self.attempts.len();
        let pairs = (0..size).flat_map(|a| (0..size).map(move |b| (a, b)));
        let is_ordered = |&(a, b): &(usize, usize)| {
            let after = self.reading == Reading::Transaction { after: true };
            match (self.attempts[a].transaction, self.attempts[b].transaction) {
                (Some(a), Some(b)) => self.world.test.order.contains(&(a, b)),
                (Some(_), None) => after,
                (None, _) => false,
            }
        };
        pairs.filter(is_ordered).collect()
    }

    /// Returns the number of writes in a history that its store would have refused: insertions of
    /// present objects, and others of absent ones.
    pub(super) fn refusals(&self, history: &History) -> usize {
        let of_object = |object: usize| {
            let mut is_present = self.initial[object].is_some();
            let mut count = 0;
            for &writer in &history.objects[object].writers {
                for change in history.writes(writer, object) {
                    count += usize::from((change == Change::Insert) == is_present);
                    is_present = change != Change::Delete;
                }
            }
            count
        };
        (0..history.objects.len()).map(of_object).sum()
    }
}

/// Returns all orders of `items`, the given one first.
pub(super) fn permutations(items: &[usize]) -> Vec<Vec<usize>> {
    if items.is_empty() {
        return vec![Vec::new()];
    }
    let first = |at: usize| {
        let mut rest = items.to_vec();
        let first = rest.remove(at);
        permutations(&rest).into_iter().map(move |mut order| {
            order.insert(0, first);
            order
        })
    };
    (0..items.len()).flat_map(first).collect()
}
