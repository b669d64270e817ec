//! A walk over a map with a damaged link ends, and the pod's check reports the damage.

use outlive::membership::ProcessOptions;
use outlive::memory::{Memory, Native, Offset, Ordering};
use outlive::objects::Directory;
use outlive::pod::{Pod, PodOptions};
use outlive::segment::AreaKind;
use outlive::structures::Map;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;
use xxhash_rust::xxh3::xxh3_64_with_seed;

const ENTRIES: u64 = 100;

/// Runs `test` in a thread, which is abandoned if it takes longer than a minute.
fn within_a_minute(test: impl FnOnce() + Send + 'static) {
    let (done, is_done) = channel();
    let thread = std::thread::spawn(move || {
        test();
        let _ = done.send(());
    });
    let waited = is_done.recv_timeout(Duration::from_secs(60));
    assert_ne!(waited, Err(RecvTimeoutError::Timeout), "it goes on");
    thread.join().expect("the test passes");
}

#[test]
fn a_damaged_link_is_reported_and_ends_the_iteration() {
    within_a_minute(|| {
        let path = format!("/dev/shm/outlive-links-{}", std::process::id());
        let options = PodOptions::new().size(512 << 10).ids(8).groups(0);
        let pod = Pod::create(&path, options).expect("a pod");
        let process = pod.join(ProcessOptions::on_host(0)).expect("joining");
        let thread = process.enter(None, "t").expect("a thread joins");
        let (heap, memory) = (thread.heap(&pod).expect("a heap"), thread.memory());
        let cell = heap
            .allocate_into(8, heap.pending_cell(0))
            .expect("enough free space");
        // Clears both words, as a program that publishes both does.
        for word in [heap.pending_cell(0), cell] {
            memory.store(word, 0u64, Ordering::Relaxed);
        }
        let map = Map::<u64, u64>::create(&heap, cell).expect("enough free space");
        for key in 0..ENTRIES {
            map.insert(&heap, &key, &key).expect("enough free space");
        }
        assert_eq!(map.iter(&heap).count() as u64, ENTRIES);
        assert!(pod.check().is_clean());
        let payload = pod.segment().area(AreaKind::Payload).expect("a payload");
        let places = (payload.offset.raw()..payload.end()).step_by(8);
        let word = |at: u64| memory.load::<u64>(Offset::new(at), Ordering::Relaxed);
        let before: Vec<(u64, u64)> = places.map(|at| (at, word(at))).collect();
        // A node is a line, with its link at 24 and its value at the end.
        let node = |key: u64| map.place(&heap, &key).expect("it is there").raw() - 56;
        let nodes: Vec<u64> = (0..ENTRIES).map(node).collect();
        let links = before.iter().filter(|(_, to)| nodes.contains(to));
        let links: Vec<(u64, u64)> = links.copied().collect();
        assert_eq!(links.len() as u64, ENTRIES);
        let mut rings = 0;
        for (index, (link, to)) in links.iter().enumerate().step_by(7) {
            // The node itself, a node before or behind it, no node, and the right link with one bit
            // flipped.
            let itself = link - 24;
            let flipped = (4..20).map(|bit| to ^ 1 << bit);
            for wrong in [nodes[0], nodes[50], itself, 0].into_iter().chain(flipped) {
                if wrong == *to {
                    continue;
                }
                memory.store(Offset::new(*link), wrong, Ordering::Relaxed);
                let check = pod.check();
                let mut violations = check.violations.iter();
                let reported = violations.any(|violation| violation.room == "structures");
                // A link to a later node skips some, which are no part of the map then.
                let later = wrong != itself && nodes.contains(&wrong);
                assert!(
                    reported || later,
                    "link {index} at {link:#x}: {to:#x} became {wrong:#x}"
                );
                // Where it leads to no node the memory may refuse an access.
                let walked = catch_unwind(AssertUnwindSafe(|| map.iter(&heap).count() as u64));
                rings += u64::from(reported && walked.is_ok_and(|entries| entries < ENTRIES));
                for (at, word) in &before {
                    memory.store(Offset::new(*at), *word, Ordering::Relaxed);
                }
            }
        }
        assert!(rings > 0, "no damage has ended a walk");
        // A search beyond a node that leads to itself does not loop either.
        let node = links[50].1;
        memory.store(Offset::new(node + 24), node, Ordering::Relaxed);
        let search = || (0..100 * ENTRIES).any(|key| key >= ENTRIES && map.contains(&heap, &key));
        assert!(catch_unwind(AssertUnwindSafe(search)).is_err());
        for (at, word) in &before {
            memory.store(Offset::new(*at), *word, Ordering::Relaxed);
        }
        drop(heap);
        drop(thread);
        process.leave().expect("no thread is a member");
        Pod::destroy(&path).expect("no process uses it");
    });
}

/// A pod, removed at the end.
struct Place(String);

impl Place {
    fn create(name: &str, size: u64) -> (Self, Pod) {
        let place = Self(format!("/dev/shm/outlive-{name}-{}", std::process::id()));
        let options = PodOptions::new().size(size).ids(8).groups(0);
        let pod = Pod::create(&place.0, options).expect("a pod");
        (place, pod)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = Pod::destroy_forcibly(&self.0);
    }
}

/// Returns the header of the named map or list `name`.
fn header_of(pod: &Pod, name: &str) -> Offset {
    let directory = Directory::open(pod.heap().unwrap()).unwrap().unwrap();
    let mut all = directory.observe().unwrap().into_iter();
    let found = all.find(|it| it.name == name).unwrap();
    Offset::from_raw(
        pod.segment()
            .memory()
            .load(found.contents, Ordering::Relaxed),
    )
}

/// Replaces the word `index` of the header at `at`, with the checksum that fits.
fn forge(memory: Native, at: Offset, index: u64, word: u64) {
    memory.store(at + index * 8, word, Ordering::Relaxed);
    let words = (0..7).map(|index| memory.load::<u64>(at + index * 8, Ordering::Relaxed));
    let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    memory.store(at + 56, xxh3_64_with_seed(&bytes, 0), Ordering::Relaxed);
}

#[test]
fn forged_sizes_of_keys_and_values_are_reported() {
    let (_place, pod) = Place::create("sizes", 1 << 20);
    {
        let session = pod.session().unwrap();
        let map = session.map::<u64, u64>("map").unwrap();
        map.insert(&1, &2).unwrap();
        let list = session.list::<u64, [u8; 100]>("list").unwrap();
        list.insert(&1, &[2; 100]).unwrap();
        list.replace(&1, &[3; 100]).unwrap();
    }
    let memory = pod.segment().memory();
    let directory = Directory::open(pod.heap().unwrap()).unwrap().unwrap();
    for name in ["map", "list"] {
        let at = header_of(&pod, name);
        for index in [5, 6] {
            let before: u64 = memory.load(at + index * 8, Ordering::Relaxed);
            let near_the_end = (0..80).map(|less| u64::MAX - less);
            for word in near_the_end.chain([1 << 63, 1 << 40, pod.segment().size() + 2]) {
                forge(memory, at, index, word);
                let check = pod.check();
                let mut violations = check.violations.iter();
                let reported = violations.any(|it| it.room == "structures");
                assert!(reported, "{name} {index} {word:#x}: {check:?}");
                let dump = directory.dump(name);
                assert!(dump.is_err(), "{dump:?}");
            }
            forge(memory, at, index, before);
        }
    }
    assert!(pod.check().is_clean());
}

/// One damaged word gives each map of a pod as many violations as it has entries. A bounded number
/// of them is reported, in a time that does not grow with its square.
#[test]
fn a_bounded_number_of_violations_is_reported() {
    const MAPS: usize = 20;
    within_a_minute(|| {
        let (_place, pod) = Place::create("violations", 16 << 20);
        let names: Vec<String> = (0..MAPS).map(|number| number.to_string()).collect();
        {
            let session = pod.session().unwrap();
            for name in &names {
                let map = session.map::<u64, u64>(name).unwrap();
                (0..1500).for_each(|key| map.insert(&key, &key).unwrap());
            }
        }
        let memory = pod.segment().memory();
        for name in &names {
            let at = header_of(&pod, name);
            let seed: u64 = memory.load(at + 16, Ordering::Relaxed);
            forge(memory, at, 2, seed ^ 1);
        }
        let check = pod.check();
        let violations = check.violations.iter();
        let reported = violations.filter(|it| it.room == "structures").count();
        assert_eq!(reported, MAPS * 1000);
    });
}
