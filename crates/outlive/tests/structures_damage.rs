//! A walk over a map with a damaged link ends, and the pod's check reports the damage.

use outlive::membership::ProcessOptions;
use outlive::memory::{Memory, Offset, Ordering};
use outlive::pod::{Pod, PodOptions};
use outlive::segment::AreaKind;
use outlive::structures::Map;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

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
