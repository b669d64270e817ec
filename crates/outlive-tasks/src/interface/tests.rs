//! Tests that other programs cannot open a pool, and that nothing remains of a pool whose creation
//! failed or that was destroyed.

use super::*;
use crate::task;
use outlive::membership::ProcessOptions;
use outlive::memory::{Memory, Ordering};
use outlive::pod::PodOptions;

task! {
    fn something(_context, number: u64) {
        let _ = number;
        Ok(())
    }
}

struct Place(String);

impl Drop for Place {
    fn drop(&mut self) {
        let _ = Pod::destroy_forcibly(&self.0);
    }
}

#[test]
fn another_program_is_refused_and_nothing_is_left_of_what_failed() {
    let place = Place(format!(
        "/dev/shm/outlive-tasks-unit-{}",
        std::process::id()
    ));
    let pod = Pod::create(&place.0, PodOptions::new().size(32 << 20).ids(16)).unwrap();
    let process = pod.join(ProcessOptions::on_host(0)).unwrap();
    let member = process.enter(None, "caller").unwrap();
    let heap = member.heap(&pod).unwrap();
    let reachable = |pool: Option<WorkerPool>| {
        let mut blocks = pool.map_or_else(Vec::new, |pool| pool.blocks(&heap).unwrap());
        let roots = pod.roots().list().unwrap();
        blocks.extend(roots.iter().map(|root| root.offset));
        let report = pod.heap().unwrap().check_reachable(blocks);
        assert!(report.is_clean(), "{report}");
    };
    let unknown = WorkerPool::open(&pod, "p").unwrap_err().to_string();
    assert!(unknown.contains("no worker pool `p`"), "{unknown}");
    let impossible = Options::new().capacity(100_000);
    assert!(WorkerPool::create(&pod, &heap, "p", impossible).is_err());
    reachable(None);
    let pool = WorkerPool::create(&pod, &heap, "p", Options::new()).unwrap();
    let exists = WorkerPool::create(&pod, &heap, "p", Options::new());
    assert!(matches!(exists, Err(PoolError::Exists { .. })));
    pool.submit(&heap, "job", something(1)).unwrap();
    pool.put(&heap, "data", &[1; 100]).unwrap();
    WorkerPool::open(&pod, "p").unwrap();
    reachable(Some(pool));
    // As if a program with another set of tasks had created it.
    let at = pool.layout.at + 0x10;
    let memory = heap.memory();
    let fingerprint: u64 = memory.load(at, Ordering::Relaxed);
    memory.store(at, fingerprint ^ 1, Ordering::Relaxed);
    let text = pool.layout.text_block();
    let line = "another::task(x: u8) [1]";
    memory.store(text, line.len() as u64, Ordering::Relaxed);
    memory.copy_in(text + 8, line.as_bytes());
    let refused = WorkerPool::open(&pod, "p").unwrap_err().to_string();
    assert!(
        refused.contains("lacks `another::task(x: u8)`")
            && refused.contains("something(number: u64)`")
            && refused.contains(", which the pool lacks"),
        "{refused}"
    );
    WorkerPool::destroy(&pod, &heap, "p").unwrap();
    reachable(None);
    assert!(matches!(
        WorkerPool::destroy(&pod, &heap, "p"),
        Err(PoolError::Unknown { .. })
    ));
    drop(heap);
    drop(member);
    process.leave().unwrap();
}

#[test]
fn a_pool_that_its_dead_maker_has_in_hand_still_is_not_taken_apart_for_another_one() {
    let place = Place(format!(
        "/dev/shm/outlive-tasks-unit-hand-{}",
        std::process::id()
    ));
    let pod = Pod::create(&place.0, PodOptions::new().size(32 << 20).ids(16)).unwrap();
    let process = pod.join(ProcessOptions::on_host(0)).unwrap();
    let member = process.enter(None, "caller").unwrap();
    let heap = member.heap(&pod).unwrap();
    let (memory, hand) = (heap.memory(), header::pending_header(&pod, &heap));
    let a = WorkerPool::create(&pod, &heap, "a", Options::new()).unwrap();
    a.submit(&heap, "job", something(1)).unwrap();
    // As if the creator had died right after the pool was published, or before it was unpublished.
    memory.store(hand, a.layout.at.raw(), Ordering::Relaxed);
    let b = WorkerPool::create(&pod, &heap, "b", Options::new()).unwrap();
    assert_ne!(a.layout.at, b.layout.at);
    memory.store(hand, a.layout.at.raw(), Ordering::Relaxed);
    WorkerPool::destroy(&pod, &heap, "b").unwrap();
    let a = WorkerPool::open(&pod, "a").unwrap();
    assert!(a.job(&heap, "job").is_some());
    assert_eq!(a.check(&heap), Vec::<String>::new());
    assert_eq!(WorkerPool::names(&pod).unwrap(), ["a"]);
    WorkerPool::destroy(&pod, &heap, "a").unwrap();
    assert_eq!(memory.load::<u64>(hand, Ordering::Relaxed), 0);
}

#[test]
fn who_destroys_a_pool_takes_it_out_of_the_hands_of_the_dead() {
    let place = Place(format!(
        "/dev/shm/outlive-tasks-unit-hands-{}",
        std::process::id()
    ));
    let pod = Pod::create(&place.0, PodOptions::new().size(32 << 20).ids(16)).unwrap();
    let process = pod.join(ProcessOptions::on_host(0)).unwrap();
    let member = process.enter(None, "maker").unwrap();
    let heap = member.heap(&pod).unwrap();
    let (memory, hand) = (heap.memory(), header::pending_header(&pod, &heap));
    let pool = WorkerPool::create(&pod, &heap, "p", Options::new()).unwrap();
    // As if its creator had died right after it was published.
    memory.store(hand, pool.layout.at.raw(), Ordering::Relaxed);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let member = process.enter(None, "destroyer").unwrap();
            let heap = member.heap(&pod).unwrap();
            WorkerPool::destroy(&pod, &heap, "p").unwrap();
        });
        other.join().unwrap();
    });
    // Otherwise the creator's id would later dismantle the object that is there by then.
    assert_eq!(memory.load::<u64>(hand, Ordering::Relaxed), 0);
    let again = WorkerPool::create(&pod, &heap, "again", Options::new()).unwrap();
    assert_eq!(again.check(&heap), Vec::<String>::new());
}

/// Calls `body` with a new pool in a pod, and a heap handle.
fn with_pool(name: &str, body: impl FnOnce(&Pod, &LocalHeap<'_>, WorkerPool)) {
    let place = Place(format!(
        "/dev/shm/outlive-tasks-unit-{name}-{}",
        std::process::id()
    ));
    let pod = Pod::create(&place.0, PodOptions::new().size(32 << 20).ids(16)).unwrap();
    let process = pod.join(ProcessOptions::on_host(0)).unwrap();
    let member = process.enter(None, "caller").unwrap();
    let heap = member.heap(&pod).unwrap();
    let pool = WorkerPool::create(&pod, &heap, "p", Options::new()).unwrap();
    body(&pod, &heap, pool);
}

/// Returns the errors of all operations that take the pool `p` by its name.
fn refusals(pod: &Pod, heap: &LocalHeap<'_>) -> [String; 5] {
    let said = |error: PoolError| error.to_string();
    [
        WorkerPool::open(pod, "p").map(drop).map_err(said),
        WorkerPool::inspect(pod, "p").map(drop).map_err(said),
        WorkerPool::verify(pod, "p").map(drop).map_err(said),
        WorkerPool::request(pod, heap, "p", 1)
            .map(drop)
            .map_err(said),
        WorkerPool::destroy(pod, heap, "p").map_err(said),
    ]
    .map(Result::unwrap_err)
}

#[test]
fn a_pool_whose_slots_have_owners_that_cannot_be_is_refused() {
    with_pool("owners", |pod, heap, pool| {
        let (memory, slots) = (heap.memory(), pool.layout.slots);
        let me = heap.instance();
        let next = me.to_word() + (1 << 32);
        let beyond = (1 << 32) | u64::from(pod.tables().generations().capacity());
        let last = slots.settings().capacity - 1;
        for number in [0, last] {
            let at = slots.slot(number).owner_at();
            // No generation; a guest without instance; an id beyond the pod's; a future generation;
            // any word.
            for word in [5, 1 << 31, beyond, (1 << 32) | 0x7FFF_0003, next, u64::MAX] {
                memory.store(at, word, Ordering::Relaxed);
                for said in refusals(pod, heap) {
                    let expected =
                        format!("the word {word:#x} at {at} is not a valid owner of a worker slot");
                    assert!(said.contains(&expected), "{word:#x}: {said}");
                    assert!(said.contains("outlive pod check"), "{said}");
                }
                // A handle that was opened before finds it, too.
                let found = pool.check(heap).join("; ");
                assert!(
                    found.contains("not a valid owner of a worker slot"),
                    "{found}"
                );
            }
            // Every present or former member may be an owner, and a guest.
            for word in [me.to_word(), me.to_word() | 1 << 31, 0] {
                memory.store(at, word, Ordering::Relaxed);
                WorkerPool::open(pod, "p").unwrap();
            }
        }
        assert_eq!(pool.check(heap), Vec::<String>::new());
        WorkerPool::destroy(pod, heap, "p").unwrap();
    });
}

#[test]
fn a_pool_whose_slots_are_of_an_older_format_is_refused_by_it() {
    with_pool("format", |pod, heap, pool| {
        let (memory, at) = (heap.memory(), pool.layout.slots.at());
        let word: u64 = memory.load(at, Ordering::Relaxed);
        memory.store(at, u64::from_le_bytes(*b"outtasks"), Ordering::Relaxed);
        for said in refusals(pod, heap) {
            let expected = format!(
                "at {at} does not hold worker slots: it has format 1, but this Outlive reads format 2"
            );
            assert!(said.contains(&expected), "{said}");
        }
        memory.store(at, word, Ordering::Relaxed);
        // The same for the header of the pool.
        let at = pool.layout.at;
        let word: u64 = memory.load(at, Ordering::Relaxed);
        memory.store(at, u64::from_le_bytes(*b"taskpool"), Ordering::Relaxed);
        let refused = WorkerPool::open(pod, "p").unwrap_err().to_string();
        let expected = format!(
            "at {at} does not hold a worker pool: it has format 1, but this Outlive reads format 2"
        );
        assert!(refused.contains(&expected), "{refused}");
        memory.store(at, word, Ordering::Relaxed);
        WorkerPool::destroy(pod, heap, "p").unwrap();
    });
}
