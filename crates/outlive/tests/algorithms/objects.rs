//! Named objects: found by name and type, counted, and destroyed by their last user.

use crate::object_world;
use crate::object_world::objects;
use crate::object_world::{assert_no_leak, world};
use outlive::objects::{Array, Blob, Cell, Counter, LastRequest, ObjectError};
use outlive::structures::{Exchange, List, Map};
use outlive::sync::{GroupBarrier, RecoverableMutex, Waiting};

#[test]
fn every_type_is_found_by_its_name_and_refused_as_another() {
    let world = world();
    let (member, other) = (world.act_as(0), world.act_as(1));
    let (heap, others) = (world.local(&member), world.local(&other));
    let (mine, theirs) = (objects(&heap), objects(&others));
    let words = mine.open_or_create::<Map<str, u64>>("words", ()).unwrap();
    words.upsert("ash", &1, |n| n + 1).unwrap();
    let hits = mine.open_or_create::<Counter>("hits", 5).unwrap();
    assert_eq!(hits.add(2), 5);
    let pair = mine
        .create::<RecoverableMutex<[u64; 2]>>("pair", [100, 0])
        .unwrap();
    pair.lock().unwrap()[1] = 7;
    let list = mine.create::<List<u64, str>>("list", ()).unwrap();
    list.insert(&3, "three").unwrap();

    let same = theirs.open_or_create::<Map<str, u64>>("words", ()).unwrap();
    assert_eq!(same.get("ash"), Some(1));
    assert_eq!(theirs.open::<Counter>("hits").unwrap().get(), 7);
    let same = theirs.open::<RecoverableMutex<[u64; 2]>>("pair").unwrap();
    assert_eq!(*same.lock().unwrap(), [100, 7]);
    assert_eq!(
        theirs
            .open::<List<u64, str>>("list")
            .unwrap()
            .get(&3)
            .unwrap(),
        "three"
    );

    let error = theirs.open::<Map<str, u32>>("words").unwrap_err();
    assert_eq!(
        error.to_string(),
        "the object `words` is of the type \"map of str to u64\", not \"map of str to u32\"; open it as that, or use another name"
    );
    let error = theirs.open::<Counter>("pair").unwrap_err();
    assert_eq!(
        error.to_string(),
        "the object `pair` is of the type \"mutex over [u64; 2]\", not \"counter\"; open it as that, or use another name"
    );
    let missing = theirs.open::<Counter>("misses").unwrap_err();
    assert_eq!(missing.to_string(), "the object `misses` does not exist");
    let exists = theirs.create::<Counter>("words", 0).unwrap_err();
    assert!(matches!(exists, ObjectError::Exists { .. }));
    for name in ["", &"x".repeat(256)] {
        let error = theirs.create::<Counter>(name, 0).unwrap_err();
        assert!(matches!(error, ObjectError::Name { .. }), "{error}");
    }
    let names: Vec<_> = theirs
        .list()
        .unwrap()
        .into_iter()
        .map(|it| (it.name, it.of))
        .collect();
    let expected = [
        ("hits", "counter"),
        ("list", "list of u64 to str"),
        ("pair", "mutex over [u64; 2]"),
        ("words", "map of str to u64"),
    ];
    assert_eq!(names, expected.map(|(name, of)| (name.into(), of.into())));
    assert_no_leak(&world);
}

#[test]
fn the_last_user_destroys_what_was_unlinked() {
    let world = world();
    let (member, other) = (world.act_as(0), world.act_as(1));
    let (heap, others) = (world.local(&member), world.local(&other));
    let (mine, theirs) = (objects(&heap), objects(&others));
    let words = mine.create::<Map<u64, u64>>("words", ()).unwrap();
    (0..2000).for_each(|key| words.insert(&key, &key).unwrap());
    let same = theirs.open::<Map<u64, u64>>("words").unwrap();
    match theirs.remove("words") {
        Err(ObjectError::InUse { users, .. }) => assert_eq!(users, [0, 1]),
        other => panic!("{other:?}"),
    }
    theirs.unlink("words").unwrap();
    assert!(matches!(
        theirs.unlink("words"),
        Err(ObjectError::NotFound { .. })
    ));
    // Another object has the name; the former one is used as before.
    let another = theirs.create::<Map<u64, u64>>("words", ()).unwrap();
    assert_eq!((words.get(&7), another.get(&7)), (Some(7), None));
    assert_no_leak(&world);
    drop(words);
    assert_eq!(same.get(&8), Some(8));
    drop(same);
    assert_no_leak(&world);
    drop(another);
    mine.remove("words").unwrap();
    assert_eq!(mine.list().unwrap(), []);
    assert_no_leak(&world);
}

#[test]
fn the_leases_of_the_dead_come_back() {
    let world = world();
    let (member, other) = (world.act_as(0), world.act_as(1));
    let (heap, others) = (world.local(&member), world.local(&other));
    let words = objects(&heap).create::<Map<u64, u64>>("words", ()).unwrap();
    words.insert(&1, &2).unwrap();
    objects(&others).unlink("words").unwrap();
    std::mem::forget(words);
    std::mem::forget(heap);
    world.declare_dead(0);
    world.recoverers.recover(&other, 0).unwrap();
    drop(others);
    assert_no_leak(&world);
}

#[test]
fn forgotten_handles_are_given_up_with_the_rest() {
    let world = world();
    let member = world.act_as(0);
    let heap = world.local(&member);
    let mine = objects(&heap);
    std::mem::forget(mine.create::<Counter>("hits", 0).unwrap());
    assert_eq!(mine.list().unwrap()[0].users, [0]);
    mine.give_up_all();
    assert_eq!(mine.list().unwrap()[0].users, []);
    mine.remove("hits").unwrap();
    assert_no_leak(&world);
}

#[test]
fn a_renamed_object_is_found_under_its_new_name_alone() {
    let world = world();
    let (member, other) = (world.act_as(0), world.act_as(1));
    let (heap, others) = (world.local(&member), world.local(&other));
    let (mine, theirs) = (objects(&heap), objects(&others));
    let hits = mine.create::<Counter>("hits", 5).unwrap();
    mine.rename("hits", "hits").unwrap();
    theirs.rename("hits", "misses").unwrap();
    hits.add(1);
    assert!(matches!(
        mine.open::<Counter>("hits"),
        Err(ObjectError::NotFound { .. })
    ));
    assert_eq!(theirs.open::<Counter>("misses").unwrap().get(), 6);
    let another = mine.create::<Counter>("hits", 1).unwrap();
    let taken = mine.rename("misses", "hits").unwrap_err();
    assert!(matches!(taken, ObjectError::Exists { .. }), "{taken}");
    let missing = mine.rename("nothing", "something").unwrap_err();
    assert!(matches!(missing, ObjectError::NotFound { .. }), "{missing}");
    let bad = mine.rename("misses", "").unwrap_err();
    assert!(matches!(bad, ObjectError::Name { .. }), "{bad}");
    let names = |all: outlive::objects::Objects<'_>| -> Vec<_> {
        all.list().unwrap().into_iter().map(|it| it.name).collect()
    };
    assert_eq!(names(mine), ["hits", "misses"]);
    // Names of every odd length, renamed there and back.
    for len in (1..=255).step_by(2) {
        theirs.rename("misses", &"m".repeat(len)).unwrap();
        mine.rename(&"m".repeat(len), "misses").unwrap();
    }
    assert_eq!((another.get(), hits.get()), (1, 6));
    drop((another, hits));
    theirs.remove("misses").unwrap();
    theirs.remove("hits").unwrap();
    assert!(names(mine).is_empty());
    assert_no_leak(&world);
}

/// A renamer that dies may leave the entry of the old name. That entry is ignored, and the name can
/// be used again.
#[test]
fn a_stale_entry_of_a_dead_renamer_is_ignored() {
    let world = world();
    let member = world.act_as(0);
    let heap = world.local(&member);
    let all = objects(&heap);
    drop(all.create::<Counter>(object_world::KEPT, 5).unwrap());
    object_world::leave_stale(&heap);
    assert!(matches!(
        all.open::<Counter>(object_world::KEPT),
        Err(ObjectError::NotFound { .. })
    ));
    let names: Vec<_> = all.list().unwrap().into_iter().map(|it| it.name).collect();
    assert_eq!(names, [object_world::MOVED]);
    assert_no_leak(&world);
    all.remove(object_world::MOVED).unwrap();
    assert!(all.list().unwrap().is_empty());
    assert_no_leak(&world);
    // The object has its name back, or another one has it.
    drop(all.create::<Counter>(object_world::KEPT, 6).unwrap());
    object_world::leave_stale(&heap);
    all.rename(object_world::MOVED, object_world::KEPT).unwrap();
    object_world::leave_stale(&heap);
    let seven = all.create::<Counter>(object_world::KEPT, 7).unwrap();
    assert_eq!(seven.get(), 7);
    assert_eq!(all.open::<Counter>(object_world::MOVED).unwrap().get(), 6);
    assert_no_leak(&world);
}

#[test]
fn a_weak_reference_does_not_keep_its_object_and_never_finds_another() {
    let world = world();
    let (member, other) = (world.act_as(0), world.act_as(1));
    let (heap, others) = (world.local(&member), world.local(&other));
    let (mine, theirs) = (objects(&heap), objects(&others));
    let weak = mine.create::<Counter>("hits", 5).unwrap().downgrade();
    let hits = theirs.upgrade(weak).unwrap().unwrap();
    assert_eq!(hits.get(), 5);
    mine.unlink("hits").unwrap();
    // It has a user, but no name.
    assert!(mine.upgrade(weak).unwrap().is_none());
    drop(hits);
    heap.reclaim();
    others.reclaim();
    // New objects may reuse its block.
    for number in 0..64 {
        drop(
            mine.create::<Counter>(&format!("{number}"), number)
                .unwrap(),
        );
        assert!(mine.upgrade(weak).unwrap().is_none());
    }
    (0..64).for_each(|number| mine.remove(&format!("{number}")).unwrap());
    assert_no_leak(&world);
}

#[test]
fn cells_are_replaced_as_a_whole() {
    let world = world();
    let (member, other) = (world.act_as(0), world.act_as(1));
    let (heap, others) = (world.local(&member), world.local(&other));
    let (mine, theirs) = (objects(&heap), objects(&others));

    let leader = mine.create::<Cell<u64>>("leader", 7).unwrap();
    leader.set(&8).unwrap();
    assert_eq!(leader.update(|id| id + 1).unwrap(), 8);
    let same = theirs.open::<Cell<u64>>("leader").unwrap();
    assert_eq!(
        same.compare_exchange(&7, &1).unwrap(),
        Exchange::Different(9)
    );
    assert_eq!(same.compare_exchange(&9, &1).unwrap(), Exchange::Done);
    assert_eq!(leader.get(), 1);
    drop((leader, same));
    for it in mine.list().unwrap() {
        mine.unlink(&it.name).unwrap();
    }
    assert_no_leak(&world);
}

#[test]
fn a_value_read_in_place_does_not_change() {
    let world = world();
    let (member, other) = (world.act_as(0), world.act_as(1));
    let (heap, others) = (world.local(&member), world.local(&other));
    let (mine, theirs) = (objects(&heap), objects(&others));
    let page = mine.create::<Blob>("page", vec![1; 5000]).unwrap();
    let text = mine.create::<Cell<str>>("text", "old".into()).unwrap();
    {
        let (old, old_text) = (page.read(), text.read());
        let same = theirs.open::<Blob>("page").unwrap();
        for round in 0..200 {
            same.set(&[2; 300]).unwrap();
            theirs
                .open::<Cell<str>>("text")
                .unwrap()
                .set("new")
                .unwrap();
            assert_eq!((old.len(), &*old_text), (5000, "old"), "{round}");
            assert!(old.iter().all(|byte| *byte == 1));
        }
        assert_eq!(*page.read(), [2; 300]);
        assert_eq!(&*text.read(), "new");
    }
    let empty = mine.create::<Blob>("empty", Vec::new()).unwrap();
    assert!(empty.read().is_empty());

    let map = mine.create::<Map<str, [u8]>>("pages", ()).unwrap();
    map.insert("a", b"first").unwrap();
    let first = map.read("a").unwrap();
    map.replace("a", b"second").unwrap();
    assert_eq!(*first, *b"first");
    assert_eq!(*map.read("a").unwrap(), *b"second");
    assert!(map.read("b").is_none());
    drop(first);
    drop((page, text, empty, map));
    for it in mine.list().unwrap() {
        mine.unlink(&it.name).unwrap();
    }
    assert_no_leak(&world);
}

#[test]
fn arrays_have_elements_of_every_size() {
    let world = world();
    let (member, other) = (world.act_as(0), world.act_as(1));
    let (heap, others) = (world.local(&member), world.local(&other));
    let (mine, theirs) = (objects(&heap), objects(&others));
    fn fill<T: outlive::segment::Shared + PartialEq + std::fmt::Debug>(
        all: outlive::objects::Objects<'_>,
        len: u64,
        of: impl Fn(u64) -> T,
    ) {
        let array = all.create::<Array<T>>("array", len).unwrap();
        assert_eq!(array.len(), len);
        (0..len).for_each(|index| array.set(index, of(index)));
        let same = all.open::<Array<T>>("array").unwrap();
        assert!(same.iter().eq((0..len).map(of)));
        drop((same, array));
        all.remove("array").unwrap();
    }
    fill(mine, 10, |index| index as u8);
    fill(mine, 11, |index| index as u16);
    fill(mine, 12, |index| index as f32);
    fill(mine, 1000, |index| index as f64);
    fill(mine, 9, |index| [index as u8, 1, 2]);
    fill(mine, 9, |index| [index, index + 1, index + 2]);
    fill(mine, 0, |index| index);
    let sums = mine.create::<Array<u64>>("sums", 3).unwrap();
    assert_eq!((sums.add(1, 5), sums.add(1, 1), sums.get(1)), (0, 5, 6));
    let beyond = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| sums.get(3)));
    assert!(beyond.is_err());
    let error = theirs.open::<Array<u32>>("sums").unwrap_err();
    assert_eq!(
        error.to_string(),
        "the object `sums` is of the type \"array of u64\", not \"array of u32\"; open it as that, or use another name"
    );
    let error = mine.create::<Array<u64>>("large", u64::MAX).unwrap_err();
    assert!(matches!(error, ObjectError::Heap(_)), "{error}");
    drop(sums);
    for it in mine.list().unwrap() {
        mine.unlink(&it.name).unwrap();
    }
    assert_no_leak(&world);
}

#[test]
fn a_barrier_keeps_its_seats() {
    let world = world();
    let (member, other) = (world.act_as(0), world.act_as(1));
    let (heap, others) = (world.local(&member), world.local(&other));
    let (mine, theirs) = (objects(&heap), objects(&others));
    let barrier = mine.create::<GroupBarrier>("barrier", 4).unwrap();
    let same = theirs.open::<GroupBarrier>("barrier").unwrap();
    let mut seat = barrier.join().unwrap();
    assert_eq!(same.low_level().seats(), 4);
    assert!(seat.enter(Waiting::DEFAULT).unwrap());
    seat.leave().unwrap();
    let none = mine.create::<GroupBarrier>("none", 0).unwrap_err();
    assert!(matches!(none, ObjectError::Barrier(_)), "{none}");
    drop((same, barrier));
    for it in mine.list().unwrap() {
        mine.unlink(&it.name).unwrap();
    }
    assert_no_leak(&world);
}

#[test]
fn a_client_reports_the_outcome_of_its_last_request() {
    let world = world();
    let (member, other) = (world.act_as(0), world.act_as(1));
    let (heap, others) = (world.local(&member), world.local(&other));
    let (mine, theirs) = (objects(&heap), objects(&others));
    let words = mine.create::<Map<str, u64>>("words", ()).unwrap();
    let me = mine.client("me").unwrap();
    let last = |token, took_effect| Some(LastRequest { token, took_effect });
    assert_eq!((me.last(), me.next_token()), (None, 1));
    words.request(&me, 7).insert("ash", &1).unwrap();
    assert_eq!((me.last(), me.next_token()), (last(7, true), 8));
    words.request(&me, 8).insert("ash", &1).unwrap_err();
    assert_eq!((me.last(), me.next_token()), (last(8, false), 8));
    words.request(&me, 9).upsert("ash", &1, |n| n + 1).unwrap();
    assert_eq!(me.last(), last(9, true));
    assert_eq!(words.request(&me, 10).remove("oak"), None);
    assert_eq!(me.last(), last(10, false));
    // Other operations change nothing.
    words.insert("oak", &1).unwrap();
    assert_eq!(me.last(), last(10, false));
    assert_eq!(words.request(&me, 11).replace("oak", &2).unwrap(), Some(1));
    assert_eq!(
        words
            .request(&me, 12)
            .compare_exchange("oak", &1, &2)
            .unwrap(),
        Exchange::Different(2)
    );
    assert_eq!(me.last(), last(12, false));
    // A closure that panics has no effect.
    let panics = std::panic::AssertUnwindSafe(|| {
        words
            .request(&me, 13)
            .update("oak", |_| panic!("by design"))
    });
    assert!(std::panic::catch_unwind(panics).is_err());
    assert_eq!(me.last(), last(13, false));
    assert_eq!(
        words.request(&me, 14).update("oak", |n| n + 1).unwrap(),
        Some(2)
    );

    // What the closure does is not the request.
    let inner = mine.create::<Map<u64, u64>>("inner", ()).unwrap();
    let panics = std::panic::AssertUnwindSafe(|| {
        words.request(&me, 15).update("oak", |_| {
            inner.upsert(&1, &1, |n| n + 1).unwrap();
            panic!("by design")
        })
    });
    assert!(std::panic::catch_unwind(panics).is_err());
    assert_eq!(me.last(), last(15, false));
    drop(inner);
    mine.remove("inner").unwrap();
    words.request(&me, 14).update("oak", |n| n + 1).unwrap();

    // Requests on cells and lists.
    let cell = mine.create::<Cell<str>>("cell", "a".into()).unwrap();
    cell.request(&me, 16).set("b").unwrap();
    assert_eq!((me.took_effect(16), me.took_effect(15)), (Some(true), None));
    let failed = cell.request(&me, 17).compare_exchange("a", "c").unwrap();
    assert_eq!(failed, Exchange::Different("b".into()));
    assert_eq!(me.took_effect(17), Some(false));
    assert_eq!(cell.request(&me, 18).update(|it| it + "c").unwrap(), "b");
    assert_eq!((me.took_effect(18), cell.get()), (Some(true), "bc".into()));
    let list = mine.create::<List<u64, u64>>("list", ()).unwrap();
    list.request(&me, 19).insert(&1, &2).unwrap();
    assert_eq!(me.took_effect(19), Some(true));
    list.request(&me, 20).insert(&1, &3).unwrap_err();
    assert_eq!(me.took_effect(20), Some(false));
    assert_eq!(list.request(&me, 21).replace(&1, &3).unwrap(), Some(2));
    assert_eq!(list.request(&me, 22).remove(&1), Some(3));
    assert_eq!(me.took_effect(22), Some(true));
    assert_eq!(list.request(&me, 23).remove(&1), None);
    assert_eq!(me.took_effect(23), Some(false));
    drop((cell, list));
    mine.remove("cell").unwrap();
    mine.remove("list").unwrap();
    words.request(&me, 14).update("oak", |n| n + 1).unwrap();

    // One handle at a time.
    let refused = theirs.unlink("me").unwrap_err();
    assert!(
        matches!(refused, ObjectError::ClientInUse { .. }),
        "{refused}"
    );
    for all in [mine, theirs] {
        let refused = all.client("me").unwrap_err();
        assert!(
            matches!(refused, ObjectError::ClientInUse { .. }),
            "{refused}"
        );
    }
    assert_eq!(me.last(), last(14, true));
    let theirs_too = theirs.open::<Map<str, u64>>("words").unwrap();
    let foreign = std::panic::AssertUnwindSafe(|| theirs_too.request(&me, 15).remove("oak"));
    assert!(std::panic::catch_unwind(foreign).is_err());
    assert_eq!(me.last(), last(14, true));
    drop(me);
    let again = theirs.client("me").unwrap();
    assert_eq!(again.last(), last(14, true));
    drop((again, theirs_too, words));
    mine.remove("me").unwrap();
    mine.remove("words").unwrap();
    assert_no_leak(&world);
}
