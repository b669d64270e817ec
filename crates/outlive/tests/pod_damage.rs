//! Any damage to the words of a pod outside its payload: the pod is refused, or the check
//! completes.

use outlive::membership::ProcessOptions;
use outlive::memory::{Memory, Native, Offset, Ordering};
use outlive::pod::{Pod, PodOptions};
use outlive::segment::AreaKind;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::cell::Cell;

/// The superblock was read when the segment was opened; `segment_refusals` damages that.
const FIRST: u64 = 4096;

/// A pod that has had members, and every word before its payload.
fn used(path: &str) -> (Pod, Vec<(Offset, u64)>) {
    let options = PodOptions::new().size(512 << 10).ids(8).groups(2).events(4);
    let pod = Pod::create(path, options).expect("a pod");
    let process = pod.join(ProcessOptions::on_host(0)).expect("joining");
    let thread = process.enter(None, "t").expect("a thread joins");
    drop(thread);
    process.leave().expect("no thread is a member");
    let memory: Native = pod.segment().memory();
    let payload = pod.segment().area(AreaKind::Payload).expect("a payload");
    let places = (FIRST..payload.offset.byte()).step_by(8).map(Offset::new);
    let words = places.map(|at| (at, memory.load(at, Ordering::Relaxed)));
    let words = words.collect();
    (pod, words)
}

#[test]
fn any_words_are_refused_or_checked() {
    let path = format!("/dev/shm/outlive-damage-{}", std::process::id());
    let (pod, words) = used(&path);
    let (memory, size) = (pod.segment().memory(), pod.segment().size());
    // Half of the changes hit words with meaning.
    let telling: Vec<(Offset, u64)> = words
        .iter()
        .copied()
        .filter(|(_, word)| *word != 0)
        .collect();
    let change = (
        any::<prop::sample::Index>(),
        any::<bool>(),
        any::<u64>(),
        any::<u8>(),
    );
    let changes = prop::collection::vec(change, 1..12);
    let found = Cell::new(0);
    let mut runner = TestRunner::new(ProptestConfig::with_cases(128));
    let ran = runner.run(&changes, |changes| {
        for (index, tells, value, how) in changes {
            let (at, old) = *index.get(if tells { &telling } else { &words });
            // Any word, a near miss, or an offset inside the segment.
            let value = match how % 3 {
                0 => value,
                1 => old ^ 1 << (how / 3 % 64),
                _ => value % size,
            };
            memory.store(at, value, Ordering::Relaxed);
        }
        match Pod::of(pod.segment()) {
            Ok(again) => {
                let _ = again.status();
                found.set(found.get() + u32::from(!again.check().is_clean()));
            }
            Err(_) => found.set(found.get() + 1),
        }
        for (at, old) in &words {
            memory.store(*at, *old, Ordering::Relaxed);
        }
        let check = pod.check();
        prop_assert!(check.is_clean(), "{:?}", check.violations);
        Ok(())
    });
    Pod::destroy(&path).expect("no process uses it");
    ran.unwrap();
    println!("{} of 128 were found out", found.get());
    assert!(found.get() > 20, "a check that finds nothing");
}

/// Every word of the heap's state becomes the largest number, which no sum may overflow.
#[test]
fn the_largest_words_of_the_heap_are_checked() {
    let paths = ["largest", "largest-copy"]
        .map(|name| format!("/dev/shm/outlive-{name}-{}", std::process::id()));
    let options = PodOptions::new().size(512 << 10).ids(8).groups(1).events(4);
    let original = Pod::create(&paths[0], options).expect("a pod");
    {
        let session = original.session().expect("joining");
        let words = { session.map::<u64, u64>("words") }.expect("enough free space");
        words.insert(&1, &1).expect("enough free space");
        words.remove(&1);
        // The threads of the session do not use the copy, which has a retired block.
        std::fs::copy(&paths[0], &paths[1]).expect("a copy");
    }
    let pod = Pod::open(&paths[1]).expect("a pod");
    let check = pod.check();
    assert!(check.is_clean() && check.heap.is_some_and(|it| it.retired > 0));
    let memory: Native = pod.segment().memory();
    let area = pod.segment().area(AreaKind::HeapState).expect("a heap");
    for at in (area.offset.raw()..area.end()).step_by(8).map(Offset::new) {
        let word: u64 = memory.load(at, Ordering::Relaxed);
        memory.store(at, u64::MAX, Ordering::Relaxed);
        let _ = pod.check();
        let _ = pod.status();
        memory.store(at, word, Ordering::Relaxed);
    }
    assert!(pod.check().is_clean());
    drop(pod);
    Pod::destroy(&paths[0]).expect("no process uses it");
    let _ = Pod::destroy_forcibly(&paths[1]);
    let _ = std::fs::remove_file(&paths[1]);
}
