//! Named objects, as an observer sees them: their contents, their faults, and leaked blocks.

mod pod_file;

use outlive::membership::InstanceId;
use outlive::memory::{Memory, Offset, Ordering};
use outlive::objects::{Directory, ObjectError, Value};
use outlive::pod::{Pod, PodOptions};
use outlive::segment::AreaKind;
use pod_file::PodFile;
use std::sync::atomic::{AtomicBool, Ordering as Order};
use std::time::{Duration, Instant};

outlive::shared! {
    #[derive(Debug)]
    struct Point {
        x: i64,
        y: f64,
    }
}

/// Offsets in the block of an object, see `objects/record.rs`.
const STATE: u64 = 24;
const CLASS: u64 = 32;
const TYPE_BYTES: u64 = 48;
const NAME: u64 = 80;
const CONTENTS: u64 = 608;
/// The state of an object without a name.
const UNLINKED: u64 = 1;

/// The offset of the first lease of id 0 in the directory, and the distance between ids.
const LEASES: u64 = 64;
const LEASE_BYTES: u64 = 8;

/// Offsets in the header of a structure, see `structures/sorted/header.rs`: its first and its last
/// node, without the header of reclamation that other nodes begin with.
const HEAD: u64 = 128;
const TAIL: u64 = 144;
const RECLAMATION_BYTES: u64 = 24;

fn create(file: &PodFile) -> Pod {
    Pod::create(&file.0, PodOptions::new().size(16 << 20).ids(32)).unwrap()
}

fn directory(pod: &Pod) -> Directory {
    Directory::open(pod.heap().unwrap()).unwrap().unwrap()
}

fn dumped(pod: &Pod, name: &str) -> String {
    let dump = directory(pod).dump(name).unwrap();
    assert!(!dump.is_torn);
    dump.contents.to_string()
}

/// Creates one object of each kind.
fn create_all(pod: &Pod) -> InstanceId {
    let session = pod.session().unwrap();
    let words = session.map::<str, u64>("words").unwrap();
    for (word, count) in [("oak", 2), ("ash", 1)] {
        words.insert(word, &count).unwrap();
    }
    words.update("oak", |n| n + 1).unwrap();
    let sorted = session.list::<i32, [u8]>("sorted").unwrap();
    sorted.insert(&7, b"\xab").unwrap();
    sorted.insert(&-7, b"").unwrap();
    sorted.replace(&7, b"\xcd\xef").unwrap();
    session.counter("hits").unwrap().add(41);
    session.cell::<str>("greeting", "good day").unwrap();
    let point = Point { x: -1, y: 0.5 };
    session.cell::<Point>("place", &point).unwrap();
    let array = session.array::<[u16; 3]>("triples", 2).unwrap();
    array.set(1, [1, 2, 3]);
    session.array::<u8>("flags", 3).unwrap().set(2, 9);
    let both = session.mutex("both", [0u64; 2]).unwrap();
    both.lock().unwrap()[1] = 5;
    session.barrier("start", 3).unwrap();
    let me = session.client("me").unwrap();
    words.request(&me, 17).upsert("elm", &1, |n| n + 1).unwrap();
    session.member().instance().id
}

#[test]
fn contents_are_read_by_the_description_of_their_type() {
    let place = PodFile::new("observed-contents");
    let pod = create(&place);
    assert!(Directory::open(pod.heap().unwrap()).unwrap().is_none());
    create_all(&pod);
    let shown = [
        ("both", "{holder: -, value: [0, 5]}"),
        ("flags", "0x000009"),
        ("greeting", r#""good day""#),
        ("hits", "41"),
        ("me", r#"{token: 17, outcome: "took effect"}"#),
        ("place", "{x: -1, y: 0.5}"),
        ("sorted", "{-7: 0x, 7: 0xcdef}"),
        ("start", "{seats: 3}"),
        ("triples", "[[0, 0, 0], [1, 2, 3]]"),
        ("words", r#"{"ash": 1, "elm": 1, "oak": 3}"#),
    ];
    for (name, contents) in shown {
        assert_eq!(dumped(&pod, name), contents, "{name}");
    }
    let all = directory(&pod).observe().unwrap();
    let names: Vec<_> = all.iter().map(|it| &*it.name).collect();
    assert_eq!(names, shown.map(|(name, _)| name));
    assert_eq!(all[9].entries, Some(3));
    assert!(all.iter().all(|it| it.users.is_empty()));
    let missing = directory(&pod).dump("none").unwrap_err();
    assert!(matches!(missing, ObjectError::NotFound { .. }), "{missing}");

    // A member sees the same, and an observer sees the handles and locks of the member.
    let session = pod.session().unwrap();
    let seen = session.objects().list().unwrap();
    assert_eq!(seen, all);
    let both = session.mutex("both", [0u64; 2]).unwrap();
    let held = both.lock().unwrap();
    let me = session.member().instance();
    assert_eq!(
        dumped(&pod, "both"),
        format!("{{holder: \"{me}\", value: [0, 5]}}")
    );
    let described = directory(&pod).observe().unwrap().swap_remove(0);
    assert_eq!(described.users, [me.id]);
    assert_eq!(described.holder, Some(me));
    drop(held);
    assert_eq!(directory(&pod).observe().unwrap()[0].holder, None);
    session.objects().rename("both", "two").unwrap();
    assert_eq!(dumped(&pod, "two"), "{holder: -, value: [0, 5]}");
    let gone = directory(&pod).dump("both").unwrap_err();
    assert!(matches!(gone, ObjectError::NotFound { .. }), "{gone}");
}

#[test]
fn a_block_that_nothing_leads_to_has_leaked() {
    let place = PodFile::new("observed-leak");
    let pod = create(&place);
    let id = create_all(&pod);
    let check = pod.check();
    assert!(check.is_clean() && check.leaks_searched, "{check:?}");
    assert_eq!(check.objects, Some(10));

    let memory = pod.segment().memory();
    let mut leaked = Vec::new();
    {
        let session = pod.session().unwrap();
        // A root, the program's words in a log, and a block lead to blocks; tags are ignored.
        let cell = pod.logs().of(id).program_room();
        let heap = session.heap();
        let pending = heap.pending_cell(0);
        let allocate = |bytes| {
            let block = heap.allocate_into(bytes, pending).unwrap();
            memory.store(pending, 0u64, Ordering::Relaxed);
            (0..bytes / 8).for_each(|at| memory.store(block + at * 8, 0u64, Ordering::Relaxed));
            block
        };
        let (first, second, third) = (allocate(24), allocate(100_000), allocate(5000));
        pod.roots().publish::<[u64; 3]>("first", first).unwrap();
        memory.store(
            first + 16,
            (second.raw() + 4096) | 1 << 61,
            Ordering::Relaxed,
        );
        memory.store(cell, third.raw(), Ordering::Relaxed);
        // These two blocks lead only to each other.
        let (small, large) = (allocate(40), allocate(70_000));
        memory.store(small, large.raw(), Ordering::Relaxed);
        memory.store(large, small.raw(), Ordering::Relaxed);
        leaked.extend([small, large]);
        let check = pod.check();
        assert!(
            check.is_clean() && !check.leaks_searched,
            "in use: {check:?}"
        );
    }
    leaked.sort();
    let check = pod.check();
    let mut found: Vec<_> = check.violations.iter().filter_map(|it| it.at).collect();
    found.sort();
    assert_eq!(found, leaked, "{:?}", check.violations);
    assert!(check.violations[0].to_string().contains("has leaked"));
}

#[test]
fn damage_to_a_name_a_lease_or_the_directory_is_found() {
    let place = PodFile::new("observed-damage");
    let pod = create(&place);
    create_all(&pod);
    let memory = pod.segment().memory();
    let described = directory(&pod).observe().unwrap();
    let record = described[0].contents - CONTENTS;
    let with = |at, value: u64, expected: &str| {
        let before: u64 = memory.load(at, Ordering::Relaxed);
        memory.store(at, value, Ordering::Relaxed);
        let found = pod.check().violations;
        assert!(!found.is_empty(), "{expected}");
        let found = found.iter().map(ToString::to_string);
        let found: Vec<_> = found.filter(|it| it.contains(expected)).collect();
        assert!(
            !found.is_empty(),
            "{expected}: {:?}",
            pod.check().violations
        );
        // Neither call accesses a byte outside the memory.
        let _ = directory(&pod).observe();
        let _ = directory(&pod).dump("both");
        memory.store(at, before, Ordering::Relaxed);
    };
    with(record + STATE, UNLINKED, "its state is Some(Unlinked)");
    with(record + CLASS, 0, "not the block of an object");
    with(record + TYPE_BYTES, u64::MAX, "not the block of an object");
    with(record + TYPE_BYTES, 1 << 40, "not the block of an object");
    with(record + NAME, 3, "its name is `bot`");
    with(record + NAME, 1 << 20, "its name is too long");
    let words = described.last().unwrap();
    with(words.contents, 64, "`words`");
    let root = pod.heap().unwrap().root();
    let at = memory.load::<u64>(root, Ordering::Relaxed);
    let leases = Offset::from_raw(at) + LEASES;
    with(
        leases + LEASE_BYTES * 31,
        8,
        "the leases of id 31 lead to no block",
    );
    let roots = pod.segment().area(AreaKind::Roots).unwrap();
    with(roots.offset, u64::MAX, "roots: ");
    // A ring of blocks of leases.
    let id =
        (0..32).find(|id| memory.load::<u64>(leases + LEASE_BYTES * id, Ordering::Relaxed) != 0);
    let block = memory.load::<u64>(leases + LEASE_BYTES * id.unwrap(), Ordering::Relaxed);
    with(Offset::from_raw(block), block, "lead to no block");
    // A map that looks empty, because its head leads to its tail; and one that is cut off.
    let header = Offset::from_raw(memory.load(words.contents, Ordering::Relaxed));
    let next: u64 = memory.load(header + HEAD, Ordering::Relaxed);
    with(
        header + HEAD,
        header.raw() + TAIL - RECLAMATION_BYTES,
        "has leaked",
    );
    with(header + HEAD, 8, "not a valid offset");
    memory.store(header + HEAD, 8u64, Ordering::Relaxed);
    let cut = directory(&pod).dump("words").unwrap_err();
    assert!(matches!(cut, ObjectError::Damaged { .. }), "{cut}");
    memory.store(header + HEAD, next, Ordering::Relaxed);
    assert!(pod.check().is_clean());
    memory.store(root, 8u64, Ordering::Relaxed);
    let check = pod.check();
    assert!(
        check.violations.iter().any(|it| it.room == "objects"),
        "{check:?}"
    );
}

/// An observer of a busy pod reads an unchanged object correctly, and never accesses a byte outside
/// the memory.
#[test]
fn observation_of_a_busy_pod() {
    let place = PodFile::new("observed-busy");
    let pod = create(&place);
    let session = pod.session().unwrap();
    session.cell::<str>("fixed", "as it is").unwrap();
    let enough = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for worker in 0..2u64 {
            let (pod, enough) = (&pod, &enough);
            scope.spawn(move || {
                let session = pod.session().unwrap();
                let busy = session.map::<u64, [u8]>("busy").unwrap();
                for n in 0.. {
                    if enough.load(Order::Relaxed) {
                        break;
                    }
                    let name = format!("{worker} {}", n % 7);
                    session
                        .cell::<str>(&name, &"x".repeat(n as usize % 300))
                        .unwrap();
                    busy.upsert(&(n % 50), &[7; 9], |_| vec![7; n as usize % 400])
                        .unwrap();
                    busy.remove(&(n % 47));
                    if n % 2 == 0 {
                        let _ = session.objects().rename(&name, &format!("{name} renamed"));
                    }
                    let _ = session.objects().unlink(&name);
                    let _ = session.objects().unlink(&format!("{name} renamed"));
                }
            });
        }
        let until = Instant::now() + Duration::from_secs(2);
        let (mut whole, mut rounds) = (0, 0);
        while Instant::now() < until {
            rounds += 1;
            let directory = directory(&pod);
            let Ok(all) = directory.observe() else {
                continue;
            };
            for it in all {
                match directory.dump(&it.name) {
                    Ok(dump) if it.name == "fixed" => {
                        assert_eq!(dump.contents, Value::Text("as it is".into()));
                        assert!(!dump.is_torn);
                        whole += 1;
                    }
                    Ok(dump) => assert_eq!(dump.description.name, it.name),
                    Err(_) => {}
                }
            }
        }
        enough.store(true, Order::Relaxed);
        assert!(whole > 0, "{rounds}");
    });
    // The workers' sessions have ended. Only this session is left.
    drop(session);
    let check = pod.check();
    assert!(check.is_clean(), "{check:?}");
}

#[test]
fn a_forged_structure_without_contents_at_the_end_of_the_memory_is_found() {
    let place = PodFile::new("observed-end");
    let pod = create(&place);
    create_all(&pod);
    let memory = pod.segment().memory();
    let all = directory(&pod).observe().unwrap();
    let words = all.into_iter().find(|it| it.name == "words").unwrap();
    let record = words.contents - CONTENTS;
    // The node of the name has the only word that leads to the object.
    let payload = pod.segment().area(AreaKind::Payload).unwrap();
    let mut places = (payload.offset.raw()..payload.end())
        .step_by(8)
        .map(Offset::new);
    let entry = places.find(|at| memory.load::<u64>(*at, Ordering::Relaxed) == record.raw());
    let entry = entry.unwrap();
    let forged = Offset::new(memory.size() - 608);
    for at in (0..608).step_by(8) {
        let word: u64 = memory.load(record + at, Ordering::Relaxed);
        memory.store(forged + at, word, Ordering::Relaxed);
    }
    // The sizes of the contents and of the type's description.
    memory.store(forged + 40, 0u64, Ordering::Relaxed);
    memory.store(forged + 48, 0u64, Ordering::Relaxed);
    for class in [1u64, 2, 3] {
        let word: u64 = memory.load(record + 32, Ordering::Relaxed);
        memory.store(forged + 32, word << 8 >> 8 | class << 56, Ordering::Relaxed);
        memory.store(entry, forged.raw(), Ordering::Relaxed);
        let check = pod.check();
        // Only a structure has contents of a known size.
        assert_eq!(
            check.is_clean(),
            class != 2 && !check.leaks_searched,
            "{check:?}"
        );
        let _ = directory(&pod).observe();
        let _ = directory(&pod).dump("words");
        {
            let session = pod.session().unwrap();
            let blocks = session.objects().blocks();
            assert_eq!(blocks.is_err(), class == 2, "{blocks:?}");
            let opened = session.objects().open::<outlive::objects::Counter>("words");
            assert!(opened.is_err(), "{opened:?}");
        }
        memory.store(entry, record.raw(), Ordering::Relaxed);
    }
    assert!(pod.check().is_clean());
}
