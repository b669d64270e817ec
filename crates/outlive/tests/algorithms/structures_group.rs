//! A group of buckets as large as in a real map. Its claimant stalls at any access in the middle of
//! opening it, or dies there: no member waits for it, and a whole group or none is left.

use crate::pod::{Countdown, cut, declared, points_of};
use crate::structures::{MAP, World, bytes_for, create, local, map};
use outlive::heap::LocalHeap;
use outlive::structures::{InsertError, Map, OpenBucketsPoint};

/// The number of buckets that are opened together in a real map.
const GROUP: u64 = 32;
const REGION: u64 = 16 * (32 << 10);
/// The first key that does not exist when the claimant begins.
const OTHERS: u64 = 1 << 32;

/// An empty map of real size.
fn world(memory: Countdown) -> World<Countdown> {
    memory.reset();
    let world = create(memory, REGION);
    (0..4).for_each(|id| drop(world.join(id)));
    let maker = world.act_as(3);
    Map::<u64, u64, _>::create(&local(&world, &maker), MAP).unwrap();
    world
}

fn insert(world: &World<Countdown>, heap: &LocalHeap<'_, Countdown>, key: u64) {
    map(world.memory).insert(heap, &key, &(key * 10)).unwrap();
}

fn fill(world: &World<Countdown>, keys: u64) {
    let member = world.act_as(3);
    let heap = local(world, &member);
    (0..keys).for_each(|key| insert(world, &heap, key));
}

/// Returns the first key that opens another whole group, and the number of buckets before.
fn opener(world: &World<Countdown>) -> (u64, u64) {
    let member = world.act_as(3);
    let heap = local(world, &member);
    let open = || map(world.memory).check().buckets;
    let mut before = open();
    for key in 0..1000 {
        let points = points_of(|| insert(world, &heap, key));
        let after = open();
        let adds_a_page = points
            .iter()
            .any(|(operation, _)| *operation == "map.add_page");
        if before >= GROUP && after == before + GROUP && !adds_a_page {
            assert!(declared::<OpenBucketsPoint>().is_subset(&points));
            return (key, before);
        }
        before = after;
    }
    panic!("no group was opened");
}

/// Asserts that the map is sound, and has exactly the keys `mine` below [`OTHERS`] and `others`
/// keys from there on.
fn demand(world: &World<Countdown>, mine: &[u64], others: u64) {
    let map = map(world.memory);
    let report = map.check();
    assert!(report.is_clean(), "{report}");
    let member = world.act_as(3);
    let heap = local(world, &member);
    let mut found: Vec<(u64, u64)> = map.iter(&heap).collect();
    found.sort_unstable();
    let keys = mine.iter().copied().chain(OTHERS..OTHERS + others);
    let wanted: Vec<_> = keys.map(|key| (key, key * 10)).collect();
    assert!(found == wanted, "{found:?}");
    for (key, value) in wanted {
        assert_eq!(map.get(&heap, &key), Some(value));
    }
}

/// Returns the claimant's keys, including the one that it was about to insert if that exists.
fn mine(world: &World<Countdown>, keys: u64) -> Vec<u64> {
    let member = world.act_as(3);
    let heap = local(world, &member);
    let last = map(world.memory).get(&heap, &keys).is_some();
    (0..keys + u64::from(last)).collect()
}

/// Cuts the insertion that opens a group at every `stride`-th access, perhaps only while it opens
/// the group, and lets `then` check the result. Returns the number of cuts.
fn at_every_access(
    stride: usize,
    only_in_the_group: bool,
    then: impl Fn(&World<Countdown>, u64, u64),
) -> u64 {
    let memory = Countdown::of_size(bytes_for::<Countdown>(REGION));
    let (key, open) = opener(&world(memory));
    let mut cuts = 0;
    for accesses in (0..).step_by(stride) {
        let world = world(memory);
        fill(&world, key);
        let victim = world.act_as(0);
        let mut returned = false;
        let points = points_of(|| {
            returned = cut(accesses, || insert(&world, &local(&world, &victim), key)).is_some();
        });
        let passed = |point| points.contains(&point);
        if only_in_the_group {
            // The claim is made, and nothing else is held: otherwise others would wait for a lock,
            // further on.
            match (
                passed(("map.open_buckets", "Claimed")),
                passed(("log.operation", "Finished")),
            ) {
                (false, _) => continue,
                (true, true) => break,
                (true, false) => {}
            }
        }
        then(&world, key, open);
        cuts += 1;
        if returned {
            break;
        }
    }
    cuts
}

#[test]
fn a_group_whose_claimant_dies_is_opened_whole_or_not_at_all() {
    let cuts = at_every_access(1, false, |world, keys, open| {
        world.declare_dead(0);
        world.recoverers.recover_all(&world.act_as(1)).unwrap();
        let now = map(world.memory).check().buckets;
        assert!(now == open || now == open + GROUP, "{open}, then {now}");
        demand(world, &mine(world, keys), 0);
    });
    println!("{cuts} cuts");
    assert!(cuts > 5 * GROUP, "{cuts}");
}

#[test]
fn nobody_waits_for_a_claimant_that_stands_still() {
    const OTHERS_KEYS: u64 = 300;
    let cuts = at_every_access(7, true, |world, keys, _| {
        // It may continue at any time, as far as others know.
        {
            let other = world.act_as(1);
            let (map, heap) = (map(world.memory), local(world, &other));
            for key in 0..keys {
                assert_eq!(map.get(&heap, &key), Some(key * 10));
                let there = InsertError::Exists(key * 10);
                assert_eq!(map.insert(&heap, &key, &0), Err(there));
            }
            (OTHERS..OTHERS + OTHERS_KEYS).for_each(|key| insert(world, &heap, key));
            for key in 0..keys {
                assert_eq!(map.remove(&heap, &key), Some(key * 10));
                insert(world, &heap, key);
            }
        }
        demand(world, &mine(world, keys), OTHERS_KEYS);
        // It never continues, and its group is opened for it.
        world.declare_dead(0);
        world.recoverers.recover_all(&world.act_as(2)).unwrap();
        let now = map(world.memory).check().buckets;
        assert!(now.is_multiple_of(GROUP), "{now}");
        demand(world, &mine(world, keys), OTHERS_KEYS);
    });
    println!("{cuts} cuts");
    assert!(cuts > GROUP, "{cuts}");
}
