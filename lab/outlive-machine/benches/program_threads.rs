//! Nanoseconds per operation of a thread that is Rust code: 64 threads take turns, as on a machine.
//!
//! Four mixes: stores only; loads in groups of 32 that overlap; loads each waited for (a switch
//! each); and the second with recorded values.

use std::hint::black_box;
use std::time::Instant;

use outlive_machine::program::{Coroutine, Cpu, Next, Op, Recording, Thread, Word};

const THREADS: usize = 64;
/// The operations of a thread in a run.
const OPERATIONS: u64 = 1 << 15;

fn main() {
    // Cargo passes `--bench`.
    let rounds = std::env::args()
        .filter_map(|word| word.parse().ok())
        .next()
        .unwrap_or(9);
    println!("{:24}  {:>12}", "mix", "ns/operation");
    measure("stores", rounds, Recording::Off, |cpu| {
        for word in 0..OPERATIONS {
            cpu.store(Word(word), word);
        }
    });
    let overlapping = |cpu: &mut Cpu<'_>| {
        for group in 0..OPERATIONS / 32 {
            let words = std::array::from_fn::<_, 32, _>(|word| Word(group * 32 + word as u64));
            black_box(cpu.load_all(words));
        }
    };
    measure("loads, 32 overlap", rounds, Recording::Off, overlapping);
    measure("loads, each waited for", rounds, Recording::Off, |cpu| {
        for word in 0..OPERATIONS {
            black_box(cpu.load(Word(word)));
        }
    });
    measure("loads, 32, recorded", rounds, Recording::On, overlapping);
}

/// Prints the median of the rounds.
fn measure(
    name: &str,
    rounds: usize,
    recording: Recording,
    body: impl Fn(&mut Cpu<'_>) + Send + Sync + Copy + 'static,
) {
    let mut times: Vec<f64> = (0..rounds)
        .map(|_| {
            let thread = |thread| Coroutine::new(thread, THREADS, recording, body);
            let mut threads: Vec<Coroutine> = (0..THREADS).map(thread).collect();
            let begun = Instant::now();
            let operations = run(&mut threads);
            begun.elapsed().as_nanos() as f64 / operations as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    println!("{name:24}  {:>12.1}", times[rounds / 2]);
}

/// Runs each thread as far as possible, answers its loads, and continues with the next, until all
/// have ended.
fn run(threads: &mut Vec<Coroutine>) -> u64 {
    let mut operations = 0;
    while !threads.is_empty() {
        threads.retain_mut(|thread| {
            let (mut loads, mut own) = (0, 0);
            let goes_on = loop {
                match thread.next() {
                    Next::Op(op) => {
                        own += 1;
                        loads += u64::from(matches!(op, Op::Load(_)));
                        if own == 64 {
                            break true;
                        }
                    }
                    Next::Waits => break true,
                    Next::Ended => break false,
                }
            };
            for value in 0..loads {
                thread.deliver(value);
            }
            operations += own;
            goes_on
        });
    }
    operations
}
