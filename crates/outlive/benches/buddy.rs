//! What the buddy allocator costs: 100 objects of 1 to 16 MB, as in LUPIN's §5 (1.6 and 2.0 µs there), and
//! 1 MB beside 16 MB. Prints means over whole rounds, of which each allocates and frees all objects.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use outlive::heap;
use outlive::heap::buddy::Buddy;
use outlive::membership::{Generations, Instance, Level, Member, State, Status};
use outlive::memory::{Native, Offset, PersistenceDomain};
use outlive::recovery::{Logs, OwnLog, Recoverers};
use outlive::sync;
use std::hint::black_box;
use std::time::{Duration, Instant};

const OBJECTS: u64 = 100;
const MB: u64 = 1 << 20;
const UNIT: u64 = 4096;
/// The blocks are never touched, so a region of this size takes no memory.
const REGION: u64 = 4 << 30;

struct Bench {
    member: Member,
    recoverers: Recoverers,
    heap: Buddy,
}

impl Bench {
    fn new() -> Self {
        let metadata = Buddy::<Native>::metadata_bytes(REGION, UNIT).expect("a region");
        let (table, logs_at, metadata_at) = (Offset::new(0), Offset::new(4096), Offset::new(65536));
        let region = Offset::new((metadata_at.raw() + metadata).next_multiple_of(4096));
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
        let heap = Buddy::create(memory, metadata_at, region, REGION, UNIT).expect("a heap");
        Self {
            member,
            recoverers: heap::recoverers(sync::recoverers(logs)),
            heap,
        }
    }

    /// Allocates an object of each size, then frees them all: how long each half took.
    fn round(&self, sizes: &[u64], blocks: &mut Vec<Offset>) -> (Duration, Duration) {
        let (heap, member, by) = (&self.heap, &self.member, &self.recoverers);
        let started = Instant::now();
        for size in sizes {
            let block = heap.allocate(member, by, black_box(*size));
            blocks.push(block.expect("there is room"));
        }
        let allocated = Instant::now();
        for block in blocks.drain(..) {
            heap.free(member, by, black_box(block)).expect("a block");
        }
        (allocated - started, allocated.elapsed())
    }
}

/// 1 to 16 MB in turn.
fn mixed() -> Vec<u64> {
    (0..OBJECTS)
        .map(|object| (object * 7 % 16 + 1) * MB)
        .collect()
}

fn means(c: &mut Criterion) {
    let bench = Bench::new();
    let mut blocks = Vec::with_capacity(OBJECTS as usize);
    let mut group = c.benchmark_group("buddy, 100 objects");
    group.throughput(Throughput::Elements(OBJECTS));
    let sizes = [
        ("1 to 16 MB", mixed()),
        ("1 MB", vec![MB; OBJECTS as usize]),
        ("16 MB", vec![16 * MB; OBJECTS as usize]),
        ("1 MB again", vec![MB; OBJECTS as usize]),
    ];
    for (name, sizes) in &sizes {
        for (half, free) in [("allocate", false), ("free", true)] {
            group.bench_function(BenchmarkId::new(half, name), |b| {
                b.iter_custom(|rounds| {
                    (0..rounds)
                        .map(|_| {
                            let took = bench.round(sizes, &mut blocks);
                            if free { took.1 } else { took.0 }
                        })
                        .sum()
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, means);
criterion_main!(benches);
