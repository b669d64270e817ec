//! The heap of a pod: laid out with it, reached by its threads, refused or reported when it is
//! damaged.

use outlive::membership::ProcessOptions;
use outlive::memory::{Memory, Native, Offset, Ordering};
use outlive::pod::{Pod, PodError, PodOptions};
use outlive::segment::{Area, AreaKind, CreateError};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::sync::atomic::AtomicU32;

/// A pod that is destroyed when the test ends.
struct Scene {
    pod: Pod,
    path: String,
}

impl Scene {
    fn new(options: PodOptions<'_>) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = format!("/dev/shm/outlive-heap-{}-{number}", std::process::id());
        let pod = Pod::create(&path, options).expect("a pod");
        Self { pod, path }
    }
}

impl core::ops::Deref for Scene {
    type Target = Pod;

    fn deref(&self) -> &Pod {
        &self.pod
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let destroyed = Pod::destroy_forcibly(&self.path);
        assert!(destroyed.is_ok() || std::thread::panicking());
    }
}

fn pod_of(bytes: u64) -> Scene {
    Scene::new(PodOptions::new().size(bytes).ids(8).groups(1))
}

fn area(pod: &Pod, kind: AreaKind) -> Area {
    pod.segment().area(kind).expect("the area")
}

#[test]
fn the_heap_has_the_payload_and_its_state_fits() {
    for bytes in [1 << 20, 3_000_000, 64 << 20] {
        let pod = pod_of(bytes);
        let heap = pod.heap().expect("a heap");
        let (state, payload) = (
            area(&pod, AreaKind::HeapState),
            area(&pod, AreaKind::Payload),
        );
        assert_eq!(heap.buddy().region(), payload.offset);
        assert!(payload.size - heap.buddy().bytes() < 16 << 10);
        assert!(payload.end() + 2 * 4096 > pod.segment().size());
        assert!(state.size * 40 < payload.size + (1 << 20), "{state:?}");
        let check = pod.check();
        assert!(check.is_clean(), "{:#?}", check.violations);
        let statistics = check.heap.expect("it was looked at").statistics;
        assert_eq!(statistics.region.free_bytes, heap.buddy().bytes());
    }
    let small = PodOptions::new().size(96 << 10).ids(8).groups(0).events(1);
    let refused = Pod::create("memfd:small", small).unwrap_err();
    assert!(
        matches!(&refused, PodError::Create(CreateError::Layout(_))),
        "{refused}"
    );
}

#[test]
fn threads_allocate_retire_and_leave_nothing() {
    let pod = pod_of(4 << 20);
    let process = pod.join(ProcessOptions::on_host(0)).expect("joining");
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let thread = process.enter(None, "worker").expect("a thread joins");
                let heap = thread.heap(&pod).expect("a heap");
                let memory = thread.memory();
                for _ in 0..1000 {
                    let block = heap
                        .allocate_into(64, heap.pending_cell(0))
                        .expect("enough free space");
                    memory.store(block, heap.era(), Ordering::Relaxed);
                    let pin = heap.pin();
                    // As a member that took it out of a structure.
                    memory.store(heap.pending_cell(0), 0u64, Ordering::Relaxed);
                    heap.retire(block);
                    drop(pin);
                }
            });
        }
    });
    // The next member frees a block that one had to leave because another was reading.
    let thread = process.enter(None, "last").expect("a thread joins");
    thread.heap(&pod).expect("a heap").reclaim();
    drop(thread);
    process.leave().expect("no thread is a member");
    let check = pod.check();
    assert!(check.is_clean(), "{:#?}", check.violations);
    let heap = check.heap.expect("a heap");
    let allocated: u64 = heap.statistics.classes.iter().map(|c| c.allocated).sum();
    assert_eq!((heap.retired, allocated), (0, 0));
}

#[test]
fn a_thread_has_one_way_to_the_heap_of_its_own_pod() {
    let (pod, other) = (pod_of(1 << 20), pod_of(1 << 20));
    let process = pod.join(ProcessOptions::on_host(0)).expect("joining");
    let thread = process.enter(None, "t").expect("a thread joins");
    assert!(matches!(
        thread.heap(&other),
        Err(PodError::Stranger { .. })
    ));
    let bare = PodOptions::new().size(1 << 20).ids(8).without_heap();
    let bare = Scene::new(bare);
    assert!(bare.heap().is_none() && bare.check().heap.is_none());
    assert!(matches!(thread.heap(&bare), Err(PodError::NoHeap { .. })));
    let heap = thread.heap(&pod).expect("a heap");
    let member = thread.instance();
    let twice = thread.heap(&pod).map(drop).unwrap_err();
    assert!(matches!(&twice, PodError::SecondWay(second) if second.member == member));
    assert!(
        twice.to_string().contains("has a LocalHeap already"),
        "{twice}"
    );
    drop(heap);
    assert!(thread.heap(&pod).is_ok());
}

#[test]
fn a_damaged_header_is_refused_by_name() {
    let pod = pod_of(1 << 20);
    let (memory, at) = (
        pod.segment().memory(),
        area(&pod, AreaKind::HeapState).offset,
    );
    for word in [0u64, 8, 16, 24] {
        let old: u64 = memory.load(at + word, Ordering::Relaxed);
        memory.store(at + word, old ^ 0x1000, Ordering::Relaxed);
        let refused = Pod::of(pod.segment()).map(drop).unwrap_err();
        assert!(matches!(&refused, PodError::Heap { .. }), "{refused}");
        memory.store(at + word, old, Ordering::Relaxed);
    }
    assert!(Pod::of(pod.segment()).is_ok());
}

/// A pod with blocks in its heap, and the words that describe it.
fn used() -> (Scene, Vec<(Offset, u64)>) {
    let pod = pod_of(1 << 20);
    let process = pod.join(ProcessOptions::on_host(0)).expect("joining");
    let thread = process.enter(None, "t").expect("a thread joins");
    let heap = thread.heap(&pod).expect("a heap");
    for (cell, bytes) in [(0, 24), (1, 500), (2, 40_000)] {
        heap.allocate_into(bytes, heap.pending_cell(cell))
            .expect("room");
    }
    drop(heap);
    drop(thread);
    process.leave().expect("no thread is a member");
    let memory: Native = pod.segment().memory();
    let state = area(&pod, AreaKind::HeapState);
    let state = (0..state.size / 8).map(|word| state.offset + word * 8);
    // The heap's data in the scratch areas of the logs.
    let rooms = (0..8).flat_map(|id| {
        let room = pod.logs().of(id).room();
        (0..64).map(move |word| room + word * 8)
    });
    let words = state.chain(rooms);
    let words = words.map(|at| (at, memory.load(at, Ordering::Relaxed)));
    let words = words.collect();
    (pod, words)
}

/// Any values in the words that describe the heap: it is refused, or the check completes.
#[test]
fn any_words_are_refused_or_checked() {
    let (pod, words) = used();
    let (memory, size) = (pod.segment().memory(), pod.segment().size());
    let change = (any::<prop::sample::Index>(), any::<u64>(), any::<u8>());
    let changes = prop::collection::vec(change, 1..20);
    let mut runner = TestRunner::new(ProptestConfig::with_cases(64));
    let ran = runner.run(&changes, |changes| {
        for (index, value, shift) in changes {
            let (at, old) = *index.get(&words);
            // Any word, a near miss, or an offset inside the segment.
            let value = match shift % 3 {
                0 => value,
                1 => old ^ 1 << (shift / 3 % 64),
                _ => value % size,
            };
            memory.store(at, value, Ordering::Relaxed);
        }
        if let Ok(again) = Pod::of(pod.segment()) {
            let _ = again.check().violations.len();
        }
        for (at, old) in &words {
            memory.store(*at, *old, Ordering::Relaxed);
        }
        let check = pod.check();
        prop_assert!(check.is_clean(), "{:?}", check.violations);
        Ok(())
    });
    ran.unwrap();
}
