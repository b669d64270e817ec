//! What the hash map costs: insert and get of eight bytes to eight bytes by one thread, beside sharded
//! (dashmap) and lock-free (papaya) maps in private memory, alternating; and the longest single insertion while
//! each of them grows.
//!
//! `OUTLIVE_BENCH_ENTRIES` and `OUTLIVE_BENCH_ROUNDS` say how much (1,000,000 and 7).

use dashmap::DashMap;
use outlive::heap::{self, Heap, LocalHeap};
use outlive::membership::{Generations, Instance, Level, Member, State, Status};
use outlive::memory::{Native, Offset, PersistenceDomain};
use outlive::recovery::{Logs, OwnLog, Recoverers};
use outlive::structures::{self, Map};
use outlive::sync;
use std::hint::black_box;
use std::time::Instant;

struct Bench {
    member: Member,
    recoverers: Recoverers,
    heap: Heap,
}

impl Bench {
    fn new(region: u64) -> Self {
        let state = Offset::new(65536);
        let state_bytes = Heap::<Native>::state_bytes(region).expect("a region");
        let at = (state + state_bytes).raw().next_multiple_of(4096);
        let memory = Native::leaked(at + region, PersistenceDomain::Flushed);
        // As the allocator of the others does, see `main`.
        let base = memory.address(Offset::new(0), at + region);
        // SAFETY: advice about memory of our own.
        let advised = unsafe {
            libc::madvise(
                base.as_ptr().cast(),
                (at + region) as usize,
                libc::MADV_HUGEPAGE,
            )
        };
        assert_eq!(advised, 0);
        let generations = Generations::new(memory, Offset::new(0), 4);
        let logs = Logs::new(memory, Offset::new(4096), 4);
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
        let heap = Heap::create(memory, state, Offset::new(at), region).expect("a heap");
        let recoverers = heap::recoverers_of(heap::recoverers(sync::recoverers(logs)), heap);
        Self {
            member,
            recoverers: structures::recoverers(recoverers, heap),
            heap,
        }
    }
}

/// Keys in no order that a map could profit from.
fn key(index: u64) -> u64 {
    index.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Nanoseconds an insertion, the longest one, and nanoseconds a look-up.
struct Took {
    insert: f64,
    longest: u64,
    get: f64,
}

/// Inserts all keys, then looks each of them up, in another order; then inserts into a second map with a clock
/// in hand.
fn measure(
    entries: u64,
    mut insert: impl FnMut(u64, u64),
    mut get: impl FnMut(u64) -> u64,
    mut insert_again: impl FnMut(u64, u64),
) -> Took {
    let started = Instant::now();
    for index in 0..entries {
        insert(key(index), index);
    }
    let inserted = started.elapsed();
    let started = Instant::now();
    let mut sum = 0u64;
    for index in 0..entries {
        sum = sum.wrapping_add(get(key(index * 7919 % entries)));
    }
    black_box(sum);
    let got = started.elapsed();
    let mut longest = 0;
    for index in 0..entries {
        let started = Instant::now();
        insert_again(key(index), index);
        longest = longest.max(started.elapsed().as_nanos() as u64);
    }
    Took {
        insert: inserted.as_nanos() as f64 / entries as f64,
        longest,
        get: got.as_nanos() as f64 / entries as f64,
    }
}

fn outlive(heap: &LocalHeap<'_>, cells: &mut u64, entries: u64) -> Took {
    let mut make = || {
        *cells += 8;
        Map::<u64, u64>::create(heap, Offset::new(*cells)).expect("a map")
    };
    let (first, second) = (make(), make());
    let took = measure(
        entries,
        |key, value| first.insert(heap, &key, &value).expect("room"),
        |key| first.get(heap, &key).expect("inserted"),
        |key, value| second.insert(heap, &key, &value).expect("room"),
    );
    for map in [first, second] {
        assert_eq!(map.len(), entries);
        for index in 0..entries {
            map.remove(heap, &key(index)).expect("inserted");
        }
    }
    took
}

fn dash(entries: u64) -> Took {
    let (first, second) = (DashMap::new(), DashMap::new());
    measure(
        entries,
        |key, value| drop(first.insert(key, value)),
        |key| *first.get(&key).expect("inserted"),
        |key, value| drop(second.insert(key, value)),
    )
}

fn papaya(entries: u64) -> Took {
    let (first, second) = (papaya::HashMap::new(), papaya::HashMap::new());
    measure(
        entries,
        |key, value| drop(first.pin().insert(key, value).copied()),
        |key| *first.pin().get(&key).expect("inserted"),
        |key, value| drop(second.pin().insert(key, value).copied()),
    )
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

fn number(name: &str, otherwise: u64) -> u64 {
    let given = std::env::var(name).ok();
    given
        .and_then(|text| text.parse().ok())
        .unwrap_or(otherwise)
}

fn main() {
    let entries = number("OUTLIVE_BENCH_ENTRIES", 1_000_000);
    let rounds = number("OUTLIVE_BENCH_ROUNDS", 7);
    // Every round's pages stay with its maps, which are not taken down.
    let bench = Bench::new(
        (entries * 400 * (rounds + 1))
            .max(64 << 20)
            .next_multiple_of(4096),
    );
    let heap = LocalHeap::of(bench.heap, &bench.member, &bench.recoverers);
    let mut cells = 2048;
    let mut all: Vec<[Took; 3]> = Vec::new();
    // For a profiler.
    let alone = std::env::var_os("OUTLIVE_BENCH_ALONE").is_some();
    // The first round warms up.
    for _ in 0..=rounds {
        let own = outlive(&heap, &mut cells, entries);
        if alone {
            println!(
                "insert {:.0}, get {:.0}, longest insertion {}",
                own.insert, own.get, own.longest
            );
            continue;
        }
        all.push([own, dash(entries), papaya(entries)]);
    }
    if alone {
        return;
    }
    all.remove(0);
    println!("{entries} entries, {rounds} rounds, medians, ns");
    for (index, name) in ["outlive", "dashmap", "papaya"].into_iter().enumerate() {
        let of = |pick: fn(&Took) -> f64| median(all.iter().map(|row| pick(&row[index])).collect());
        let (insert, get) = (of(|took| took.insert), of(|took| took.get));
        let longest = of(|took| took.longest as f64);
        let ratio = |pick: fn(&Took) -> f64| {
            median(
                all.iter()
                    .map(|row| pick(&row[0]) / pick(&row[index]))
                    .collect(),
            )
        };
        println!(
            "{name}: insert {insert:.0} (outlive's is {:.2} of it), get {get:.0} ({:.2}), longest insertion {longest:.0}",
            ratio(|took| took.insert),
            ratio(|took| took.get),
        );
    }
}
