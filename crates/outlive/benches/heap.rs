//! What allocating and freeing a small object costs: a pair of 16, 64 and 256 bytes into a cell and out of it,
//! and a burst of 1000 objects, beside the program's own allocator, which survives nothing.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use outlive::heap::{self, Heap, LocalHeap};
use outlive::membership::{Generations, Instance, Level, Member, State, Status};
use outlive::memory::{Native, Offset, PersistenceDomain};
use outlive::recovery::{Logs, OwnLog, Recoverers};
use outlive::sync;
use std::alloc::{Layout, alloc, dealloc};
use std::hint::black_box;

const REGION: u64 = 256 << 20;
const SIZES: [u64; 3] = [16, 64, 256];
const BURST: u64 = 1000;
const CELLS: Offset = Offset::new(40 << 10);

struct Bench {
    member: Member,
    recoverers: Recoverers,
    heap: Heap,
}

impl Bench {
    fn new() -> Self {
        let state_bytes = Heap::<Native>::state_bytes(REGION).expect("a region");
        let (table, logs_at, state_at) = (Offset::new(0), Offset::new(4096), Offset::new(65536));
        let region = Offset::new((state_at.raw() + state_bytes).next_multiple_of(4096));
        let memory = Native::leaked(region.raw() + REGION, PersistenceDomain::Flushed);
        let generations = Generations::new(memory, table, 4);
        let logs = Logs::new(memory, logs_at, 4);
        let live = State {
            generation: 1,
            host: 0,
            level: Some(Level::Thread),
            status: Status::Live,
        };
        assert!(generations.transition(0, State::FREE, live));
        let (instance, log) = (Instance::new(0, 1), logs.at(0));
        // SAFETY: this thread alone acts as 0.1, and nobody raises its generation.
        let member = unsafe { Member::assume(memory, generations, instance, log, None) };
        OwnLog::open(&member).expect("a fresh log");
        let heap = Heap::create(memory, state_at, region, REGION).expect("a heap");
        let recoverers = heap::recoverers(sync::recoverers(logs));
        Self {
            member,
            recoverers: heap::recoverers_of(recoverers, heap),
            heap,
        }
    }
}

fn pairs(c: &mut Criterion) {
    let bench = Bench::new();
    let local = LocalHeap::of(bench.heap, &bench.member, &bench.recoverers);
    let mut group = c.benchmark_group("heap, a pair");
    for bytes in SIZES {
        group.bench_function(BenchmarkId::new("into a cell", bytes), |b| {
            b.iter(|| {
                local.allocate_into(black_box(bytes), CELLS).expect("room");
                local.free_from(black_box(CELLS), 0).expect("a block");
            });
        });
        let layout = Layout::from_size_align(bytes as usize, 16).expect("a layout");
        group.bench_function(BenchmarkId::new("the program's own", bytes), |b| {
            b.iter(|| {
                // SAFETY: the size is not 0; the block is freed once, by the layout that it has.
                unsafe {
                    let block = black_box(alloc(black_box(layout)));
                    dealloc(block, layout);
                }
            });
        });
    }
    group.finish();
}

fn bursts(c: &mut Criterion) {
    let bench = Bench::new();
    let local = LocalHeap::of(bench.heap, &bench.member, &bench.recoverers);
    let mut group = c.benchmark_group("heap, 1000 objects and back");
    group.throughput(Throughput::Elements(BURST));
    for bytes in SIZES {
        group.bench_function(BenchmarkId::new("into cells", bytes), |b| {
            b.iter(|| {
                for index in 0..BURST {
                    let cell = CELLS + index * 8;
                    local.allocate_into(black_box(bytes), cell).expect("room");
                }
                for index in 0..BURST {
                    local.free_from(CELLS + index * 8, 0).expect("a block");
                }
            });
        });
        let layout = Layout::from_size_align(bytes as usize, 16).expect("a layout");
        let mut blocks = Vec::with_capacity(BURST as usize);
        group.bench_function(BenchmarkId::new("the program's own", bytes), |b| {
            b.iter(|| {
                for _ in 0..BURST {
                    // SAFETY: the size is not 0.
                    blocks.push(unsafe { alloc(black_box(layout)) });
                }
                for block in blocks.drain(..) {
                    // SAFETY: it has this layout and is freed once.
                    unsafe { dealloc(block, layout) };
                }
            });
        });
    }
    group.finish();
}

criterion_group!(benches, pairs, bursts);
criterion_main!(benches);
