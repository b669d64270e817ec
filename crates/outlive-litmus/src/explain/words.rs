//! Names and sentences of an explanation.

use super::cycle::{Arc, Letter, is_write};
use super::schedule::{self, Oddity};
use super::search::Found;
use super::world::{ASSERTION, Action, Attempt, World};
use super::{Dependency, Explanation, Fault, Finding, Moment, Participant};
use crate::consistency::{Change, Event, Version};
use crate::level::Level;
use crate::run::Outcome;
use crate::test::Test;

/// The names of the transactions and steps of a search's result.
pub(super) struct Words<'w> {
    test: &'w Test,
    found: &'w Found,
    /// The names of the transactions of the whole history, with a number if a name occurs again.
    all_names: Vec<String>,
    /// The names of the transactions of the small history.
    names: Vec<String>,
}

impl<'w> Words<'w> {
    pub(super) fn new(world: &World<'w>, found: &'w Found) -> Self {
        let name = |number: usize| {
            let name = &found.all[number].name;
            let same = { found.all[..number].iter() }.filter(|it| it.name == *name);
            match same.count() {
                0 => name.clone(),
                more => format!("{name} ({})", more + 1),
            }
        };
        let all_names: Vec<String> = (0..found.all.len()).map(name).collect();
        let chosen = found.part.0.iter().map(|it| all_names[it.0].clone());
        Self {
            test: world.test,
            found,
            names: chosen.collect(),
            all_names,
        }
    }

    /// Returns the name of an execution of the whole history.
    pub(super) fn name(&self, number: usize) -> String {
        self.all_names[number].clone()
    }

    pub(super) fn participants(&self) -> Vec<Participant> {
        let one = |(attempt, name): (&Attempt, &String)| Participant {
            name: name.clone(),
            outcome: attempt.outcome.name(),
        };
        { self.found.attempts().into_iter().zip(&self.names) }
            .map(one)
            .collect()
    }

    pub(super) fn steps(&self) -> Vec<Moment> {
        let attempts = self.found.attempts();
        let mut steps = Vec::new();
        for moment in &self.found.schedule.moments {
            let attempt = attempts[moment.transaction];
            let step = match moment.event {
                Some(event) => self.step(attempt, moment.transaction, event),
                None if attempt.transaction.is_none() => continue,
                None => end(attempt.outcome).into(),
            };
            let oddities = self.found.schedule.oddities.iter();
            let note = oddities.filter_map(|it| match it {
                Oddity::Stale { read, write } if read == moment => {
                    let writer = &self.names[write.transaction];
                    let by = attempts[write.transaction];
                    Some(match write.event {
                        Some(event) => {
                            let write = self.step(by, write.transaction, event);
                            format!("stale: not {write} of {writer}")
                        }
                        None => format!("stale: {writer} had ended"),
                    })
                }
                Oddity::Overtaken { write, by } if write == moment => Some(format!(
                    "does not replace the write of {}",
                    self.names[by.transaction]
                )),
                _ => None,
            });
            let left_out = moment
                .event
                .and_then(|it| self.left_out(moment.transaction, it));
            steps.push(Moment {
                transaction: moment.transaction,
                step,
                note: note.chain(left_out).collect::<Vec<_>>().join("; "),
            });
        }
        steps
    }

    /// Returns a note if an event of the small history saw a version that the small history leaves
    /// out: its value is not one of a step that is shown.
    fn left_out(&self, number: usize, event: usize) -> Option<String> {
        let (all, part) = (&self.found.history.transactions, &self.found.part.0);
        let seen = &all[part[number].0].events[self.found.events[number][event]];
        schedule::seen(seen)
            .into_iter()
            .find_map(|(object, version)| {
                let Version::Written { transaction, write } = version else {
                    return None;
                };
                let Some(place) = part.iter().position(|it| it.0 == transaction) else {
                    return Some("written by a transaction that is left out".to_owned());
                };
                let events = all[transaction].events.iter().enumerate();
                let mut writes = events.filter(|(_, it)| is_write(it, object));
                let (at, _) = writes.nth(write)?;
                let is_kept = self.found.events[place].contains(&at);
                let name = &self.all_names[transaction];
                (!is_kept).then(|| format!("written by a step of {name} that is left out"))
            })
    }

    fn step(&self, attempt: &Attempt, number: usize, event: usize) -> String {
        step(
            self.test,
            &attempt.actions[self.found.events[number][event]],
        )
    }

    pub(super) fn object(&self, object: usize) -> &str {
        &self.test.objects[object].name
    }

    /// Returns a write of an execution of the whole history as text.
    pub(super) fn write(&self, number: usize, object: usize, write: usize) -> String {
        let actions = self.found.all[number].actions.iter();
        let mut writes = actions.filter(|it| it.written(object).is_some());
        writes
            .nth(write)
            .map_or_else(String::new, |it| step(self.test, it))
    }

    pub(super) fn dependency(&self, arc: &Arc) -> Dependency {
        Dependency {
            from: arc.from,
            to: arc.to,
            kind: arc.letter.name(),
            object: arc.object.map(|it| self.object(it).to_owned()),
            meaning: self.meaning(arc),
        }
    }

    fn meaning(&self, arc: &Arc) -> String {
        let attempts = self.found.attempts();
        let (from, to) = (&self.names[arc.from], &self.names[arc.to]);
        let Some(object) = arc.object else {
            return format!("{from} had ended before {to} began");
        };
        let history = &self.found.small;
        // The last step of a transaction on the object of this kind.
        let last = |number: usize, is_wanted: &dyn Fn(&Event) -> bool| {
            let events = history.transactions[number].events.iter();
            let at = events.enumerate().rfind(|(_, it)| is_wanted(it));
            at.map_or_else(
                || "?".into(),
                |(at, _)| self.past(attempts[number], number, at),
            )
        };
        let writes = |it: &Event| is_write(it, object);
        let sees = |it: &Event| schedule::seen(it).iter().any(|it| it.0 == object);
        let position = |writer: usize| {
            let mut writers = history.objects[object].writers.iter();
            writers.position(|&it| it == writer)
        };
        // The read of the version at a place of the version order, or a count that saw it. The last
        // step that saw the object can have seen another version.
        let read = |number: usize, place: Option<usize>| {
            let is_placed = |it: &(usize, Version)| {
                it.0 == object && place.is_some() && history.place(object, it.1) == place
            };
            let saw = |it: &Event| schedule::seen(it).iter().any(is_placed);
            let has_read = |it: &Event| matches!(it, Event::Read { .. }) && saw(it);
            let ways: [&dyn Fn(&Event) -> bool; 3] = [&has_read, &saw, &sees];
            let events = &history.transactions[number].events;
            let exact = ways.into_iter().find(|it| events.iter().any(it));
            last(number, exact.unwrap_or(&sees))
        };
        match arc.letter {
            Letter::WriteWrite => {
                let (first, second) = (last(arc.from, &writes), last(arc.to, &writes));
                format!("{to} {second} after {from} {first}")
            }
            Letter::WriteRead => {
                format!(
                    "{to} {}, after {from} {}",
                    read(arc.to, position(arc.from).map(|it| it + 1)),
                    last(arc.from, &writes)
                )
            }
            Letter::DirtyRead => {
                let reason = match attempts[arc.from].commits() {
                    true => "overwrote itself",
                    false => "took back: it did not commit",
                };
                let write = self.dirty_write(arc, object);
                format!(
                    "{to} {}: {from} {write}, which it {reason}",
                    last(arc.to, &sees)
                )
            }
            Letter::ReadWrite => {
                let read = read(arc.from, position(arc.to));
                let write = last(arc.to, &writes);
                format!("{from} {read}, and did not see that {to} {write}")
            }
            Letter::CountWrite => {
                let is_count = |it: &Event| matches!(it, Event::Count { .. });
                let (count, write) = (last(arc.from, &is_count), last(arc.to, &writes));
                format!("{from} {count}, and did not see that {to} {write}")
            }
            Letter::RealTime => format!("{from} had ended before {to} began"),
        }
    }

    /// Returns the write that a dirty read saw, in the past tense.
    fn dirty_write(&self, arc: &Arc, object: usize) -> String {
        let events = &self.found.small.transactions[arc.to].events;
        let seen = events.iter().flat_map(schedule::seen);
        let write = seen.filter(|it| it.0 == object).find_map(|it| match it.1 {
            Version::Written { transaction, write } if transaction == arc.from => Some(write),
            _ => None,
        });
        let of_writer = self.found.small.transactions[arc.from]
            .events
            .iter()
            .enumerate();
        let mut writes = of_writer.filter(|it| is_write(it.1, object));
        let at = writes.nth(write.unwrap_or_default()).map(|it| it.0);
        let attempts = self.found.attempts();
        at.map_or_else(
            || "?".into(),
            |at| self.past(attempts[arc.from], arc.from, at),
        )
    }

    /// Returns an event in the past tense.
    fn past(&self, attempt: &Attempt, number: usize, event: usize) -> String {
        let name = |object: usize| self.object(object);
        match attempt.actions[self.found.events[number][event]] {
            Action::Read { object, value } => match value {
                Some(value) => format!("read {} = {value}", name(object)),
                None => format!("found no {}", name(object)),
            },
            Action::Count { number } => format!("counted {number}"),
            Action::Write {
                object,
                change,
                value,
            } => match (change, value) {
                (Change::Insert, Some(value)) => format!("inserted {} = {value}", name(object)),
                (_, Some(value)) => format!("wrote {} = {value}", name(object)),
                (_, None) => format!("deleted {}", name(object)),
            },
        }
    }
}

/// Returns a value as text.
pub(super) fn value(value: Option<i64>) -> String {
    value.map_or_else(|| "absent".into(), |it| it.to_string())
}

/// Returns named values as text.
pub(super) fn values(values: &[(String, Option<i64>)]) -> String {
    let one = |(name, it): &(String, Option<i64>)| match it {
        Some(it) => format!("{name} = {it}"),
        None => format!("{name} absent"),
    };
    values.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn step(test: &Test, action: &Action) -> String {
    let name = |object: usize| &test.objects[object].name;
    match *action {
        Action::Read { object, value: it } => format!("read {} -> {}", name(object), value(it)),
        Action::Count { number } => format!("count -> {number}"),
        Action::Write {
            object,
            change,
            value,
        } => match (change, value) {
            (Change::Insert, Some(value)) => format!("insert {} = {value}", name(object)),
            (_, Some(value)) => format!("write {} = {value}", name(object)),
            (_, None) => format!("delete {}", name(object)),
        },
    }
}

fn end(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Committed => "commit",
        Outcome::Aborted => "aborted by the store",
        Outcome::AbortedByUser => "abort",
        Outcome::Refused => "refused by the store",
        Outcome::Crashed => "the client crashes",
        Outcome::Lost => "the connection is lost",
        Outcome::Unknown => "commit without an answer",
    }
}

/// Returns the names of levels: `repeatable-read, snapshot`.
pub(super) fn levels(levels: &[Level]) -> String {
    let names: Vec<String> = levels.iter().map(Level::to_string).collect();
    names.join(", ")
}

pub(super) fn sentence(explanation: &Explanation) -> String {
    match &explanation.result {
        Finding::Interleaving => format!(
            "The values show {}, which {} and stronger levels forbid.",
            with_article(explanation.anomaly),
            levels(&explanation.forbidden_from)
        ),
        Finding::Fault(faults) => {
            let mut parts: Vec<String> = faults.iter().map(fault).collect();
            // A transaction of which several writes are lost is named once.
            let all = parts.clone();
            let mut number = 0;
            parts.retain(|it| {
                number += 1;
                !all[..number - 1].contains(it)
            });
            format!(
                "No interleaving of the transactions explains this: {}.",
                parts.join(", and ")
            )
        }
        Finding::Unexplained => "The search found no short interleaving that explains this.".into(),
    }
}

fn with_article(anomaly: &str) -> String {
    match anomaly.starts_with(['a', 'i', 'o', 'u']) {
        true => format!("an {anomaly}"),
        false if anomaly.starts_with("circular") || anomaly.starts_with("order") => anomaly.into(),
        false => format!("a {anomaly}"),
    }
}

fn fault(fault: &Fault) -> String {
    match fault {
        Fault::Lost {
            transaction,
            outcome,
            write,
        } => match *outcome == Outcome::Unknown.name() {
            true => {
                format!("the store kept only a part of {transaction}, whose commit had no answer")
            }
            false => format!("the store lost `{write}` of {transaction}, which had committed"),
        },
        Fault::Kept {
            transaction,
            outcome,
            write,
        } => format!("the store kept `{write}` of {transaction}, which did not commit ({outcome})"),
        Fault::Invented {
            transaction,
            object,
            value: it,
        } => {
            let reader = match transaction == ASSERTION {
                true => "the assertion",
                false => transaction,
            };
            match it {
                Some(it) => format!("{reader} read {object} = {it}, which no transaction wrote"),
                None => format!("{reader} found no {object}, which no transaction deleted"),
            }
        }
    }
}
