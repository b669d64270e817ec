//! Entries of a map: own keys (changed by one worker only), shared keys (every worker adds to their
//! values) and common keys (every worker inserts and removes them).
//!
//! The effect of an operation on the map is recorded in the descriptor that the next incarnation
//! inherits. A descriptor belongs to the intent if its number is higher than that of the last
//! operation before the intent.
//!
//! Own keys are the strictest check. No other worker changes them, so each answer of the map about
//! them is known beforehand: a key that exists by the tally is not absent, one that does not is not
//! found, and a value that is replaced, removed or looked up is that of the tally. Any other answer
//! is a failure at once, not an operation without effect.

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
                    agree("an insertion found", hands, intent.which, Some(there), own)
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
                return Err(format!("the shared key {} is missing", intent.which));
            };
            match map.compare_exchange(heap, &key, &value, &(value + 1)) {
                Ok(Exchange::Done) => Ok(true),
                Ok(Exchange::Different(_)) => Ok(false),
                Ok(Exchange::Absent) => Err(format!("the shared key {} is missing", intent.which)),
                Err(error) => no_room(error),
            }
        }
        What::InsertCommon => {
            let mine = u64::from(hands.worker);
            inserted(map.insert(heap, &common_key(intent.which), &mine))
        }
        What::RemoveCommon => Ok(map.remove(heap, &common_key(intent.which)).is_some()),
        other => unreachable!("{other:?} is not an operation on the map"),
    }
}

/// Returns `true` if the map's answer about own key `number` is the tally's, otherwise an error.
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
        "{told} {there:?} at the key {key:#x}, which only this worker changes; its tally says \
         {own:?}"
    ))
}

/// Checks that own key `number` holds the value that the tally says.
pub fn look(hands: &Hands<'_>, number: u64) -> Result<(), String> {
    let there = hands.map.get(&hands.heap, &own_key(hands.worker, number));
    agree("a look-up found", hands, number, there, hands.own(number)).map(drop)
}

fn inserted(outcome: Result<(), InsertError<u64>>) -> Result<bool, String> {
    match outcome {
        Ok(()) => Ok(true),
        Err(InsertError::Exists(_)) => Ok(false),
        Err(InsertError::Heap(error)) => no_room(error),
    }
}

/// Returns whether `intent`, inherited from a former incarnation, took effect.
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
                return Err(format!(
                    "{intent:?} was inherited with the wrong outcome {outcome:?}"
                ));
            }
            outcome
                .took_effect
                .ok_or_else(|| format!("{intent:?} was inherited without being settled"))?
        }
        _ => false,
    };
    if matches!(intent.what, What::Put | What::Remove) {
        // The second source: the map itself.
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
                "whether {intent:?} took effect: the descriptor says {told}, but the map holds \
                 {there:?}, and {before:?} before"
            ));
        }
    }
    Ok(told)
}

/// Returns the faults in the map, and adds its blocks to `blocks`.
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
                "the common key {number} was inserted {inserted} times, removed {removed} times, \
                 and occurs {there} times"
            ));
        }
    }
    for (key, value) in &expected {
        match found.remove(key) {
            Some(there) if there == *value => {}
            there => wrong.push(format!(
                "the key {key:#x} has the value {there:?}, but {value} was confirmed"
            )),
        }
    }
    for (key, value) in found {
        wrong.push(format!(
            "the key {key:#x} is in the map with {value}, but no insertion was confirmed"
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
