//! How large a segment a run needs: what it will have in it is estimated from a sample of the input, and counted
//! when that was too little.

use crate::input::{InputError, Inputs};
use crate::key::INLINE;
use crate::mapreduce::MapReduce;
use crate::mapreduce::run::Plan;
use crate::table::Table;
use outlive::heap::Heap;
use outlive::memory::Native;
use std::collections::HashSet;
use std::fs::File;
use std::hash::{BuildHasherDefault, Hasher};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// In how many places the input is looked at, and how much of it in each.
const LOOKS: u64 = 32;
const LOOK: u64 = 64 << 10;
/// The smallest block of the heap's that is not in a slab.
const BLOCK: u64 = 16 << 10;

/// How much of an input is read at a time that is counted.
const PIECE: u64 = 1 << 20;
/// The bytes of a table's entry, when the table has just grown and the one before it is there still: eight thirds of one,
/// one and a half times.
const ENTRIES: u64 = 64 * 4;
/// The smallest block of a table's long keys.
const ARENA: u64 = 64 << 10;

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

/// What a program finds in a text, or will, as far as room for it is concerned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keys {
    /// How many different keys.
    pub count: u64,
    /// The bytes of those that do not stand in a table's entry.
    pub long: u64,
    /// How often any of them is found.
    pub found: u64,
}

/// Counts different keys.
#[derive(Default)]
struct Tally {
    seen: HashSet<u64, BuildHasherDefault<AsItIs>>,
    long: u64,
    found: u64,
}

impl Tally {
    fn add(&mut self, text: &[u8], program: &impl MapReduce) {
        program.map(text, |key, _| {
            self.found += 1;
            if self.seen.insert(key.hash(0)) && key.len() > INLINE {
                self.long += key.len() as u64;
            }
        });
    }

    fn keys(&self) -> Keys {
        Keys {
            count: self.seen.len() as u64,
            long: self.long,
            found: self.found,
        }
    }
}

/// What `program` will find in `inputs`, with some to spare: what a sample has, and how fast new keys still came at its
/// end.
///
/// # Errors
/// If a file cannot be read.
pub fn estimate(inputs: &Inputs, program: &impl MapReduce) -> Result<Keys, InputError> {
    let all = inputs.bytes();
    let step = (all / LOOKS).max(LOOK);
    let mut tally = Tally::default();
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
                .map_err(unreadable(&input.path))?;
            tally.add(&buffer[..read], program);
            looked += read as u64;
            growth.push((looked, tally.seen.len() as u64));
            next += step.max(buffer.len() as u64).max(1);
        }
        before = end;
    }
    let found = tally.keys();
    if looked >= all || looked == 0 {
        return Ok(found);
    }
    // The number of keys grows as a power of the length of the text (Heaps' law).
    let half = growth[growth.len() / 2];
    let exponent = if half.0 < looked && half.1 > 0 {
        let (keys, bytes) = (
            found.count as f64 / half.1 as f64,
            looked as f64 / half.0 as f64,
        );
        (keys.ln() / bytes.ln()).clamp(0.3, 1.0)
    } else {
        1.0
    };
    let more = all as f64 / looked as f64;
    let of = |sample: u64, exponent| (sample as f64 * more.powf(exponent) * 1.25) as u64 + 1024;
    Ok(Keys {
        count: of(found.count, exponent),
        long: of(found.long, exponent),
        found: of(found.found, 1.0),
    })
}

/// What `program` finds in `inputs`: all of them are read, by this thread. `goes_on` is asked now and then.
///
/// # Errors
/// If a file cannot be read, or it does not go on: `None`.
pub fn count(
    inputs: &Inputs,
    program: &impl MapReduce,
    goes_on: impl Fn() -> bool,
) -> Result<Option<Keys>, InputError> {
    let mut tally = Tally::default();
    let mut text = Vec::new();
    for input in inputs.files() {
        let mut file = File::open(&input.path).map_err(unreadable(&input.path))?;
        text.clear();
        loop {
            if !goes_on() {
                return Ok(None);
            }
            let before = text.len();
            let read = (&mut file)
                .take(PIECE)
                .read_to_end(&mut text)
                .map_err(unreadable(&input.path))?;
            if read == 0 {
                break;
            }
            // What is behind the last place where it may be divided goes with the next piece.
            let divides = |byte: &u8| program.divides(*byte);
            if let Some(last) = text[before..].iter().rposition(divides) {
                let end = before + last + 1;
                tally.add(&text[..end], program);
                text.drain(..end);
            }
        }
        tally.add(&text, program);
    }
    Ok(Some(tally.keys()))
}

fn unreadable(path: &Path) -> impl Fn(io::Error) -> InputError {
    move |source| InputError::Unreadable {
        path: path.into(),
        source,
    }
}

/// What a block of so many bytes takes of the heap.
fn block(bytes: u64) -> u64 {
    match bytes {
        // From slabs, whose sizes are at most a quarter apart.
        ..=8192 => bytes + bytes / 4 + 16,
        // Whole blocks.
        _ => bytes.next_power_of_two().max(BLOCK),
    }
}

/// How many bytes of a heap a reduction needs that finds `keys`, of so many workers: what stands in the pool besides is not counted.
pub fn heap_bytes(plan: &Plan, workers: u32, keys: Keys) -> u64 {
    let texts: u64 = plan.units().map(|unit| block(unit.len.into())).sum();
    let (workers, places) = (u64::from(workers), u64::from(plan.places));
    // While a table grows the one before it, half as large, is still there.
    let largest = |keys: u64| Table::<Native>::bytes_for(keys.max(4096)) * 3 / 2;
    // All together have no more entries than keys are found, and each is at most three eighths full when it has grown.
    let shared = workers * largest(0) + keys.found * ENTRIES;
    let tables = (workers * largest(keys.count)).min(shared);
    // Every worker keeps the long keys that it meets, in blocks that are half full at worst, as the map does.
    let arenas = 2 * plan.inputs.bytes().min(workers * keys.long) + workers * ARENA;
    // A node, and its share of the map's pages.
    let totals = keys.count * 160 + 2 * keys.long + (1 << 20);
    let run = plan.bytes().next_power_of_two();
    let all = texts + tables + arenas + totals + run;
    // Who comes besides needs a table, too: as far as that is little beside the rest.
    let others = places.saturating_sub(workers) * largest(keys.count);
    let all = all + others.min(all / 4);
    // What the powers of two waste.
    all + all / 8 + (4 << 20)
}

/// The size of a segment with room for `heap` bytes and `ids` members.
pub fn segment_bytes(heap: u64, ids: u32) -> u64 {
    let metadata = Heap::<Native>::state_bytes(heap).unwrap_or(heap / 256);
    let all = heap + metadata + u64::from(ids) * (10 << 10) + (1 << 20);
    all.next_multiple_of(Native::GRANULE.max(1 << 20))
}
