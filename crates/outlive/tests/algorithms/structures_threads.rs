//! The map and many threads at once.

use crate::structures::{MAP, local, world};
use outlive::structures::Map;

/// Every thread inserts, changes, removes and reads the same few keys; every key's history adds up.
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
                    // All threads also look up the others' keys.
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
