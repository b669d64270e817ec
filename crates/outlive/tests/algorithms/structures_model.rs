//! The map and the list against the standard library's, with deaths; and the check's reports of any
//! damage.

use crate::pod::{Countdown, cut};
use crate::structures::{LIST, MAP, bytes_for, create, local, world};
use outlive::heap::LocalHeap;
use outlive::membership::Status;
use outlive::memory::{Memory, Ordering};
use outlive::structures::{Exchange, InsertError, List, Map, OrderedDatum, Outcome};
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
enum Step {
    Insert(u64, u64),
    Remove(u64),
    Replace(u64, u64),
    Exchange(u64, u64, u64),
    Add(u64, u64),
    Get(u64),
    Iterate,
}

fn steps() -> impl Strategy<Value = Vec<(Step, Option<u64>)>> {
    let key = || 0u64..40;
    let value = || 0u64..4;
    let step = prop_oneof![
        6 => (key(), value()).prop_map(|(key, value)| Step::Insert(key, value)),
        3 => key().prop_map(Step::Remove),
        2 => (key(), value()).prop_map(|(key, value)| Step::Replace(key, value)),
        2 => (key(), value(), value()).prop_map(|(key, old, new)| Step::Exchange(key, old, new)),
        2 => (key(), value()).prop_map(|(key, value)| Step::Add(key, value)),
        1 => key().prop_map(Step::Get),
        1 => Just(Step::Iterate),
    ];
    // One step in four is cut short.
    let death = prop_oneof![3 => Just(None), 1 => (0u64..400).prop_map(Some)];
    prop::collection::vec((step, death), 0..150)
}

type Model = BTreeMap<u64, u64>;

/// The operations of both structures.
trait Both<M: Memory> {
    fn step(&self, heap: &LocalHeap<'_, M>, step: &Step, model: &Model);
    fn entries(&self, heap: &LocalHeap<'_, M>) -> Model;
    fn assert_sound(&self);
}

macro_rules! both {
    ($name:ident) => {
        impl<M: Memory> Both<M> for $name<u64, u64, M> {
            fn step(&self, heap: &LocalHeap<'_, M>, step: &Step, model: &Model) {
                match *step {
                    Step::Insert(key, value) => {
                        let expected = model
                            .get(&key)
                            .map_or(Ok(()), |&there| Err(InsertError::Exists(there)));
                        assert_eq!(self.insert(heap, &key, &value), expected);
                    }
                    Step::Remove(key) => {
                        assert_eq!(self.remove(heap, &key), model.get(&key).copied())
                    }
                    Step::Replace(key, value) => {
                        let before = self.replace(heap, &key, &value).unwrap();
                        assert_eq!(before, model.get(&key).copied());
                    }
                    Step::Exchange(key, old, new) => {
                        let expected = match model.get(&key) {
                            None => Exchange::Absent,
                            Some(&there) if there == old => Exchange::Done,
                            Some(&there) => Exchange::Different(there),
                        };
                        assert_eq!(
                            self.compare_exchange(heap, &key, &old, &new).unwrap(),
                            expected
                        );
                    }
                    Step::Add(key, value) => {
                        let before = self.update(heap, &key, |there| there + value).unwrap();
                        assert_eq!(before, model.get(&key).copied());
                    }
                    Step::Get(key) => {
                        assert_eq!(self.get(heap, &key), model.get(&key).copied());
                        assert_eq!(self.contains(heap, &key), model.contains_key(&key));
                    }
                    Step::Iterate => assert_eq!(&self.entries(heap), model),
                }
            }
            fn entries(&self, heap: &LocalHeap<'_, M>) -> Model {
                let entries: Vec<(u64, u64)> = self.iter(heap).collect();
                let model: Model = entries.iter().copied().collect();
                assert_eq!(entries.len(), model.len(), "an entry came twice");
                model
            }
            fn assert_sound(&self) {
                let report = self.check();
                assert!(report.is_clean(), "{report}");
            }
        }
    };
}
both!(Map);
both!(List);

fn applied(step: &Step, model: &Model) -> Model {
    let mut after = model.clone();
    match *step {
        Step::Insert(key, value) => drop(after.entry(key).or_insert(value)),
        Step::Remove(key) => drop(after.remove(&key)),
        Step::Get(_) | Step::Iterate => {}
        Step::Replace(key, _) | Step::Exchange(key, ..) | Step::Add(key, _) => {
            if let Some(there) = after.get_mut(&key) {
                *there = match *step {
                    Step::Replace(_, value) => value,
                    Step::Exchange(_, old, new) if *there == old => new,
                    Step::Add(_, value) => *there + value,
                    _ => *there,
                };
            }
        }
    }
    after
}

/// Runs the steps on a member that dies when a step says so: each of its steps happens entirely or
/// not at all, and its successor knows which.
fn follows_the_model<S: Both<Countdown>>(
    steps: &[(Step, Option<u64>)],
    make: impl FnOnce(&LocalHeap<'_, Countdown>) -> S,
) {
    const BYTES: u64 = 12 * (32 << 10);
    let pod = create(Countdown::of_size(bytes_for::<Countdown>(BYTES)), BYTES);
    let mut member = pod.join(0);
    let recoverer = pod.join(1);
    let structure = make(&local(&pod, &member));
    let mut model = Model::new();
    for (step, death) in steps {
        let before = pod
            .logs
            .of(0)
            .operation()
            .unwrap()
            .map_or(0, |last| last.sequence);
        let survived = {
            let heap = local(&pod, &member);
            let survived = cut(death.unwrap_or(u64::MAX), || {
                structure.step(&heap, step, &model)
            });
            if survived.is_none() {
                std::mem::forget(heap);
            }
            survived
        };
        let after = applied(step, &model);
        if survived.is_some() {
            model = after;
            continue;
        }
        pod.declare_dead(0);
        pod.recoverers.recover(&recoverer, 0).unwrap();
        assert_eq!(pod.status(0), Status::Recovered);
        member = pod.join(0);
        let heap = local(&pod, &member);
        let now = structure.entries(&heap);
        let last = pod.logs.of(0).inherited().unwrap();
        let outcome = last
            .as_ref()
            .filter(|last| last.sequence > before)
            .and_then(Outcome::of);
        let took_effect = outcome.is_some_and(|outcome| outcome.took_effect == Some(true));
        let expected = if took_effect { &after } else { &model };
        assert_eq!(&now, expected, "{step:?} {outcome:?}");
        model = now;
    }
    structure.assert_sound();
    let heap = local(&pod, &member);
    assert_eq!(structure.entries(&heap), model);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    #[test]
    fn the_map_follows_the_model_whoever_dies(steps in steps()) {
        follows_the_model(&steps, |heap| Map::create_small(heap, MAP).unwrap());
    }

    #[test]
    fn the_list_follows_the_model_whoever_dies(steps in steps()) {
        follows_the_model(&steps, |heap| List::create(heap, LIST).unwrap());
    }

    #[test]
    fn numbers_are_sorted_as_numbers(a in any::<i64>(), b in any::<i64>()) {
        prop_assert_eq!(a.cmp(&b), a.rank().cmp(&b.rank()));
        prop_assert_eq!((a as i8).cmp(&(b as i8)), (a as i8).rank().cmp(&(b as i8).rank()));
        prop_assert_eq!((a as u32).cmp(&(b as u32)), (a as u32).rank().cmp(&(b as u32).rank()));
    }

    #[test]
    fn a_check_of_damage_finds_it_or_nothing_and_ends(
        changes in prop::collection::vec((0u64..1 << 14, any::<u64>(), any::<bool>()), 1..6),
    ) {
        let pod = world(8 * (32 << 10));
        let member = pod.join(0);
        let heap = local(&pod, &member);
        let map = Map::<u64, u64>::create_small(&heap, MAP).unwrap();
        for key in 0..20 {
            map.insert(&heap, &key, &key).unwrap();
            map.replace(&heap, &key, &(key + 1)).unwrap();
        }
        let blocks = map.blocks();
        for (pick, word, local) in changes {
            // A word of one of its blocks becomes any word, or an offset near by.
            let block = blocks[1 + pick as usize % (blocks.len() - 1)];
            let word = if local { blocks[word as usize % blocks.len()].raw() + word % 64 } else { word };
            pod.memory.store(block + (pick % 8) * 8, word, Ordering::Relaxed);
        }
        println!("{}", map.check());
    }
}

/// Units of work with one result each are re-executed by a survivor after a death: the results are
/// those of a run without deaths.
#[test]
fn results_of_units_that_are_done_again_are_there_once() {
    const UNITS: u64 = 60;
    const BYTES: u64 = 12 * (32 << 10);
    let pod = create(Countdown::of_size(bytes_for::<Countdown>(BYTES)), BYTES);
    let recoverer = pod.join(1);
    let mut member = pod.join(0);
    let map = Map::<u64, str, Countdown>::create_small(&local(&pod, &member), MAP).unwrap();
    let result = |unit: u64| "x".repeat(unit as usize % 9);
    let (mut deaths, mut life) = (0, 50);
    loop {
        let heap = local(&pod, &member);
        let done = cut(life, || {
            for unit in 0..UNITS {
                match map.insert(&heap, &unit, &result(unit)) {
                    Ok(()) => {}
                    Err(InsertError::Exists(there)) => assert_eq!(there, result(unit)),
                    Err(error) => panic!("{error}"),
                }
            }
        });
        if done.is_some() {
            break;
        }
        std::mem::forget(heap);
        deaths += 1;
        life += 37;
        pod.declare_dead(0);
        pod.recoverers.recover(&recoverer, 0).unwrap();
        member = pod.join(0);
    }
    let heap = local(&pod, &member);
    let mut results: Vec<_> = map.iter(&heap).collect();
    results.sort();
    assert!(
        results
            .into_iter()
            .eq((0..UNITS).map(|unit| (unit, result(unit))))
    );
    println!("{deaths} deaths");
    assert!(deaths > 10);
}
