//! The levels that allow a history, computed twice.

use super::history::{Chronicle, Event, History, Version};
use super::orders::{choices, permutations};
use super::{adya, crooks};
use crate::level::Level;
use thiserror::Error;

/// The two definitions of a level disagree on a history: one of the computations is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "at {level}, the cycles {} a history that the commit tests {}; this is an error in this program",
    if *.by_cycles { "allow" } else { "forbid" },
    if *.by_cycles { "forbid" } else { "allow" }
)]
pub struct Disagreement {
    /// The level on which the definitions disagree.
    pub level: Level,
    /// Whether Adya's cycles allow the history.
    pub by_cycles: bool,
}

/// Returns the levels that forbid the history.
pub fn forbidden(history: &History) -> Result<Vec<Level>, Disagreement> {
    let judge = |level: Level| {
        let by_cycles = adya::allows(history, level);
        match crooks::allows(history, level) == by_cycles {
            true => Ok((!by_cycles).then_some(level)),
            false => Err(Disagreement { level, by_cycles }),
        }
    };
    Level::all()
        .filter_map(|it| judge(it).transpose())
        .collect()
}

/// Returns the levels that forbid all histories with the values of `history`: with the same reads
/// by value, the same numbers counted, and the same last writers.
pub fn forbidden_by_values(history: &History) -> Result<Vec<Level>, Disagreement> {
    let mut common = forbidden(history)?;
    for other in with_same_values(history) {
        let forbidden = forbidden(&other)?;
        common.retain(|it| forbidden.contains(it));
    }
    Ok(common)
}

/// Returns the weakest of `levels`.
pub fn weakest(levels: &[Level]) -> Vec<Level> {
    let is_weakest =
        |&&level: &&Level| { levels.iter() }.all(|&other| other == level || !level.implies(other));
    levels.iter().filter(is_weakest).copied().collect()
}

/// Returns the histories that an application cannot distinguish from `history`.
fn with_same_values(history: &History) -> Vec<History> {
    let orders = |chronicle: &Chronicle| {
        let mut orders = permutations(&chronicle.writers);
        orders.retain(|it| it.last() == chronicle.writers.last());
        orders
    };
    let orders: Vec<_> = history.objects.iter().map(orders).collect();
    let mut found = Vec::new();
    for writers in choices(&orders) {
        let mut other = history.clone();
        for (object, writers) in writers.into_iter().enumerate() {
            other.objects[object].writers = writers;
        }
        found.append(&mut with_same_counts(&other));
    }
    found
}

/// Returns the histories that differ from `history` in the objects that were counted, but not in
/// the numbers that the counts returned.
fn with_same_counts(history: &History) -> Vec<History> {
    let versions = |object: usize| {
        let writers = history.objects[object].writers.iter();
        let last = |&writer: &usize| Version::Written {
            transaction: writer,
            write: history.writes(writer, object).len() - 1,
        };
        [Version::Initial]
            .into_iter()
            .chain(writers.map(last))
            .collect::<Vec<_>>()
    };
    let all: Vec<_> = (0..history.objects.len()).map(versions).collect();
    let number = |versions: &[Version]| {
        let is_present = |&(object, version): &(usize, &Version)| {
            let place = history.place(object, *version);
            place.is_some_and(|it| history.is_present(object, it))
        };
        versions.iter().enumerate().filter(is_present).count()
    };
    let mut found = vec![history.clone()];
    for (transaction, executed) in history.transactions.iter().enumerate() {
        for (at, event) in executed.events.iter().enumerate() {
            let Event::Count { versions } = event else {
                continue;
            };
            let is_clean =
                |(object, &version): (usize, &Version)| history.place(object, version).is_some();
            if !versions.iter().enumerate().all(is_clean) {
                continue;
            }
            // A transaction counts its own writes so far.
            let own = |object: usize, it: Version| {
                let before = &executed.events[..at];
                let writes =
                    |it: &Event| matches!(it, Event::Write { object: of, .. } if *of == object);
                let is_own =
                    matches!(it, Version::Written { transaction: of, .. } if of == transaction);
                is_own == before.iter().any(writes)
            };
            let mut same = choices(&all);
            same.retain(|it| number(it) == number(versions));
            same.retain(|it| it.iter().enumerate().all(|(object, &it)| own(object, it)));
            let change = |one: &History| {
                let one = one.clone();
                { same.iter() }.map(move |versions| {
                    let mut other = one.clone();
                    other.transactions[transaction].events[at] = Event::Count {
                        versions: versions.clone(),
                    };
                    other
                })
            };
            found = found.iter().flat_map(change).collect();
        }
    }
    found
}
