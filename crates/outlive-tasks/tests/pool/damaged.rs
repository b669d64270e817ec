//! Inspecting a worker pool from outside ends with a result, even if any of its words are damaged.

use crate::support::with_workers;
use outlive::memory::{Memory, Offset, Ordering};
use outlive::supervise::Stop;
use outlive_tasks::{Options, WorkerPool, task};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

static SPAWNED_RAN: AtomicBool = AtomicBool::new(false);

task! {
    fn waits_for_ever(context) {
        let never: u64 = context.input_of("never")?;
        context.result_of(&never)
    }

    fn doubles(context, number: u64) {
        context.result_of(&(number * 2))
    }

    fn spawns(context) {
        context.spawn(is_spawned())
    }

    fn is_spawned(_context) {
        SPAWNED_RAN.store(true, Ordering::Release);
        Ok(())
    }
}

/// A word and its new value: any, a small one, or that of another word.
fn change() -> impl Strategy<Value = (prop::sample::Index, u64, prop::sample::Index, bool)> {
    let value = prop_oneof![any::<u64>(), 0..64u64];
    (
        any::<prop::sample::Index>(),
        value,
        any::<prop::sample::Index>(),
        any::<bool>(),
    )
}

#[test]
fn every_damaged_pool_is_looked_at_to_the_end() {
    // An inspection that does not end aborts the test.
    let (done, ended) = channel::<()>();
    std::thread::spawn(move || {
        if ended.recv_timeout(Duration::from_secs(300)) == Err(RecvTimeoutError::Timeout) {
            eprintln!("an inspection of a damaged pool does not end");
            std::process::abort();
        }
    });
    with_workers("damaged", 0, Options::new(), |pod, heap, pool| {
        for number in 0..20 {
            pool.submit(heap, &format!("job {number}"), doubles(number))
                .unwrap();
        }
        pool.submit(heap, "waits", waits_for_ever().reads("never"))
            .unwrap();
        assert_eq!(WorkerPool::verify(pod, "pool").unwrap(), Some(Vec::new()));
        let memory = heap.memory();
        // The beginning of each block, where the important words are.
        let blocks = pool.blocks(heap).unwrap();
        let words = blocks
            .iter()
            .flat_map(|block| (0..16).map(move |word| *block + word * 8));
        let load = |at: Offset| memory.load::<u64>(at, Ordering::Relaxed);
        let sound: Vec<(Offset, u64)> = words.map(|at| (at, load(at))).collect();
        let mut found = 0;
        let mut runner = TestRunner::new(Config::with_cases(20_000));
        let changes = prop::collection::vec(change(), 1..6);
        let outcome = runner.run(&changes, |changes| {
            for (at, value, other, copied) in changes {
                let value = if copied { other.get(&sound).1 } else { value };
                memory.store(at.get(&sound).0, value, Ordering::Relaxed);
            }
            let _ = WorkerPool::inspect(pod, "pool");
            let _ = WorkerPool::verify(pod, "pool");
            for (at, word) in &sound {
                memory.store(*at, *word, Ordering::Relaxed);
            }
            Ok(())
        });
        for (at, word) in &sound {
            memory.store(*at, *word, Ordering::Relaxed);
        }
        outcome.unwrap();
        // Each word alone, for example one in the middle of the map of jobs.
        for (at, word) in &sound {
            memory.store(*at, !*word, Ordering::Relaxed);
            found += u32::from(
                !matches!(WorkerPool::verify(pod, "pool"), Ok(Some(findings)) if findings.is_empty()),
            );
            memory.store(*at, *word, Ordering::Relaxed);
        }
        println!("{found} of {} damaged words are noticed", sound.len());
        assert!(found > 100);
    });
    drop(done);
}

/// The first word of a pool's header, and the places of its first root and of a root's job.
const MAGIC: u64 = u64::from_le_bytes(*b"taskpol2");
const ROOTS: u64 = 0x400;
const JOB: u64 = 0x80;

#[test]
fn a_root_whose_job_is_at_an_impossible_offset_is_reported() {
    with_workers("root", 0, Options::new(), |pod, heap, pool| {
        pool.submit(heap, "job", doubles(1)).unwrap();
        let memory = heap.memory();
        let load = |at: Offset| memory.load::<u64>(at, Ordering::Relaxed);
        let blocks = pool.blocks(heap).unwrap();
        let header = blocks.into_iter().find(|block| load(*block) == MAGIC);
        let at = header.unwrap() + ROOTS + JOB;
        let before = load(at);
        for word in [1, memory.size() - 8, memory.size(), 1 << 63, u64::MAX] {
            memory.store(at, word, Ordering::Relaxed);
            let status = WorkerPool::inspect(pod, "pool").unwrap();
            assert!(status.open.is_empty(), "{status:?}");
            let found = WorkerPool::verify(pod, "pool").unwrap().unwrap();
            let is_it = found.iter().any(|it| it.contains("where no job can be"));
            assert!(is_it, "{word:#x}: {found:?}");
        }
        memory.store(at, before, Ordering::Relaxed);
        assert_eq!(WorkerPool::verify(pod, "pool").unwrap(), Some(Vec::new()));
    });
}

#[test]
fn a_ring_of_chunks_is_reported() {
    with_workers("ring", 0, Options::new(), |pod, heap, pool| {
        pool.submit(heap, "job", spawns()).unwrap();
        let stop = Stop::default();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !SPAWNED_RAN.load(Ordering::Acquire) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                stop.stop();
            });
            pool.work(heap, &stop).unwrap();
        });
        assert_eq!(WorkerPool::verify(pod, "pool").unwrap(), Some(Vec::new()));
        let memory = heap.memory();
        let mut rings = 0;
        for block in pool.blocks(heap).unwrap() {
            let before: u64 = memory.load(block, Ordering::Relaxed);
            // The first word of a chunk leads to the next one.
            memory.store(block, block.raw(), Ordering::Relaxed);
            let found = match WorkerPool::verify(pod, "pool") {
                Ok(found) => found.unwrap_or_default(),
                Err(error) => vec![error.to_string()],
            };
            if found.iter().any(|it| it.contains("in a ring")) {
                rings += 1;
                assert!(pool.blocks(heap).is_err());
            }
            let _ = WorkerPool::inspect(pod, "pool");
            memory.store(block, before, Ordering::Relaxed);
        }
        assert_eq!(rings, 1, "a worker has one chunk");
        assert_eq!(WorkerPool::verify(pod, "pool").unwrap(), Some(Vec::new()));
    });
}
