//! The part of a history that `shrink` keeps is wrong, and none of it can be left out.

use super::shrink::{Part, fewest_events, fewest_transactions, restrict, violates};
use crate::consistency::{Change, Chronicle, Event, Executed, History, Version, crooks};
use crate::level::Level;
use proptest::collection::vec;
use proptest::prelude::*;

/// A read or write before versions are known: an object, a kind, and a number that chooses.
type Draft = (usize, u8, usize);

/// Returns histories of 2 to 4 transactions over 2 objects, with counts, aborts and real time.
fn histories() -> impl Strategy<Value = History> {
    let action = (0..2_usize, 0..6_u8, 0..64_usize);
    let transaction = (vec(action, 1..4), 0..8_u8);
    let transactions = vec(transaction, 2..5);
    (
        transactions,
        vec(0..24_usize, 2),
        vec(any::<bool>(), 2),
        any::<u16>(),
    )
        .prop_map(|(drafts, orders, present, time)| history(&drafts, &orders, &present, time))
}

fn history(drafts: &[(Vec<Draft>, u8)], orders: &[usize], present: &[bool], time: u16) -> History {
    let is_write = |it: &&Draft| it.1 < 3;
    let commits = |it: usize| drafts[it].1 > 0;
    let writes = |it: usize, object: usize| {
        drafts[it]
            .0
            .iter()
            .filter(is_write)
            .filter(|it| it.0 == object)
            .count()
    };
    let versions = |object: usize| {
        let written = (0..drafts.len()).flat_map(|transaction| {
            (0..writes(transaction, object))
                .map(move |write| Version::Written { transaction, write })
        });
        [Version::Initial]
            .into_iter()
            .chain(written)
            .collect::<Vec<_>>()
    };
    let versions = [versions(0), versions(1)];
    let pick = |object: usize, number: usize| versions[object][number % versions[object].len()];
    let event = |&(object, kind, number): &Draft| match kind {
        0 | 1 => Event::Write {
            object,
            change: Change::Update,
        },
        2 => Event::Write {
            object,
            change: if number.is_multiple_of(2) {
                Change::Insert
            } else {
                Change::Delete
            },
        },
        3 => Event::Count {
            versions: vec![pick(0, number), pick(1, number / 8)],
        },
        _ => Event::Read {
            object,
            version: pick(object, number),
        },
    };
    let executed = |(number, draft): (usize, &(Vec<Draft>, u8))| Executed {
        events: draft.0.iter().map(event).collect(),
        commits: commits(number),
    };
    let chronicle = |object: usize| {
        let mut writers: Vec<usize> = Vec::new();
        for writer in (0..drafts.len()).filter(|&it| commits(it) && writes(it, object) > 0) {
            writers.insert(
                orders[object] / (writers.len() + 1) % (writers.len() + 1),
                writer,
            );
        }
        Chronicle {
            present: present[object],
            writers,
        }
    };
    let pairs = (0..drafts.len()).flat_map(|to| (0..to).map(move |from| (from, to)));
    let real_time = pairs
        .enumerate()
        .filter(|(at, _)| time >> (2 * at) & 3 == 3);
    History {
        objects: (0..2).map(chronicle).collect(),
        transactions: drafts.iter().enumerate().map(executed).collect(),
        real_time: real_time.map(|(_, it)| it).collect(),
    }
}

fn without<T: Clone>(items: &[T], at: usize) -> Vec<T> {
    [&items[..at], &items[at + 1..]].concat()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_transaction_and_no_step_can_be_left_out(history in histories(), number in 0..12_usize) {
        let level = Level::all().nth(number).unwrap();
        let Some(part) = fewest_transactions(&history, &[level], &[]) else {
            // All histories here are small enough to be searched.
            prop_assert!(!violates(&history, &[level]));
            return Ok(());
        };
        let is_wrong = |part: &Part| {
            restrict(&history, part).is_some_and(|it| violates(&it.0, &[level]))
        };
        let transactions: Vec<usize> = part.0.iter().map(|it| it.0).collect();
        for at in 0..transactions.len() {
            let fewer = Part::of(&history, &without(&transactions, at));
            prop_assert!(!is_wrong(&fewer), "{fewer:?} of {history:?} at {level}");
        }
        let smallest = fewest_events(&history, &part, &[level]);
        let (small, _) = restrict(&history, &smallest).unwrap();
        prop_assert!(!crooks::allows(&small, level), "{small:?} of {history:?} at {level}");
        for (place, (number, events)) in smallest.0.iter().enumerate() {
            for at in 0..events.len() {
                let mut fewer = smallest.clone();
                fewer.0[place] = (*number, without(events, at));
                let is_left = !fewer.0[place].1.is_empty();
                prop_assert!(!(is_left && is_wrong(&fewer)), "{fewer:?} of {history:?} at {level}");
            }
        }
        // A wrong part proves that the whole is wrong. The random histories may update absent
        // objects, which no count can see.
        let counts = |it: &Executed| it.events.iter().any(|it| matches!(it, Event::Count { .. }));
        let has_counts = history.transactions.iter().any(counts);
        prop_assert!(has_counts || violates(&history, &[level]), "{small:?} of {history:?} at {level}");
    }
}
