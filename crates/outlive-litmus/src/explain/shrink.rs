//! The smallest part of a history that still violates a level.

use crate::consistency::{Chronicle, Event, Executed, History, Version, adya};
use crate::level::Level;

/// The maximum number of events whose subsets are all tried.
const MOST_EVENTS: usize = 12;
/// The maximum number of transactions of a part.
const MOST_TRANSACTIONS: usize = 5;

/// A part of a history: transactions, each with some of its events (numbers, ascending).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part(pub Vec<(usize, Vec<usize>)>);

impl Part {
    /// Returns these transactions with all events.
    pub(super) fn of(history: &History, transactions: &[usize]) -> Self {
        let all = |&it: &usize| (it, (0..history.transactions[it].events.len()).collect());
        Self(transactions.iter().map(all).collect())
    }

    /// Returns the number of events.
    pub(super) fn events(&self) -> usize {
        self.0.iter().map(|(_, events)| events.len()).sum()
    }
}

/// Returns whether each of the levels forbids the history.
pub(super) fn violates(history: &History, levels: &[Level]) -> bool {
    levels.iter().all(|&it| !adya::allows(history, it))
}

/// Returns the history of a part, and for each of its transactions the numbers of the events that
/// it has; `None` if the part lacks the last of several writes of an object.
///
/// A read of a version that is left out becomes one of the version before it. So each dependency
/// of the part stands for a path in the whole history with the same anti-dependencies, and a level
/// that forbids the part forbids the history.
pub(super) fn restrict(history: &History, part: &Part) -> Option<(History, Vec<Vec<usize>>)> {
    let number = |old: usize| part.0.iter().position(|it| it.0 == old);
    // The numbers of the kept writes of an object by a transaction, among all of them.
    let kept_writes = |old: usize, object: usize| -> Vec<usize> {
        let Some(new) = number(old) else {
            return Vec::new();
        };
        let events = history.transactions[old].events.iter().enumerate();
        let writes = events.filter(|(_, it)| is_write(it, object));
        let kept = writes
            .enumerate()
            .filter(|(_, (at, _))| part.0[new].1.contains(at));
        kept.map(|(write, _)| write).collect()
    };
    for (old, _) in &part.0 {
        for object in 0..history.objects.len() {
            let last = history.writes(*old, object).len().checked_sub(1);
            if kept_writes(*old, object)
                .last()
                .copied()
                .is_some_and(|it| Some(it) != last)
            {
                return None;
            }
        }
    }
    let kept = |object: usize, old: usize, write: usize| -> Option<Version> {
        let write = kept_writes(old, object)
            .iter()
            .position(|&it| it == write)?;
        let transaction = number(old)?;
        Some(Version::Written { transaction, write })
    };
    let version = |object: usize, it: Version| -> Option<Version> {
        let Version::Written { transaction, write } = it else {
            return Some(it);
        };
        if let Some(kept) = kept(object, transaction, write) {
            return Some(kept);
        }
        let place = history.place(object, it)?;
        let writers = &history.objects[object].writers[..place - 1];
        let last = |&writer: &usize| {
            let write = history.writes(writer, object).len() - 1;
            kept(object, writer, write)
        };
        Some(
            writers
                .iter()
                .rev()
                .find_map(last)
                .unwrap_or(Version::Initial),
        )
    };
    let mut events = Vec::new();
    let mut transactions = Vec::new();
    for (old, chosen) in &part.0 {
        let executed = &history.transactions[*old];
        let mut left = Vec::new();
        let mut mapped = Vec::new();
        for &at in chosen {
            let event = match &executed.events[at] {
                Event::Read {
                    object,
                    version: it,
                } => match version(*object, *it) {
                    Some(version) => Event::Read {
                        object: *object,
                        version,
                    },
                    None => continue,
                },
                Event::Count { versions } => {
                    let versions = versions.iter().enumerate();
                    match versions.map(|(object, &it)| version(object, it)).collect() {
                        Some(versions) => Event::Count { versions },
                        None => continue,
                    }
                }
                write => write.clone(),
            };
            left.push(at);
            mapped.push(event);
        }
        events.push(left);
        transactions.push(Executed {
            events: mapped,
            commits: executed.commits,
        });
    }
    let chronicle = |(object, it): (usize, &Chronicle)| Chronicle {
        present: it.present,
        writers: { it.writers.iter() }
            .filter(|&&old| !kept_writes(old, object).is_empty())
            .filter_map(|&old| number(old))
            .collect(),
    };
    let time = closed(&history.real_time, history.transactions.len());
    let between = |&(from, to): &(usize, usize)| Some((number(from)?, number(to)?));
    let restricted = History {
        objects: history.objects.iter().enumerate().map(chronicle).collect(),
        transactions,
        real_time: time.iter().filter_map(between).collect(),
    };
    Some((restricted, events))
}

fn is_write(event: &Event, of: usize) -> bool {
    matches!(event, Event::Write { object, .. } if *object == of)
}

/// Returns the transitive closure of pairs.
fn closed(pairs: &[(usize, usize)], size: usize) -> Vec<(usize, usize)> {
    let mut all = pairs.to_vec();
    for through in 0..size {
        for from in 0..size {
            for to in 0..size {
                let has = |it| all.contains(&it);
                if has((from, through)) && has((through, to)) && !has((from, to)) {
                    all.push((from, to));
                }
            }
        }
    }
    all
}

/// Returns the fewest transactions whose part of the history all of `levels` forbid, with all of
/// their events. Numbers that `needed` contains are in it. `None` if the levels allow the history,
/// or forbid only parts that are too large to search.
pub(super) fn fewest_transactions(
    history: &History,
    levels: &[Level],
    needed: &[usize],
) -> Option<Part> {
    let size = history.transactions.len();
    let most = size.min(MOST_TRANSACTIONS);
    (1..=most).find_map(|count| {
        let mut found = None;
        subsets(size, count, &mut |chosen| {
            let part = Part::of(history, chosen);
            let is_wrong = || restrict(history, &part).is_some_and(|it| violates(&it.0, levels));
            if needed.iter().all(|it| chosen.contains(it)) && is_wrong() {
                found = Some(part);
            }
            found.is_none()
        });
        found
    })
}

/// Returns the part with the fewest of its events that all of `levels` forbid, if they forbid it.
/// Each transaction keeps an event. A part with many events loses one after another instead, so
/// that each of the rest is necessary.
pub(super) fn fewest_events(history: &History, part: &Part, levels: &[Level]) -> Part {
    let all: Vec<(usize, usize)> = { part.0.iter() }
        .flat_map(|(it, events)| events.iter().map(move |&at| (*it, at)))
        .collect();
    let with = |chosen: &[usize]| {
        let of = |it: usize| {
            let events = { chosen.iter() }
                .filter(|&&at| all[at].0 == it)
                .map(|&at| all[at].1);
            (it, events.collect::<Vec<_>>())
        };
        Part(part.0.iter().map(|it| of(it.0)).collect())
    };
    let is_wrong = |part: &Part| {
        let has_events = part.0.iter().all(|it| !it.1.is_empty());
        has_events && restrict(history, part).is_some_and(|it| violates(&it.0, levels))
    };
    if all.len() <= MOST_EVENTS {
        let smallest = (part.0.len()..all.len()).find_map(|count| {
            let mut found = None;
            subsets(all.len(), count, &mut |chosen| {
                let smaller = with(chosen);
                if is_wrong(&smaller) {
                    found = Some(smaller);
                }
                found.is_none()
            });
            found
        });
        return smallest.unwrap_or_else(|| part.clone());
    }
    let mut kept: Vec<usize> = (0..all.len()).collect();
    let mut at = 0;
    while at < kept.len() {
        let mut fewer = kept.clone();
        fewer.remove(at);
        match is_wrong(&with(&fewer)) {
            true => (kept, at) = (fewer, 0),
            false => at += 1,
        }
    }
    with(&kept)
}

/// Calls `visit` with all subsets of `count` numbers below `size`, in lexicographic order, until it
/// returns false.
pub(super) fn subsets(size: usize, count: usize, visit: &mut dyn FnMut(&[usize]) -> bool) {
    fn extend(
        size: usize,
        count: usize,
        chosen: &mut Vec<usize>,
        visit: &mut dyn FnMut(&[usize]) -> bool,
    ) -> bool {
        if chosen.len() == count {
            return visit(chosen);
        }
        let first = chosen.last().map_or(0, |it| it + 1);
        for next in first..=(size + chosen.len()).saturating_sub(count) {
            if next >= size {
                break;
            }
            chosen.push(next);
            let goes_on = extend(size, count, chosen, visit);
            chosen.pop();
            if !goes_on {
                return false;
            }
        }
        true
    }
    extend(size, count, &mut Vec::new(), visit);
}
