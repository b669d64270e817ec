//! Values come out of a map or a list as they went in; refusals; results in logs.

use crate::structures::{LIST, MAP, World, local, world};
use outlive::memory::{Memory, Native, Offset, Ordering};
use outlive::structures::{Action, CreateError, Datum, InsertError, List, Map, OpenError, Outcome};
use std::cell::Cell;

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
    // The number of buckets is after the header's checksum.
    let buckets = at + 64;
    let sound: u64 = memory.load(buckets, Ordering::Relaxed);
    for damaged in [40, 63, 64, 1000, u64::MAX] {
        memory.store(buckets, damaged, Ordering::Relaxed);
        assert_eq!(map.get(&heap, &1).as_deref(), Some(&b"another one"[..]));
        assert!(!map.check().is_clean());
    }
    memory.store(buckets, sound, Ordering::Relaxed);
    assert!(map.check().is_clean(), "{}", map.check());
    // The length of the value is after the first four words of its block.
    let blocks = map.check().blocks;
    let mut lengths = blocks.iter().map(|block| *block + 32);
    let length = lengths
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
    let found = |key: u64| map.place(&heap, &key);
    let mut places: Vec<_> = map.places(&heap).map(Some).collect();
    places.sort_unstable();
    let mut looked_up: Vec<_> = (0..MANY).map(found).collect();
    looked_up.sort_unstable();
    assert!(places == looked_up && places.iter().all(Option::is_some));
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
        format!("there is a map at {at}, not a list; open it as a map")
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

/// A value that allows `left` requests for its bytes, and no more.
#[derive(Debug, PartialEq)]
struct Moody {
    left: Cell<u32>,
    value: [u8; 8],
}

impl Moody {
    fn new(left: u32) -> Self {
        let (left, value) = (Cell::new(left), [7; 8]);
        Self { left, value }
    }
}

impl Datum for Moody {
    type Owned = Self;
    const BYTES: Option<u64> = Some(8);
    const FINGERPRINT: u64 = 77;

    fn describe() -> String {
        "moody".into()
    }

    fn bytes(&self) -> &[u8] {
        let left = self.left.get();
        assert!(left > 0, "on purpose");
        self.left.set(left - 1);
        &self.value
    }

    fn read<M: Memory>(_: M, _: Offset, _: u64) -> Self {
        Self::new(u32::MAX)
    }

    fn borrow(owned: &Self) -> &Self {
        owned
    }

    fn owned(&self) -> Self {
        Self::new(self.left.get())
    }
}

#[test]
fn a_thread_goes_on_whose_own_code_panicked_in_an_operation() {
    let pod = world(1 << 20);
    let member = pod.join(0);
    let heap = local(&pod, &member);
    let values = Map::<u64, Moody>::create_small(&heap, MAP).unwrap();
    values.insert(&heap, &0, &Moody::new(u32::MAX)).unwrap();
    let panics = |work: &dyn Fn()| {
        let work = std::panic::AssertUnwindSafe(work);
        std::panic::catch_unwind(work).is_err()
    };
    let mut panicked = 0;
    for left in 0..8 {
        let key = u64::from(left) + 1;
        let moody = || Moody::new(left);
        panicked += u32::from(panics(&|| values.insert(&heap, &key, &moody()).unwrap()));
        panicked += u32::from(panics(&|| {
            values.replace(&heap, &0, &moody()).unwrap();
        }));
        // For any outcome of that, the thread continues.
        values.insert(&heap, &(key + 100), &Moody::new(9)).unwrap();
        assert!(values.replace(&heap, &0, &Moody::new(9)).unwrap().is_some());
    }
    println!("{panicked} panics");
    assert!(panicked >= 4);
    assert!(values.check().is_clean(), "{}", values.check());
    drop(heap);
    pod.leave(member);
}
