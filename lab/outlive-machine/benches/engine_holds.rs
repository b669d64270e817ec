//! Holds (take the next event, schedule another) per second of CPU time: the timing wheel next to a
//! binary heap.
//!
//! The two take turns within one run, and the medians of the rounds are printed. Delays are drawn
//! beforehand, in two ways: as a machine has them (60% up to 20 ns for caches, 30% from 100 to 200
//! for the fabric, 10% about 500 for persistent memory), and evenly up to 200 ns. An optional
//! argument sets the number of rounds.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hint::black_box;

use outlive_machine::engine::{EventQueue, Random, Time};

const HOLDS: usize = 1 << 20;
/// A target and a payload, as a machine's event has.
type Event = (u32, u64);

fn main() {
    // Cargo passes `--bench`.
    let rounds = std::env::args()
        .filter_map(|word| word.parse().ok())
        .next()
        .unwrap_or(9);
    println!(
        "{:>8}  {:>8}  {:>10}  {:>10}  {:>6}",
        "delays", "pending", "wheel, M/s", "heap, M/s", "ratio"
    );
    compare("machine", rounds, machine_delay);
    compare("even", rounds, |random| random.below(200_000));
}

fn compare(name: &str, rounds: usize, delay: fn(&mut Random) -> u64) {
    let mut random = Random::new(1);
    let delays: Vec<Time> = (0..HOLDS)
        .map(|_| Time::from_picos(delay(&mut random)))
        .collect();
    for pending in [256, 1_024, 8_192] {
        let mut wheel = filled_wheel(pending, &delays);
        let mut heap = filled_heap(pending, &delays);
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            theirs.push(rate(|| hold_heap(&mut heap, &delays)));
            ours.push(rate(|| hold_wheel(&mut wheel, &delays)));
        }
        let (ours, theirs) = (median(ours), median(theirs));
        println!(
            "{name:>8}  {pending:>8}  {ours:>10.1}  {theirs:>10.1}  {:>6.2}",
            ours / theirs
        );
    }
}

fn machine_delay(random: &mut Random) -> u64 {
    match random.below(1_000) {
        0..600 => random.below(20_000),
        600..900 => 100_000 + random.below(100_000),
        _ => 500_000 + random.below(10_000),
    }
}

fn filled_wheel(pending: usize, delays: &[Time]) -> EventQueue<Event> {
    let mut queue = EventQueue::with_capacity(pending);
    for (at, &delay) in delays[..pending].iter().enumerate() {
        queue.schedule(delay, (at as u32, at as u64));
    }
    queue
}

fn hold_wheel(queue: &mut EventQueue<Event>, delays: &[Time]) {
    for &delay in delays {
        let (time, event) = queue.pop().expect("each hold schedules another");
        black_box(time);
        queue.schedule(delay, black_box(event));
    }
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    time: Time,
    sequence: u64,
    event: Event,
}

struct Heap {
    entries: BinaryHeap<Reverse<Entry>>,
    sequence: u64,
}

fn filled_heap(pending: usize, delays: &[Time]) -> Heap {
    let entries = delays[..pending].iter().enumerate();
    let entries = entries.map(|(at, &time)| {
        Reverse(Entry {
            time,
            sequence: at as u64,
            event: (at as u32, at as u64),
        })
    });
    Heap {
        entries: entries.collect(),
        sequence: pending as u64,
    }
}

fn hold_heap(heap: &mut Heap, delays: &[Time]) {
    for &delay in delays {
        let Reverse(entry) = heap.entries.pop().expect("each hold schedules another");
        let event = black_box(entry.event);
        heap.entries.push(Reverse(Entry {
            time: entry.time + delay,
            sequence: heap.sequence,
            event,
        }));
        heap.sequence += 1;
    }
}

/// Million holds per second of CPU time.
fn rate(work: impl FnOnce()) -> f64 {
    let before = processor_nanos();
    work();
    HOLDS as f64 * 1e3 / (processor_nanos() - before).max(1) as f64
}

/// Returns this thread's processor time, as Linux counts it; other threads hardly disturb it.
fn processor_nanos() -> u64 {
    let counts = std::fs::read_to_string("/proc/thread-self/schedstat")
        .expect("Linux counts processor time");
    counts
        .split(' ')
        .next()
        .and_then(|nanos| nanos.parse().ok())
        .expect("its first number is in nanoseconds")
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}
