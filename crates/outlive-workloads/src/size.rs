//! How large a segment a run needs: what it will have in it is estimated from a sample of the input.

use crate::input::{InputError, Inputs};
use crate::mapreduce::MapReduce;
use crate::run::{Plan, Run};
use crate::table::Table;
use outlive::heap::Heap;
use outlive::memory::Native;
use std::collections::HashSet;
use std::fs::File;
use std::hash::{BuildHasherDefault, Hasher};
use std::os::unix::fs::FileExt;

/// In how many places the input is looked at, and how much of it in each.
const LOOKS: u64 = 32;
const LOOK: u64 = 64 << 10;
/// The smallest block of the heap's that is not in a slab.
const BLOCK: u64 = 16 << 10;

/// What is hashed are hashes.
#[derive(Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// How many keys `program` will find in `inputs`, with some to spare: what a sample has, and how fast new
/// ones still came at its end.
///
/// # Errors
/// If a file cannot be read.
pub fn keys_of(inputs: &Inputs, program: &impl MapReduce) -> Result<u64, InputError> {
    let all = inputs.bytes();
    let step = (all / LOOKS).max(LOOK);
    let mut seen: HashSet<u64, BuildHasherDefault<AsItIs>> = HashSet::default();
    let mut looked = 0u64;
    let mut growth = Vec::new();
    let mut buffer = Vec::new();
    let mut next = 0;
    let mut before = 0;
    for input in inputs.files() {
        let end = before + input.len;
        while next < end {
            let from = next - before;
            buffer.resize(LOOK.min(input.len - from) as usize, 0);
            let read = File::open(&input.path)
                .and_then(|file| file.read_at(&mut buffer, from))
                .map_err(|source| InputError::Unreadable {
                    path: input.path.clone(),
                    source,
                })?;
            program.map(&buffer[..read], |key, _| {
                seen.insert(key.hash(0));
            });
            looked += read as u64;
            growth.push((looked, seen.len() as u64));
            next += step.max(buffer.len() as u64).max(1);
        }
        before = end;
    }
    let Some((looked, found)) = growth.last().copied() else {
        return Ok(0);
    };
    if looked >= all {
        return Ok(found);
    }
    // The number of keys grows as a power of the length of the text (Heaps' law).
    let half = growth[growth.len() / 2];
    let exponent = if half.0 < looked && half.1 > 0 {
        let (keys, bytes) = (found as f64 / half.1 as f64, looked as f64 / half.0 as f64);
        (keys.ln() / bytes.ln()).clamp(0.3, 1.0)
    } else {
        1.0
    };
    let estimate = found as f64 * (all as f64 / looked as f64).powf(exponent) * 1.25;
    Ok(estimate as u64 + 1024)
}

/// How many bytes the heap of a run needs that finds `keys` keys.
pub fn heap_bytes(plan: &Plan, keys: u64) -> u64 {
    let texts: u64 = plan
        .units()
        .iter()
        .map(|unit| u64::from(unit.len))
        .map(|len| match len {
            // From slabs, whose sizes are at most a quarter apart.
            ..=8192 => len + len / 4 + 16,
            // Whole blocks.
            _ => len.next_power_of_two().max(BLOCK),
        })
        .sum();
    // While a table grows the one before it, half as large, is still there.
    let table = Table::<Native>::bytes_for(keys.max(4096));
    let tables = u64::from(plan.workers()) * (table + table / 2);
    // A node, and its share of the map's pages.
    let totals = keys * 160 + (1 << 20);
    // Each worker has slabs of its own.
    let slabs = u64::from(plan.workers()) * (512 << 10);
    let run = Run::<Native>::bytes(plan).next_power_of_two();
    let all = texts + tables + totals + slabs + run;
    // What the powers of two waste.
    all + all / 8 + (4 << 20)
}

/// The size of a segment with room for `heap` bytes and `ids` members.
pub fn segment_bytes(heap: u64, ids: u32) -> u64 {
    let metadata = Heap::<Native>::state_bytes(heap).unwrap_or(heap / 256);
    let all = heap + metadata + u64::from(ids) * (10 << 10) + (1 << 20);
    all.next_multiple_of(Native::GRANULE.max(1 << 20))
}
