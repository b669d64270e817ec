//! The segment size that a run needs, estimated from a sample of the input. If the estimate proves
//! too small, the keys are counted exactly.

use crate::key::INLINE;
use crate::mapreduce::MapReduce;
use crate::mapreduce::run::Plan;
use crate::table::Table;
use outlive::memory::Native;
use outlive_run::input::{InputError, Inputs};
use std::collections::HashSet;
use std::fs::File;
use std::hash::{BuildHasherDefault, Hasher};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The number of samples of the input, and the bytes of each.
const LOOKS: u64 = 32;
const LOOK: u64 = 64 << 10;
/// The smallest block of the heap that is not in a slab.
const BLOCK: u64 = 16 << 10;

/// The bytes that are read at a time when an input is counted.
const PIECE: u64 = 1 << 20;
/// The bytes of an entry when the table has just grown and the previous table still exists: 8/3 (a
/// table is then at least 3/8 full) times 3/2.
const ENTRIES: u64 = 64 * 4;
/// The smallest block for a table's long keys.
const ARENA: u64 = 64 << 10;

/// A hasher for values that are hashes already.
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

/// The keys that a program finds, or is expected to find, in a text, as far as they need memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keys {
    /// The number of different keys.
    pub count: u64,
    /// The bytes of the keys that do not fit into a table's entry.
    pub long: u64,
    /// The number of occurrences of all keys.
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

/// Estimates, with a margin, the keys that `program` finds in `inputs`, from a sample and from the
/// rate of new keys at the sample's end.
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

/// Counts the keys that `program` finds in `inputs` by reading all of them on this thread, and
/// polls `goes_on` from time to time. Returns `None` if `goes_on` returns false.
///
/// # Errors
/// If a file cannot be read.
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
            // The bytes after the last possible division are kept for the next piece.
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

/// Returns the bytes of the heap that a block of `bytes` bytes takes.
fn block(bytes: u64) -> u64 {
    match bytes {
        // From slabs: their sizes differ by at most a quarter.
        ..=8192 => bytes + bytes / 4 + 16,
        // Whole blocks.
        _ => bytes.next_power_of_two().max(BLOCK),
    }
}

/// Returns the heap bytes that a reduction with `workers` workers needs to find `keys`, without the
/// other data of the pool.
pub fn heap_bytes(plan: &Plan, workers: u32, keys: Keys) -> u64 {
    let texts: u64 = plan.units().map(|unit| block(unit.len.into())).sum();
    let (workers, places) = (u64::from(workers), u64::from(plan.places));
    // While a table grows the one before it, half as large, is still there.
    let largest = |keys: u64| Table::<Native>::bytes_for(keys.max(4096)) * 3 / 2;
    // Together the tables have no more entries than key occurrences, and each is at least three
    // eighths full when it has grown.
    let shared = workers * largest(0) + keys.found * ENTRIES;
    let tables = (workers * largest(keys.count)).min(shared);
    // Every worker stores the long keys that it finds, in blocks that are at least half full, as
    // the map does.
    let arenas = 2 * plan.inputs.bytes().min(workers * keys.long) + workers * ARENA;
    // A node, and its share of the map's pages.
    let totals = keys.count * 160 + 2 * keys.long + (1 << 20);
    let run = plan.bytes().next_power_of_two();
    let all = texts + tables + arenas + totals + run;
    // Additional workers need tables, too; count them as far as they add little.
    let others = places.saturating_sub(workers) * largest(keys.count);
    let all = all + others.min(all / 4);
    // The rounding to powers of two.
    all + all / 8 + (4 << 20)
}
