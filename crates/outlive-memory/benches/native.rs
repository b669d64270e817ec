//! Compares `Native` with the bare atomics of the standard library: no difference can be measured.

use criterion::{Criterion, criterion_group, criterion_main};
use outlive_memory::{Memory, Native, Offset, Ordering, PersistenceDomain};
use std::hint::black_box;
use std::sync::atomic::AtomicU64;

const LINES: u64 = 1024;

fn through_memory<M: Memory>(memory: M) -> u64 {
    let mut sum = 0;
    for line in 0..LINES {
        sum += memory.load::<u64>(Offset::new(line * 64), Ordering::Acquire);
    }
    sum
}

fn bare(words: &[AtomicU64]) -> u64 {
    let mut sum = 0;
    for line in 0..LINES {
        sum += words[line as usize * 8].load(Ordering::Acquire);
    }
    sum
}

fn compare(c: &mut Criterion) {
    let memory = Native::leaked(LINES * 64, PersistenceDomain::Flushed);
    let start = memory
        .address(Offset::new(0), LINES * 64)
        .cast::<AtomicU64>();
    // SAFETY: leaked memory of that size, accessed by 64-bit atomics only.
    let words = unsafe { std::slice::from_raw_parts(start.as_ptr(), LINES as usize * 8) };

    let mut group = c.benchmark_group("load of 1024 lines");
    group.bench_function("bare atomics", |b| b.iter(|| bare(black_box(words))));
    group.bench_function("Native", |b| b.iter(|| through_memory(black_box(memory))));
    group.bench_function("bare atomics again", |b| b.iter(|| bare(black_box(words))));
    group.finish();

    let mut group = c.benchmark_group("compare-and-swap and release");
    let at = Offset::new(64);
    group.bench_function("bare atomics", |b| {
        let word = &words[8];
        b.iter(|| {
            let won = word
                .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
                .is_ok();
            word.store(0, Ordering::Release);
            won
        })
    });
    group.bench_function("Native", |b| {
        b.iter(|| {
            let (ok, no) = (Ordering::Acquire, Ordering::Relaxed);
            let won = memory
                .compare_exchange(black_box(at), 0u64, 1, ok, no)
                .is_ok();
            memory.store(black_box(at), 0u64, Ordering::Release);
            won
        })
    });
    group.finish();
}

criterion_group!(benches, compare);
criterion_main!(benches);
