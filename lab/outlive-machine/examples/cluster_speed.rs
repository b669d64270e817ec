//! Measures the speed of simulated clusters: the paper's machine of 16 nodes with 64 threads, on
//! this host's clock.
//!
//! `cargo run --release -p outlive-machine --example cluster_speed [million instructions] [name]`

use std::time::Instant;

use outlive_machine::cluster::{self, Cluster, Workload};
use outlive_machine::description::{Description, Protocol};
use outlive_machine::engine::Random;
use outlive_machine::program::{Image, Next, Op, Synchronisation, Thread, Word};

const THREADS: u64 = 64;

/// The endless operations of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mix {
    /// Nearly all in the L1: sums over 16 KiB of its own part, some private data.
    Hits,
    /// Reads random words of 512 MiB.
    Misses,
    /// Records of 1 KiB, at random: 80% read, 20% written, word by word, with some computation for
    /// each word.
    Ycsb,
    /// Rows of a grid: five loads and a store for each point, with computation.
    Stencil,
}

/// Operations of a mix, one after another.
#[derive(Clone, Debug)]
struct Source {
    mix: Mix,
    random: Random,
    thread: u64,
    left: u64,
    /// The position, the progress, and whether it is written, of the record or point.
    at: u64,
    step: u64,
    writes: bool,
}

const RECORDS: u64 = 500_000;
const RECORD_WORDS: u64 = 128;
const ROW: u64 = 2_050;

impl Source {
    fn op(&mut self) -> Op {
        let step = self.step;
        self.step += 1;
        match self.mix {
            Mix::Hits => {
                let part = self.thread * 2_048;
                match step % 8 {
                    0 => Op::Load(Word(part + step / 8 % 2_048)),
                    1 => Op::PrivateLoad(step % 8_192),
                    2 if step % 64 == 2 => Op::Store(Word(part + step / 8 % 2_048), step),
                    _ => Op::Compute(1),
                }
            }
            Mix::Misses => Op::Load(Word(self.random.below(1 << 26))),
            Mix::Ycsb => {
                if step.is_multiple_of(3 * RECORD_WORDS) {
                    self.at = self.random.below(RECORDS) * RECORD_WORDS;
                    self.writes = self.random.below(5) == 0;
                }
                let word = Word(self.at + step / 3 % RECORD_WORDS);
                match step % 3 {
                    0 if self.writes => Op::Store(word, step),
                    0 => Op::Load(word),
                    1 => Op::Compute(2),
                    _ => Op::PrivateLoad(step * 8 % 4_096),
                }
            }
            Mix::Stencil => {
                // A thread has 16 rows of its own, and reads one of each neighbour's.
                let point = step / 8 % (16 * (ROW - 2));
                let (row, column) = (point / (ROW - 2), point % (ROW - 2));
                let at = (self.thread * 16 + row + 1) * ROW + column + 1;
                match step % 8 {
                    0 => Op::Load(Word(at)),
                    1 => Op::Load(Word(at - 1)),
                    2 => Op::Load(Word(at + 1)),
                    3 => Op::Load(Word(at - ROW)),
                    4 => Op::Load(Word(at + ROW)),
                    5 => Op::Compute(8),
                    6 => Op::PrivateLoad(step % 2_048),
                    _ => Op::Store(Word(at), step),
                }
            }
        }
    }
}

impl Thread for Source {
    fn next(&mut self) -> Next {
        if self.left == 0 {
            return Next::Ended;
        }
        let op = self.op();
        self.left = self.left.saturating_sub(match op {
            Op::Compute(count) => u64::from(count),
            _ => 1,
        });
        Next::Op(op)
    }

    fn deliver(&mut self, _: u64) {}
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let millions: u64 = arguments
        .next()
        .and_then(|text| text.parse().ok())
        .unwrap_or(64);
    let only = arguments.next();
    for (name, mix, protocol) in [
        ("hits", Mix::Hits, Protocol::WriteBack),
        ("misses", Mix::Misses, Protocol::WriteBack),
        ("ycsb", Mix::Ycsb, Protocol::WriteBack),
        ("stencil", Mix::Stencil, Protocol::WriteBack),
        ("ycsb-wt", Mix::Ycsb, Protocol::WriteThrough),
        ("stencil-wt", Mix::Stencil, Protocol::WriteThrough),
    ] {
        if only.as_ref().is_some_and(|only| only != name) {
            continue;
        }
        // A mix that always misses takes one event for a few instructions.
        let share = if mix == Mix::Misses { 16 } else { 1 };
        let source = |thread| Source {
            mix,
            random: Random::new(thread),
            thread,
            left: millions * 1_000_000 / THREADS / share,
            at: 0,
            step: 0,
            writes: false,
        };
        let mut description = Description::default();
        description.ours.coherence.protocol = protocol;
        let workload = Workload {
            threads: (0..THREADS).map(source).collect(),
            image: Image {
                words: 1 << 26,
                ..Image::default()
            },
            synchronisation: Synchronisation::default(),
        };
        let mut simulation =
            Cluster::simulation(&description, workload, 1).expect("the paper's machine");
        let begun = Instant::now();
        let end = cluster::run(&mut simulation).expect("no thread waits for another");
        let took = begun.elapsed().as_secs_f64();
        let total = simulation.machine().statistics().total();
        let events = simulation.handled();
        println!(
            "{name}: {} instructions in {end} ({:.2} a cycle and core), {events} events; {took:.2} s: {:.1} M instructions/s, {:.1} M events/s",
            total.instructions,
            total.instructions as f64 / (end.as_seconds() * 2.4e9 * THREADS as f64),
            total.instructions as f64 / took / 1e6,
            events as f64 / took / 1e6,
        );
    }
}
