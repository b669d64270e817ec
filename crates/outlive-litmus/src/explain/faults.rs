//! Differences between a state and the writes of the transactions before it.

use super::Fault;
use super::search::Found;
use super::words::Words;
use super::world::{Action, Attempt, World};
use crate::consistency::{Event, Version};
use crate::run::Outcome;

/// Returns the values that a committed transaction or the assertion read, and that no transaction
/// wrote.
pub(super) fn invented(world: &World<'_>) -> Vec<Fault> {
    let writes = |object: usize, value| {
        let mut actions = world.attempts.iter().flat_map(|it| &it.actions);
        world.initial[object] == value || actions.any(|it| it.written(object) == Some(value))
    };
    let committed = world
        .attempts
        .iter()
        .filter(|it| it.outcome == Outcome::Committed);
    let assertion = world.assertion();
    let readers = committed.chain(&assertion);
    let of_reader = |reader: &Attempt| {
        let actions = reader.actions.iter();
        let strange = actions.filter_map(|it| match it {
            Action::Read { object, value } if !writes(*object, *value) => Some(Fault::Invented {
                transaction: reader.name.clone(),
                object: world.test.objects[*object].name.clone(),
                value: *value,
            }),
            _ => None,
        });
        strange.collect::<Vec<_>>()
    };
    let mut found: Vec<Fault> = Vec::new();
    for fault in readers.flat_map(of_reader) {
        if !found.contains(&fault) {
            found.push(fault);
        }
    }
    found
}

/// Returns the writes because of which the state that the assertion read is not the last one.
pub(super) fn faults(found: &Found, words: &Words<'_>) -> Vec<Fault> {
    let history = &found.history;
    let Some(reader) = history.transactions.last() else {
        return Vec::new();
    };
    let mut faults = Vec::new();
    for event in &reader.events {
        let Event::Read { object, version } = event else {
            continue;
        };
        let lost = |number: usize| Fault::Lost {
            transaction: words.name(number),
            outcome: found.all[number].outcome.name(),
            write: words.write(number, *object, history.writes(number, *object).len() - 1),
        };
        match (history.place(*object, *version), *version) {
            (Some(place), _) => {
                let writers = &history.objects[*object].writers;
                faults.extend(writers[place..].iter().map(|&it| lost(it)));
            }
            (None, Version::Written { transaction, write }) => {
                let attempt = &found.all[transaction];
                faults.push(match attempt.commits() {
                    true => lost(transaction),
                    false => Fault::Kept {
                        transaction: words.name(transaction),
                        outcome: attempt.outcome.name(),
                        write: words.write(transaction, *object, write),
                    },
                });
            }
            (None, Version::Initial) => {}
        }
    }
    faults
}
