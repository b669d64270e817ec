//! Named objects: found by name and type, counted, and destroyed by their last user.

mod pod;

#[path = "../../../lab/outlive-proofs/src/objects/fixture.rs"]
mod fixture;

use fixture::{World, bytes, create, objects};
use outlive::memory::{Native, PersistenceDomain};
use outlive::objects::{Counter, ObjectError};
use outlive::structures::{List, Map};
use outlive::sync::RecoverableMutex;

fn world() -> World<Native> {
    let world = create(Native::leaked(
        bytes::<Native>(),
        PersistenceDomain::Flushed,
    ));
    world.join_all();
    world
}

/// Asserts that nothing is allocated except the directory and the objects in it.
#[track_caller]
fn assert_no_leak(world: &World<Native>) {
    let blocks = {
        let member = world.act_as(3);
        let heap = world.local(&member);
        let blocks = objects(&heap).blocks().unwrap();
        heap.reclaim();
        blocks
    };
    let retired = (0..4).flat_map(|id| world.heap.retired(world.logs.of(id)));
    world
        .demand_sound(blocks.into_iter().chain(retired))
        .unwrap();
}

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
        "the object `words` is a map of str to u64, not a map of str to u32; open it as that, or use another name"
    );
    let error = theirs.open::<Counter>("pair").unwrap_err();
    assert_eq!(
        error.to_string(),
        "the object `pair` is a mutex over [u64; 2], not a counter; open it as that, or use another name"
    );
    let missing = theirs.open::<Counter>("misses").unwrap_err();
    assert_eq!(missing.to_string(), "there is no object `misses`");
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
