//! Measures the compression of dumps of logs, and its cost for the host, for typical values.
//!
//! `cargo run --release -p outlive-machine --example dump_factor [entries]`
//!
//! Each row is one unit's share of a round: `entries` stores (by default a third of a full log of
//! 18 MiB) by the four cores of eight nodes, each core with a part of the data of its own, in the
//! order in which they would come.

use std::hint::black_box;

use outlive_machine::description::Description;
use outlive_machine::engine::Random;
use outlive_machine::logging::{
    Commit, ENTRY_BYTES, Epoch, LogEntry, ReplicaGroups, Requester, pack, unpack,
};
use outlive_machine::program::Word;
use outlive_machine::protocol::NodeId;

const NODES: u64 = 8;
const CORES: u64 = 4;
/// Words of each core's part.
const PART: u64 = 1 << 20;

fn main() {
    let argument = std::env::args().nth(1);
    let entries = argument.map_or(786_432 / 3, |text| {
        text.parse().expect("a number of entries")
    });
    println!(
        "{:<42}  {:>9}  {:>10}  {:>6}  {:>9}  {:>10}",
        "values", "entries", "bytes", "factor", "pack, s", "unpack, s"
    );
    let mut random = Random::new(1);
    let mut field = |core: u64, step: u64| {
        // A smooth field over a plane, as a stencil computes.
        let (x, y) = ((step % 512) as f64, (step / 512 + core) as f64);
        ((x * 0.013).sin() * (y * 0.021).cos()).to_bits()
    };
    row("a smooth field, in order", entries, &mut field, |step| step);
    let mut counters = |_: u64, step: u64| step / 64;
    row("counters, scattered", entries, &mut counters, |step| {
        step.wrapping_mul(0x9e37_79b9) % PART
    });
    let mut text = |core: u64, step: u64| {
        // Records of letters, written word by word.
        let word = (step * 31 + core * 7).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        u64::from_le_bytes(std::array::from_fn(|at| {
            b"etaoin shrdlu, c"[(word >> (at * 4)) as usize & 15]
        }))
    };
    row(
        "text in records of 1 KB at random",
        entries,
        &mut text,
        |step| {
            let record = (step / 128).wrapping_mul(0x9e37_79b9_7f4a_7c15) % (PART / 128);
            record * 128 + step % 128
        },
    );
    let mut moved = |_: u64, step: u64| (f64::from((step % 997) as u32) * 1e-3 + 0.5).to_bits();
    row(
        "particles, three words of eight",
        entries,
        &mut moved,
        |step| step / 3 * 8 + step % 3,
    );
    let mut drawn = |_: u64, _: u64| random.bits();
    row("drawn values, in order", entries, &mut drawn, |step| step);
}

/// Packs a unit's share of stores with these values at these places of each core's part.
fn row(
    name: &str,
    entries: usize,
    value: &mut dyn FnMut(u64, u64) -> u64,
    place: impl Fn(u64) -> u64,
) {
    let groups = ReplicaGroups::new(&Description::default());
    let (mut share, mut commits) = (Vec::with_capacity(entries), [0; NODES as usize]);
    let mut random = Random::new(7);
    let mut steps = [0u64; (NODES * CORES) as usize];
    while share.len() < entries {
        let core = random.below(NODES * CORES);
        let node = core / CORES;
        // A core commits a few stores before another one's come.
        for _ in 0..random.below(8) + 1 {
            let step = steps[core as usize];
            steps[core as usize] += 1;
            commits[node as usize] += 1;
            let word = Word(core * PART + place(step) % PART);
            let requester = NodeId::new(node as usize);
            let saver = groups.saver(word.line(), requester, groups.living());
            let value = value(core, step);
            if saver == Some(NodeId::new(3)) && share.len() < entries {
                share.push(LogEntry {
                    requester: Requester {
                        node: NodeId::new(node as usize),
                        core: (core % CORES) as u8,
                    },
                    commit: Commit(commits[node as usize]),
                    epoch: Epoch((step / 512) as u32 * 3 + 1),
                    word,
                    value,
                });
            }
        }
    }
    let begun = processor_nanos();
    let dump = pack(NodeId::new(3), 1, &share);
    let packed = processor_nanos();
    let found = unpack(black_box(&dump)).expect("it was packed just now");
    let unpacked = processor_nanos();
    assert_eq!(found.entries, share);
    println!(
        "{name:<42}  {entries:>9}  {:>10}  {:>6.1}  {:>9.3}  {:>10.3}",
        dump.len(),
        (entries * ENTRY_BYTES) as f64 / dump.len() as f64,
        (packed - begun) as f64 * 1e-9,
        (unpacked - packed) as f64 * 1e-9,
    );
}

/// Returns this thread's processor time, as Linux counts it.
fn processor_nanos() -> u64 {
    let counts = std::fs::read_to_string("/proc/thread-self/schedstat")
        .expect("Linux counts processor time");
    counts
        .split(' ')
        .next()
        .and_then(|nanos| nanos.parse().ok())
        .expect("its first number is in nanoseconds")
}
