//! Entries of a map: keys of one's own, keys whose value everybody adds to, keys that everybody inserts
//! and removes.
//!
//! What became of an operation on the map stands in the descriptor that the next incarnation inherits.
//! It is the operation that was meant if its number is higher than the last before the intent.
//!
//! Keys of one's own are the best witness. Nobody else changes them, so what the map must say of them is known
//! before it is asked: a key that is there by the tally is not absent, one that is not there does not
//! exist, and a value that is replaced, removed or looked up is the one of the tally. Anything else
//! is a failure at once, and not an operation in vain.

use super::blocks::no_room;
use super::ledger::{Intent, Sum, Tally, What};
use super::stage::{COMMON_KEYS, SHARED_KEYS, Stage, common_key, own_key, shared_key};
use super::worker::Hands;
use outlive::heap::LocalHeap;
use outlive::recovery::OwnLog;
use outlive::structures::{Action, Exchange, InsertError, Outcome};
use outlive_memory::Offset;
use std::collections::BTreeMap;

/// Changes the map as `intent` says.
pub fn perform(hands: &Hands<'_>, intent: Intent) -> Result<bool, String> {
    let (map, heap) = (&hands.map, &hands.heap);
    match intent.what {
        What::Put => {
            let key = own_key(hands.worker, intent.which);
            let own = hands.own(intent.which);
            if own.is_some() {
                return match map.replace(heap, &key, &intent.much) {
                    Ok(old) => agree("the map replaced", hands, intent.which, old, own),
                    Err(error) => no_room(error),
                };
            }
            match map.insert(heap, &key, &intent.much) {
                Err(InsertError::Exists(there)) => {
                    agree("an insertion met", hands, intent.which, Some(there), own)
                }
                outcome => inserted(outcome),
            }
        }
        What::Remove => {
            let key = own_key(hands.worker, intent.which);
            let (old, own) = (map.remove(heap, &key), hands.own(intent.which));
            agree("the map removed", hands, intent.which, old, own)
        }
        What::Add => {
            let key = shared_key(intent.which);
            let Some(value) = map.get(heap, &key) else {
                return Err(format!("the shared key {} is gone", intent.which));
            };
            match map.compare_exchange(heap, &key, &value, &(value + 1)) {
                Ok(Exchange::Done) => Ok(true),
                Ok(Exchange::Different(_)) => Ok(false),
                Ok(Exchange::Absent) => Err(format!("the shared key {} is gone", intent.which)),
                Err(error) => no_room(error),
            }
        }
        What::InsertCommon => {
            let mine = u64::from(hands.worker);
            inserted(map.insert(heap, &common_key(intent.which), &mine))
        }
        What::RemoveCommon => Ok(map.remove(heap, &common_key(intent.which)).is_some()),
        other => unreachable!("{other:?} is nothing about the map"),
    }
}

/// Whether the map says of key `number` of one's own what the tally says; it is a failure if not.
fn agree(
    told: &str,
    hands: &Hands<'_>,
    number: u64,
    there: Option<u64>,
    own: Option<u64>,
) -> Result<bool, String> {
    if there == own {
        return Ok(true);
    }
    let key = own_key(hands.worker, number);
    Err(format!(
        "{told} {there:?} at the key {key:#x}, which only this worker changes and which holds {own:?} by its tally"
    ))
}

/// Looks whether key `number` of one's own holds what the tally says.
pub fn look(hands: &Hands<'_>, number: u64) -> Result<(), String> {
    let there = hands.map.get(&hands.heap, &own_key(hands.worker, number));
    agree("a look found", hands, number, there, hands.own(number)).map(drop)
}

fn inserted(outcome: Result<(), InsertError<u64>>) -> Result<bool, String> {
    match outcome {
        Ok(()) => Ok(true),
        Err(InsertError::Exists(_)) => Ok(false),
        Err(InsertError::Heap(error)) => no_room(error),
    }
}

/// Whether `intent`, which a former incarnation had, took effect.
pub fn ask(hands: &Hands<'_>, intent: Intent) -> Result<bool, String> {
    let inherited = OwnLog::of(hands.member).log().inherited();
    let inherited = inherited.map_err(|error| error.to_string())?;
    let meant: &[Action] = match intent.what {
        What::Put => &[Action::Insert, Action::Replace],
        What::Add => &[Action::Replace],
        What::InsertCommon => &[Action::Insert],
        _ => &[Action::Remove],
    };
    let told = match inherited.as_ref().and_then(Outcome::of) {
        Some(outcome) if outcome.sequence > intent.after => {
            if !meant.contains(&outcome.action) {
                return Err(format!("{intent:?} was inherited as {outcome:?}"));
            }
            outcome
                .took_effect
                .ok_or_else(|| format!("{intent:?} was inherited unsettled"))?
        }
        _ => false,
    };
    if matches!(intent.what, What::Put | What::Remove) {
        // The other witness.
        let key = own_key(hands.worker, intent.which);
        let there = hands.map.get(&hands.heap, &key);
        let before = hands.own(intent.which);
        let expected = match intent.what {
            _ if !told => before,
            What::Put => Some(intent.much),
            _ => None,
        };
        if there != expected {
            return Err(format!(
                "of {intent:?} the descriptor says {told}, and the map holds {there:?} where {before:?} was"
            ));
        }
    }
    Ok(told)
}

/// What is wrong with the map; adds its blocks to `blocks`.
pub fn audit(
    stage: Stage,
    heap: &LocalHeap<'_>,
    tallies: &[Tally],
    sum: &Sum,
    blocks: &mut Vec<Offset>,
) -> Vec<String> {
    let map = match stage.map() {
        Ok(map) => map,
        Err(what) => return vec![what],
    };
    let mut expected = BTreeMap::new();
    for (worker, tally) in (0..).zip(tallies) {
        for (number, value) in (0..).zip(tally.own) {
            if value != 0 {
                expected.insert(own_key(worker, number), value);
            }
        }
    }
    for number in 0..SHARED_KEYS {
        expected.insert(shared_key(number), sum.added[number as usize]);
    }
    let (mut wrong, mut found) = (Vec::new(), BTreeMap::new());
    for (key, value) in map.iter(heap) {
        if found.insert(key, value).is_some() {
            wrong.push(format!("the map has the key {key:#x} twice"));
        }
    }
    for number in 0..COMMON_KEYS {
        let [inserted, removed] = [&sum.inserted, &sum.removed].map(|of| of[number as usize]);
        let there = u64::from(found.remove(&common_key(number)).is_some());
        if inserted != removed + there {
            wrong.push(format!(
                "the common key {number} was inserted {inserted} times, removed {removed} times, and is \
                 there {there} times"
            ));
        }
    }
    for (key, value) in &expected {
        match found.remove(key) {
            Some(there) if there == *value => {}
            there => wrong.push(format!(
                "the key {key:#x} has the value {there:?}, and {value} was confirmed"
            )),
        }
    }
    for (key, value) in found {
        wrong.push(format!(
            "the key {key:#x} is in the map with {value}, and no insertion was confirmed"
        ));
    }
    let report = map.check();
    wrong.extend(
        report
            .findings
            .iter()
            .map(|finding| format!("map: {finding}")),
    );
    blocks.extend(report.blocks);
    wrong
}
