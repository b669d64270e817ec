//! The list and the map, with threads that compete for the same entry, and with deaths; and broken
//! variants, each of which an exploration must find.

use super::fixture::{LIST, MAP, World, bytes_for, create, list, local, map, pod as pod_of};
use crate::pod::DATA;
use outlive::heap::LocalHeap;
use outlive::structures::{Action, List, Map, Outcome, Report};
use outlive_memory::{Memory, Native, Offset, Ordering, PersistenceDomain};
use outlive_prove::proof::{Proof, Reach};
use outlive_prove::schedule::{self, Bounds, End, Proving, Scenario, Scheduled};
use outlive_prove::weakened::{Weakened, Weakness};
use std::sync::OnceLock;

/// The scenarios of this file.
pub fn all() -> Vec<Proof> {
    let both = |scenario: fn() -> Scenario, deaths, quick_deaths| {
        let every = |preemptions, deaths| bounds().preemptions(preemptions).deaths(deaths);
        let drawn = bounds().preemptions(4).stale_reads(3).deaths(deaths);
        [
            Proof {
                scenario: scenario(),
                quick: Reach::Every(every(1, quick_deaths)),
                full: Reach::Every(every(2, 1).stale_reads(1).executions(5_000_000)),
            },
            Proof {
                scenario: scenario(),
                quick: Reach::Drawn(drawn.clone(), 1, 700),
                full: Reach::Drawn(drawn, 1, 500_000),
            },
        ]
    };
    [
        both(two_openers, 2, 0),
        both(two_inserters, 2, 1),
        both(insert_and_remove, 2, 1),
        both(two_removers, 2, 1),
        both(remove_and_replace, 2, 1),
        both(two_replacers, 2, 1),
        both(two_recoverers, 2, 1),
        both(|| across_eras(Walker::Looks, Sight::Whole), 2, 0),
        both(|| across_eras(Walker::Inserts, Sight::Whole), 2, 0),
        both(two_recoverers_of_a_destruction, 2, 1),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Returns scenarios that must fail within these bounds, each with a part of the message.
pub fn broken() -> Vec<(Scenario, Bounds, &'static str)> {
    vec![
        (
            relaxed_link(),
            bounds().preemptions(1).stale_reads(2),
            "came out as",
        ),
        (
            retires_without_winning(),
            bounds().preemptions(1),
            "is reached 2 times",
        ),
        (
            across_eras(Walker::Looks, Sight::Stale),
            bounds().preemptions(1),
            "was read after it was freed",
        ),
        (
            across_eras(Walker::Inserts, Sight::Stale),
            bounds().preemptions(1),
            // The node is linked behind one that has been freed.
            "has leaked",
        ),
    ]
}

fn bounds() -> Bounds {
    Bounds::default()
        .preemptions(2)
        .stale_reads(0)
        .deaths(0)
        .executions(200_000)
}

/// Three members with a slab of each size each.
const REGION: u64 = 16 * (32 << 10);
const KEY: u64 = 5;

type Memories = Weakened<Scheduled>;

fn sound(m: Scheduled) -> Memories {
    Weakened::sound(m)
}

/// Returns the handles. Each execution has its own memory behind them.
fn world() -> &'static World<Memories> {
    static WORLD: OnceLock<World<Memories>> = OnceLock::new();
    WORLD.get_or_init(|| pod_of(sound(Scheduled::handle())))
}

/// Runs `work` with the heap handle of member `id`. A thread's handle ends with the thread: its
/// orderly end is the subject of another proof.
fn with_heap<R>(id: u32, work: impl FnOnce(&LocalHeap<'_, Memories>) -> R) -> R {
    let member = world().act_as(id);
    let heap = local(world(), &member);
    let result = work(&heap);
    if id < 3 {
        std::mem::forget(heap);
    }
    result
}

/// Prepares the memory: a list that has the key or not, and an empty map of two buckets.
fn prepare<M: Memory>(m: M, has_key: bool) {
    let world = create(m, REGION);
    for id in 0..4 {
        let member = world.join(id);
        let heap = local(&world, &member);
        // A slab of each size that it will need.
        for (hand, bytes) in [(2, 64), (3, 48)] {
            heap.allocate_into(bytes, heap.pending_cell(hand)).unwrap();
        }
        for hand in [2, 3] {
            heap.free_from(heap.pending_cell(hand), 0).unwrap();
        }
    }
    let member = world.act_as(3);
    let heap = local(&world, &member);
    let list = List::<u64, u64, M>::create(&heap, LIST).unwrap();
    if has_key {
        list.insert(&heap, &KEY, &1).unwrap();
        list.replace(&heap, &KEY, &50).unwrap();
    }
    let map = Map::<u64, u64, M>::create_roomy(&heap, MAP).unwrap();
    m.store(map.offset() + 64, 1u64, Ordering::Relaxed);
}

/// A scenario with threads that act as members, by number; number 3 recovers the rest.
fn members(name: &str, has_key: bool) -> Scenario {
    schedule::scenario(name)
        .memory(bytes_for::<Native>(REGION))
        .prepare(move |m| prepare(sound(m), has_key))
        .on_death(|_, host| world().declare_dead(host as u32))
}

/// Returns the last operation of `id`, if it is one on a structure.
fn last(id: u32) -> Option<Outcome> {
    let last = world().logs.of(id).operation().unwrap();
    last.as_ref().and_then(Outcome::of)
}

/// Returns whether the last operation of `id` is this action on a structure.
fn began(id: u32, action: Action) -> bool {
    last(id).is_some_and(|last| last.action == action)
}

/// Returns whether it is, and took effect.
fn did(id: u32, action: Action) -> bool {
    began(id, action) && last(id).is_some_and(|last| last.took_effect == Some(true))
}

fn demand(report: &Report) {
    assert!(report.is_clean(), "{report}");
}

/// Recovers all dead members, as member 3, asserts that everything is whole, and returns the value.
fn settled(m: Scheduled) -> Option<u64> {
    let entries = all_settled(m);
    let value = entries.iter().find(|entry| entry.0 == KEY);
    assert_eq!(entries.len(), usize::from(value.is_some()));
    value.map(|entry| entry.1)
}

/// Does the same, and returns all entries of the list.
fn all_settled(m: Scheduled) -> Vec<(u64, u64)> {
    let (m, world) = (sound(m), world());
    world.recoverers.recover_all(&world.act_as(3)).unwrap();
    let (list, map) = (list(m), map(m));
    let entries: Vec<(u64, u64)> = with_heap(3, |heap| list.iter(heap).collect());
    let (list, map) = (list.check(), map.check());
    demand(&list);
    demand(&map);
    assert_eq!(list.entries, entries.len() as u64);
    let retired = (0..4).flat_map(|id| world.heap.retired(world.logs.of(id)));
    let blocks = list.blocks.into_iter().chain(map.blocks).chain(retired);
    let whole = world.heap.check_reachable(blocks);
    assert!(whole.is_clean(), "{whole}");
    entries
}

fn insert(m: Scheduled, id: u32) {
    let m = sound(m);
    let value = 50 + u64::from(id);
    let _ = with_heap(id, |heap| list(m).insert(heap, &KEY, &value));
}

fn remove(m: Scheduled, id: u32) {
    let m = sound(m);
    if let Some(value) = with_heap(id, |heap| list(m).remove(heap, &KEY)) {
        assert!((50..60).contains(&value), "{value} was removed");
    }
}

fn replace(m: Scheduled, id: u32) {
    let m = sound(m);
    let value = 50 + u64::from(id);
    with_heap(id, |heap| list(m).replace(heap, &KEY, &value)).unwrap();
}

/// One of two threads inserts.
fn two_inserters() -> Scenario {
    members("two inserters of a key", false)
        .mortal("t0", |m| insert(m, 0))
        .mortal("t1", |m| insert(m, 1))
        .check(|m, end: &End<()>| {
            let value = settled(m);
            let who: Vec<u32> = (0..2).filter(|&id| did(id, Action::Insert)).collect();
            assert!(
                who.len() == 1 || end.deaths() > 0 && who.is_empty(),
                "{who:?} inserted"
            );
            assert_eq!(value, who.first().map(|&id| 50 + u64::from(id)));
        })
}

/// Each takes effect once, in some order.
fn insert_and_remove() -> Scenario {
    members("insertion and removal of a key", true)
        .mortal("t0", |m| remove(m, 0))
        .mortal("t1", |m| insert(m, 1))
        .check(|m, _| {
            let value = settled(m);
            let (removed, inserted) = (did(0, Action::Remove), did(1, Action::Insert));
            let expected = match (removed, inserted) {
                (false, false) => Some(50),
                (true, false) => None,
                (true, true) => Some(51),
                (false, true) => panic!("two entries of a key"),
            };
            assert_eq!(value, expected);
        })
}

/// One of two threads removes the entry, and retires it.
fn two_removers() -> Scenario {
    members("two removers of a key", true)
        .mortal("t0", |m| remove(m, 0))
        .mortal("t1", |m| remove(m, 1))
        .check(|m, end: &End<()>| {
            let value = settled(m);
            let who = (0..2).filter(|&id| did(id, Action::Remove)).count();
            assert!(who == 1 || end.deaths() > 0 && who == 0, "{who} removed it");
            assert_eq!(value.is_none(), who == 1);
        })
}

/// A removed entry is not replaced any more.
fn remove_and_replace() -> Scenario {
    members("removal and replacement", true)
        .mortal("t0", |m| remove(m, 0))
        .mortal("t1", |m| replace(m, 1))
        .check(|m, _| {
            let value = settled(m);
            let removed = did(0, Action::Remove);
            let replaced = did(1, Action::Replace);
            let expected = (!removed).then_some(if replaced { 51 } else { 50 });
            assert_eq!(value, expected);
        })
}

/// Both take effect, one after the other; and the recovery of either one finds that out.
fn two_replacers() -> Scenario {
    members("two replacements", true)
        .mortal("t0", |m| replace(m, 0))
        .mortal("t1", |m| replace(m, 1))
        .check(|m, end: &End<()>| {
            let value = settled(m).expect("an entry");
            let who: Vec<u32> = (0..2).filter(|&id| did(id, Action::Replace)).collect();
            assert!(end.deaths() > 0 || who.len() == 2, "{who:?} replaced it");
            let values = who.iter().map(|&id| 50 + u64::from(id));
            assert!(values.chain([50]).any(|one| one == value));
        })
}

/// One of two threads recovers a dead remover. The other one continues, and would take an entry
/// twice or find it half removed if that went wrong.
fn two_recoverers() -> Scenario {
    let recover = |id| {
        move |m: Scheduled| {
            let world = world();
            world.recoverers.recover(&world.act_as(id), 0).unwrap();
            if id == 2 {
                insert(m, 2);
            }
        }
    };
    members("two recoverers of a removal", true)
        .mortal("owner", |m| remove(m, 0))
        .mortal_after_death("r1", recover(1))
        .after_death("r2", recover(2))
        .check(|m, end: &End<()>| {
            let value = settled(m);
            let removed = did(0, Action::Remove);
            let inserted = did(2, Action::Insert);
            assert!(removed || !inserted, "two entries of a key");
            if end.died(0) {
                assert_eq!(removed, inserted, "a removed key can be inserted");
            }
            let expected = if inserted {
                Some(52)
            } else {
                (!removed).then_some(50)
            };
            assert_eq!(value, expected);
        })
}

/// The operation of a thread that passes the young node of a list.
#[derive(Clone, Copy, PartialEq)]
enum Walker {
    /// Looks for its key.
    Looks,
    /// Inserts behind it.
    Inserts,
}

/// Whether the walker sees that the era moves.
#[derive(Clone, Copy, PartialEq)]
enum Sight {
    Whole,
    /// Broken: its reservation stays behind. (The others wait for it, to find this quickly.)
    Stale,
}

/// The key of the node that is born in a later era than the walker's pin, and removed in a still
/// later one.
const YOUNG: u64 = 7;
/// The key that the walker inserts.
const BEHIND: u64 = 8;
/// The word in which the threads of the broken variant tell each other how far they are.
const PACE: Offset = Offset::new(DATA.raw() + 64);

/// The era advances during a walk; a node is born, removed, freed, and its block given to other
/// uses.
fn across_eras(walker: Walker, sight: Sight) -> Scenario {
    let of = move |m: Scheduled| match sight {
        Sight::Whole => sound(m),
        Sight::Stale => Weakened::new(m, Weakness::Blind(era_at(), 8)),
    };
    let paced = sight == Sight::Stale;
    // Without pacing there is no access at all.
    let tell = move |m: Scheduled, step: u64| {
        if paced {
            m.store(PACE, step, Ordering::Release);
        }
    };
    let await_step = move |m: Scheduled, step: u64| {
        while paced && m.load::<u64>(PACE, Ordering::Acquire) < step {
            m.spin_hint();
        }
    };
    let name = match walker {
        Walker::Looks => "a look across eras",
        Walker::Inserts => "an insertion across eras",
    };
    let walk = move |m: Scheduled| {
        // Another handle on the same memory, which the walker uses for everything.
        let world = pod_of(of(m));
        let member = world.act_as(0);
        let heap = local(&world, &member);
        let pin = heap.pin();
        tell(m, 1);
        await_step(m, 2);
        tell(m, 3);
        match walker {
            Walker::Looks => {
                let value = list(of(m)).get(&heap, &YOUNG);
                let read = value.is_none_or(|value| value == 51);
                assert!(read, "{value:?} was read after it was freed");
            }
            Walker::Inserts => list(of(m)).insert(&heap, &BEHIND, &52).unwrap(),
        }
        drop(pin);
        std::mem::forget(heap);
    };
    let live_and_die = move |m: Scheduled| {
        let list = list(sound(m));
        with_heap(1, |heap| {
            await_step(m, 1);
            move_on(m);
            list.insert(heap, &YOUNG, &51).unwrap();
            tell(m, 2);
            await_step(m, 3);
            move_on(m);
            assert_eq!(list.remove(heap, &YOUNG), Some(51));
            heap.reclaim();
            // The broken walker is led into the block's new contents. So all blocks that the thread
            // saw free before are used up, until it searches anew.
            for _ in 0..if paced { 64 } else { 1 } {
                let other = heap.allocate_into(64, heap.pending_cell(4)).unwrap();
                // If it is the same block: a link that leads a walker on to the list's end, and
                // another value.
                let end = list.offset().raw() + 144 - 24;
                m.store(other + 24, end, Ordering::Relaxed);
                m.store(other + 56, 99u64, Ordering::Relaxed);
                heap.free_from(heap.pending_cell(4), 0).unwrap();
            }
        });
    };
    let scenario = members(name, true).prepare(move |m| {
        prepare(sound(m), true);
        move_on(m);
    });
    let scenario = match sight {
        Sight::Whole => scenario
            .mortal("walks", walk)
            .mortal("lives and dies", live_and_die)
            .mortal("removes", |m| remove(m, 2)),
        Sight::Stale => scenario
            .thread("walks", walk)
            .thread("lives and dies", live_and_die),
    };
    scenario.check(move |m, _| {
        let entries = all_settled(m);
        let has = |key| entries.iter().any(|entry| entry.0 == key);
        assert_eq!(has(KEY), !did(2, Action::Remove));
        // Its removal begins when its insertion has taken effect.
        let lives = did(1, Action::Insert) || began(1, Action::Remove) && !did(1, Action::Remove);
        assert_eq!(has(YOUNG), lives, "{entries:?}");
        let inserted = walker == Walker::Inserts && did(0, Action::Insert);
        assert_eq!(has(BEHIND), inserted, "{entries:?}");
    })
}

/// Returns the word that counts the eras.
fn era_at() -> Offset {
    world().heap.state() + 128
}

/// Begins the next era, as a member does that allocates a lot.
fn move_on(m: Scheduled) {
    m.fetch_add(era_at(), 1u64, Ordering::Relaxed);
}

/// One thread destroys the list, and the thread that recovers it may die too.
fn two_recoverers_of_a_destruction() -> Scenario {
    let recover = |id| {
        move |_: Scheduled| {
            let world = world();
            world.recoverers.recover(&world.act_as(id), 0).unwrap();
        }
    };
    members("two recoverers of a destruction", true)
        .mortal("owner", |m| {
            let list = list(sound(m));
            // Header, node, value.
            assert_eq!(with_heap(0, |heap| list.destroy(heap, LIST)), Ok(3));
        })
        .mortal_after_death("r1", recover(1))
        .after_death("r2", recover(2))
        .check(|m, _| {
            let world = world();
            world.recoverers.recover_all(&world.act_as(3)).unwrap();
            let is_there = m.load::<u64>(LIST, Ordering::Acquire) != 0;
            assert_eq!(is_there, !did(0, Action::Destroy), "it is half destroyed");
            if is_there {
                assert_eq!(all_settled(m), [(KEY, 50)]);
                return;
            }
            let whole = world.heap.check_reachable(map(sound(m)).check().blocks);
            assert!(whole.is_clean(), "{whole}");
        })
}

/// Returns keys of the second bucket of two, which no thread has opened.
fn keys_of_the_second() -> &'static [u64] {
    static KEYS: OnceLock<Vec<u64>> = OnceLock::new();
    KEYS.get_or_init(|| {
        let of_bucket_1 = |key: &u64| {
            xxhash_rust::xxh3::xxh3_64_with_seed(&key.to_ne_bytes(), 0x6F75_746C_6976_6521) & 1 == 1
        };
        (0..100).filter(of_bucket_1).take(2).collect()
    })
}

/// Two threads open a bucket, and add the pages on the way to it.
fn two_openers() -> Scenario {
    let body = |id: u32| {
        move |m: Scheduled| {
            let m = sound(m);
            let key = keys_of_the_second()[id as usize];
            with_heap(id, |heap| {
                map(m).insert(heap, &key, &key).unwrap();
                assert_eq!(map(m).get(heap, &key), Some(key));
            });
        }
    };
    members("two who open a bucket", false)
        .mortal("t0", body(0))
        .mortal("t1", body(1))
        .check(|m, end: &End<()>| {
            settled(m);
            let (died, m) = ([end.died(0), end.died(1)], sound(m));
            for (id, key) in (0..).zip(keys_of_the_second()) {
                let value = with_heap(3, |heap| map(m).get(heap, key));
                assert_eq!(value.is_some(), did(id, Action::Insert));
                assert!(value == Some(*key) || died[id as usize], "{key} is lost");
            }
            assert!(
                end.deaths() > 0 || map(m).check().buckets == 2,
                "no member opened it"
            );
        })
}

/// Returns the offsets of the list and of its first node, the same in every execution.
fn places() -> (Offset, Offset) {
    static PLACES: OnceLock<(Offset, Offset)> = OnceLock::new();
    *PLACES.get_or_init(|| {
        let bytes = bytes_for::<Native>(REGION);
        let memory = Native::leaked(bytes, PersistenceDomain::Flushed);
        prepare(memory, true);
        let list = list(memory);
        (list.offset(), list.blocks()[1])
    })
}

/// Broken: the link to a new node does not release its contents.
fn relaxed_link() -> Scenario {
    let weak = |m| Weakened::new(m, Weakness::Orderings(places().0 + 128, 8));
    members("relaxed link", false)
        .thread("t0", move |m| {
            let m = weak(m);
            with_heap(0, |heap| list(m).insert(heap, &KEY, &50)).unwrap();
        })
        .thread("t1", move |m| {
            let m = weak(m);
            let value = with_heap(1, |heap| list(m).get(heap, &KEY));
            assert!(
                value.is_none_or(|value| value == 50),
                "50 came out as {value:?}"
            );
        })
}

/// Broken: every remover takes itself for the one that won.
fn retires_without_winning() -> Scenario {
    let body = |id| {
        move |m: Scheduled| {
            let m = Weakened::new(m, Weakness::Swaps(places().1 + 40, 8));
            with_heap(id, |heap| list(m).remove(heap, &KEY));
        }
    };
    members("retires without winning", true)
        .thread("t0", body(0))
        .thread("t1", body(1))
        .check(|m, _| {
            settled(m);
        })
}
