//! The map and the list against the standard library's, with deaths; what they refuse; many threads at once.

mod pod;
mod structures;

use outlive::heap::LocalHeap;
use outlive::membership::Status;
use outlive::memory::{Memory, Native, Offset, Ordering, PersistenceDomain};
use outlive::structures::{
    Action, CreateError, Exchange, InsertError, List, Map, OpenError, OrderedDatum, Outcome,
};
use pod::{Countdown, cut};
use proptest::prelude::*;
use std::collections::BTreeMap;
use structures::{LIST, MAP, World, bytes_for, create, local};

fn world(region: u64) -> World<Native> {
    let memory = Native::leaked(bytes_for::<Native>(region), PersistenceDomain::Flushed);
    create(memory, region)
}

#[test]
fn entries_of_every_kind_come_out_as_they_went_in() {
    let pod = world(4 << 20);
    let member = pod.join(0);
    let heap = local(&pod, &member);
    let words = Map::<str, [u8]>::create(&heap, MAP).unwrap();
    let text = "a longer one than a word, and one with an odd length".repeat(9);
    let some = ["", "a", "eight by", "nine byte", text.as_str()];
    for (n, key) in some.iter().enumerate() {
        assert_eq!(words.get(&heap, key), None);
        assert_eq!(words.insert(&heap, key, &vec![n as u8; 7 * n]), Ok(()));
    }
    for (n, key) in some.iter().enumerate() {
        assert_eq!(words.get(&heap, key), Some(vec![n as u8; 7 * n]));
        let longer = vec![7; 100 - n];
        assert_eq!(
            words.replace(&heap, key, &longer).unwrap(),
            Some(vec![n as u8; 7 * n])
        );
        assert_eq!(words.get(&heap, key), Some(longer));
    }
    assert_eq!(words.remove(&heap, "a"), Some(vec![7; 99]));
    assert_eq!(words.replace(&heap, "a", b"x").unwrap(), None);
    assert_eq!(words.remove(&heap, "a"), None);
    assert_eq!(words.len(), 4);
    assert!(words.check().is_clean(), "{}", words.check());

    let squares = List::<i32, [u16; 3]>::create(&heap, LIST).unwrap();
    for n in [3, -7, 0, 11, -2] {
        squares.insert(&heap, &n, &[n as u16, 1, 2]).unwrap();
    }
    let keys: Vec<i32> = squares.iter(&heap).map(|(key, _)| key).collect();
    assert_eq!(keys, [-7, -2, 0, 3, 11]);
    assert_eq!(squares.get(&heap, &-7), Some([-7i16 as u16, 1, 2]));
    assert!(squares.check().is_clean(), "{}", squares.check());
}

#[test]
fn damage_that_no_checksum_covers_overflows_nothing() {
    let pod = world(4 << 20);
    let member = pod.join(0);
    let heap = local(&pod, &member);
    let map = Map::<u64, [u8], Native>::create(&heap, MAP).unwrap();
    map.insert(&heap, &1, b"one").unwrap();
    map.replace(&heap, &1, b"another one").unwrap();
    let (memory, at) = (pod.heap.memory(), Offset::from_raw(word(&pod, MAP)));
    // The number of buckets stands behind the header's checksum.
    let buckets = at + 64;
    let sound: u64 = memory.load(buckets, Ordering::Relaxed);
    for damaged in [40, 63, 64, 1000, u64::MAX] {
        memory.store(buckets, damaged, Ordering::Relaxed);
        assert_eq!(map.get(&heap, &1).as_deref(), Some(&b"another one"[..]));
        assert!(!map.check().is_clean());
    }
    memory.store(buckets, sound, Ordering::Relaxed);
    assert!(map.check().is_clean(), "{}", map.check());
    // The length of the value stands behind the four first words of its block.
    let blocks = map.check().blocks;
    let length = blocks
        .iter()
        .map(|block| *block + 32)
        .rfind(|at| memory.load::<u64>(*at, Ordering::Relaxed) == b"another one".len() as u64)
        .unwrap();
    for damaged in [u64::MAX, u64::MAX - 7, u64::MAX - 40, 1 << 63] {
        memory.store(length, damaged, Ordering::Relaxed);
        let report = map.check();
        assert_eq!(report.findings.len(), 1, "{report}");
    }
}

fn word(pod: &World<Native>, at: Offset) -> u64 {
    pod.heap.memory().load(at, Ordering::Acquire)
}

#[test]
fn strings_are_sorted_as_strings() {
    let pod = world(1 << 20);
    let member = pod.join(0);
    let heap = local(&pod, &member);
    let list = List::<str, u64>::create(&heap, LIST).unwrap();
    let mut words = vec![
        "oak",
        "ash",
        "",
        "a",
        "ashes of",
        "ashes of oak",
        "ashes of ash",
        "ashes of ashes",
        "zz",
        "ashes o",
    ];
    for (n, word) in (0..).zip(&words) {
        list.insert(&heap, word, &n).unwrap();
    }
    assert_eq!(
        list.insert(&heap, "ashes of", &9),
        Err(InsertError::Exists(4))
    );
    words.sort_unstable();
    let found: Vec<String> = list.iter(&heap).map(|(word, _)| word).collect();
    assert_eq!(found, words);
}

#[test]
fn a_map_of_many_is_whole_when_it_has_grown() {
    let pod = world(64 << 20);
    let member = pod.join(0);
    let heap = local(&pod, &member);
    let map = Map::<u64, u64>::create(&heap, MAP).unwrap();
    const MANY: u64 = 100_000;
    for key in 0..MANY {
        assert_eq!(map.insert(&heap, &key, &(key * 3)), Ok(()));
    }
    assert_eq!(map.len(), MANY);
    for key in 0..MANY {
        assert_eq!(map.get(&heap, &key), Some(key * 3));
        assert_eq!(
            map.insert(&heap, &key, &1),
            Err(InsertError::Exists(key * 3))
        );
    }
    assert_eq!(map.get(&heap, &MANY), None);
    let mut keys: Vec<u64> = map.iter(&heap).map(|(key, _)| key).collect();
    keys.sort_unstable();
    assert!(keys.into_iter().eq(0..MANY));
    let report = map.check();
    println!("{report}");
    assert!(report.is_clean() && report.entries == MANY && report.buckets > MANY / 2);
    for key in 0..MANY {
        assert_eq!(map.remove(&heap, &key), Some(key * 3));
    }
    assert!(map.is_empty() && map.iter(&heap).next().is_none());
    assert!(map.check().is_clean());
}

#[test]
fn what_is_not_wanted_is_refused() {
    let pod = world(1 << 20);
    let member = pod.join(0);
    let heap = local(&pod, &member);
    let map = Map::<u64, u64>::create(&heap, MAP).unwrap();
    let again = Map::<u64, u64>::create(&heap, MAP);
    assert!(
        matches!(again, Err(CreateError::CellOccupied { holds, .. }) if holds == map.offset().raw())
    );
    let same = Map::<u64, u64>::open_or_create(&heap, MAP).unwrap();
    assert_eq!(same.offset(), map.offset());
    let open = |at| Map::<u64, u64>::open(pod.memory, at).map(drop).unwrap_err();
    assert!(matches!(open(Offset::new(0)), OpenError::NotOne { .. }));
    assert!(matches!(
        open(Offset::new(1 << 40)),
        OpenError::Outside { .. }
    ));
    assert!(matches!(open(map.offset() + 4), OpenError::Outside { .. }));
    let at = map.offset();
    let other = Map::<u64, i64>::open(pod.memory, at).map(drop).unwrap_err();
    assert!(other.to_string().contains("values"), "{other}");
    let other = Map::<str, u64>::open(pod.memory, at).map(drop).unwrap_err();
    assert!(other.to_string().contains("keys"), "{other}");
    let other = List::<u64, u64>::open(pod.memory, at)
        .map(drop)
        .unwrap_err();
    assert_eq!(
        other.to_string(),
        format!("there is a map at {at}, not a list")
    );
    let seed: u64 = pod.memory.load(at + 16, Ordering::Relaxed);
    pod.memory.store(at + 16, seed ^ 1, Ordering::Relaxed);
    assert!(matches!(open(at), OpenError::Checksum { .. }));
}

#[test]
fn a_full_heap_is_an_error_and_the_map_goes_on() {
    let pod = world(8 * (32 << 10));
    let member = pod.join(0);
    let heap = local(&pod, &member);
    let map = Map::<u64, [u64; 20]>::create(&heap, MAP).unwrap();
    let mut entries = 0;
    let error = loop {
        match map.insert(&heap, &entries, &[entries; 20]) {
            Ok(()) => entries += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, InsertError::Heap(_)), "{error:?}");
    assert!(entries > 500, "{entries}");
    assert!((0..entries).all(|key| map.get(&heap, &key) == Some([key; 20])));
    assert_eq!(map.remove(&heap, &0), Some([0; 20]));
    heap.reclaim();
    assert_eq!(map.insert(&heap, &entries, &[1; 20]), Ok(()));
    assert!(map.check().is_clean(), "{}", map.check());
}

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

/// What both structures can do.
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

/// The steps by a member who dies when a step says so: what it did is all or nothing, and its heir knows which.
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

/// Every thread inserts, changes, removes and looks at the same few keys; every key's history adds up.
#[test]
fn threads_that_want_the_same_keys_lose_nothing() {
    const THREADS: u32 = 3;
    const ROUNDS: u64 = 20_000;
    const KEYS: u64 = 16;
    let pod = world(16 << 20);
    let first = pod.join(0);
    let map = Map::<u64, u64>::create(&local(&pod, &first), MAP).unwrap();
    pod.leave(first);
    let totals = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|id| {
                let pod = &pod;
                scope.spawn(move || {
                    let member = pod.join(id);
                    let heap = local(pod, &member);
                    let (mut inserted, mut removed, mut added, mut taken) =
                        (0u64, 0u64, 0u64, 0u64);
                    let mut random = 0x9E37_79B9u64 + u64::from(id);
                    for round in 0..ROUNDS {
                        random = random
                            .wrapping_mul(6364136223846793005)
                            .wrapping_add(1442695040888963407);
                        let key = random >> 33 & (KEYS - 1);
                        match round % 4 {
                            0 => inserted += u64::from(map.insert(&heap, &key, &0).is_ok()),
                            1 | 2 => {
                                added += u64::from(
                                    map.update(&heap, &key, |n| n + 1).unwrap().is_some(),
                                );
                            }
                            _ => {
                                if let Some(value) = map.remove(&heap, &key) {
                                    removed += 1;
                                    taken += value;
                                }
                            }
                        }
                        if round % 512 == 0 {
                            assert!(map.iter(&heap).count() as u64 <= KEYS);
                        }
                    }
                    drop(heap);
                    pod.leave(member);
                    (inserted, removed, added, taken)
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect::<Vec<_>>()
    });
    let sum = |pick: fn(&(u64, u64, u64, u64)) -> u64| totals.iter().map(pick).sum::<u64>();
    let member = pod.join(0);
    let heap = local(&pod, &member);
    let left: Vec<(u64, u64)> = map.iter(&heap).collect();
    assert_eq!(sum(|t| t.0) - sum(|t| t.1), left.len() as u64);
    assert_eq!(
        sum(|t| t.2),
        sum(|t| t.3) + left.iter().map(|(_, value)| value).sum::<u64>()
    );
    assert_eq!(map.len(), left.len() as u64);
    assert!(map.check().is_clean(), "{}", map.check());
    println!("{totals:?}, {} left", left.len());
}

/// Threads that insert different keys while the map grows under them.
#[test]
fn a_map_grows_under_threads() {
    const THREADS: u64 = 3;
    const EACH: u64 = 30_000;
    let pod = world(64 << 20);
    let first = pod.join(3);
    let map = Map::<u64, u64>::create(&local(&pod, &first), MAP).unwrap();
    std::thread::scope(|scope| {
        for id in 0..THREADS {
            let pod = &pod;
            scope.spawn(move || {
                let member = pod.join(id as u32);
                let heap = local(pod, &member);
                for key in (id..THREADS * EACH).step_by(THREADS as usize) {
                    map.insert(&heap, &key, &!key).unwrap();
                    assert_eq!(map.get(&heap, &key), Some(!key));
                    // Everybody also wants what the others insert.
                    let others = key / 2;
                    assert!(map.get(&heap, &others).is_none_or(|value| value == !others));
                }
                drop(heap);
                pod.leave(member);
            });
        }
    });
    let heap = local(&pod, &first);
    assert!((0..THREADS * EACH).all(|key| map.get(&heap, &key) == Some(!key)));
    let report = map.check();
    assert!(
        report.is_clean() && report.entries == THREADS * EACH,
        "{report}"
    );
}

/// Units of work, each of which has one result, are done again by whoever comes after a death: the results are
/// those of a run in which nobody died.
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

#[test]
fn a_log_says_what_was_done() {
    let pod = world(1 << 20);
    let member = pod.join(0);
    let heap = local(&pod, &member);
    let last = || Outcome::of(&pod.logs.of(0).operation().unwrap().unwrap()).unwrap();
    let map = Map::<u64, u64>::create(&heap, MAP).unwrap();
    assert_eq!(
        (last().action, last().took_effect),
        (Action::Create, Some(true))
    );
    map.insert(&heap, &1, &2).unwrap();
    assert_eq!(
        (last().action, last().structure),
        (Action::Insert, map.offset())
    );
    map.replace(&heap, &1, &3).unwrap();
    assert_eq!(last().action, Action::Replace);
    map.remove(&heap, &1).unwrap();
    assert_eq!(
        (last().action, last().took_effect),
        (Action::Remove, Some(true))
    );
}
