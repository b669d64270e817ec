//! Inspecting a worker pool from outside ends with a result, even if any of its words are damaged.

mod support;

use outlive::memory::{Memory, Offset, Ordering};
use outlive_tasks::{Options, WorkerPool, task};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;
use support::with_workers;

task! {
    fn waits_for_ever(context) {
        let never: u64 = context.input_of("never")?;
        context.result_of(&never)
    }

    fn doubles(context, number: u64) {
        context.result_of(&(number * 2))
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
