//! The data of a reduction in the pod, apart from its text: its layout, for workers and observers.
//!
//! ```text
//!  own words | units | results of mapping | tables' headers | files | paths
//! ```
//!
//! All of this is one named data item of the pool. The text of each unit, the tables and the map of
//! totals are separate blocks, each with a cell here.

use super::results::Results;
use crate::table::{Place, Table};
use outlive::memory::{Memory, Native, Offset, Ordering};
use outlive_run::input::{InputFile, Inputs};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

// The own words. They do not change after creation, except for the cell of the totals.
const PROGRAM: u64 = 0;
const UNITS: u64 = 8;
const TABLES: u64 = 16;
const PART_BITS: u64 = 24;
const FILES: u64 = 32;
const SEED: u64 = 40;
const TOTALS: u64 = 64;
const OWN: u64 = 128;

/// The size of a unit's record: file and length, place in the file, cell of the text.
const UNIT_BYTES: u64 = 24;
/// The size of a file's record: its length, the length of its path in bytes, the index of the
/// path's first word, and its version.
const FILE_BYTES: u64 = 32;

/// The largest unit, in bytes: the maximum that is loaded or mapped at a time.
pub const LARGEST_UNIT: u64 = 1 << 20;
/// The smallest and the largest unit, in bytes, that are chosen by default. A word count takes some
/// 3 ms for the largest, which bounds the cost of a death and the wait of workers at the end of a
/// phase.
const CHOSEN_UNITS: (u64, u64) = (16 << 10, 512 << 10);
/// The maximum number of parts that keys are divided into, as a binary logarithm.
const MOST_PART_BITS: u32 = 10;

/// The parameters of a reduction.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The inputs.
    pub inputs: Inputs,
    /// The number that identifies the program among the MapReduce programs.
    pub program: u64,
    /// The number of expected workers.
    pub workers: u32,
    /// The number of places for workers.
    pub places: u32,
    /// The maximum size of a unit in bytes: 1 to [`LARGEST_UNIT`].
    pub unit: u64,
    /// The seed of the hashes.
    pub seed: u64,
}

/// One unit of the input: a range of a file, which one task counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit {
    /// The number of the unit's file.
    pub file: u32,
    /// The length in bytes.
    pub len: u32,
    /// The first byte's position in the file.
    pub from: u64,
}

impl Plan {
    /// Returns the best unit size in bytes for this input and number of workers: a unit takes a few
    /// milliseconds, and there are many for each worker.
    pub fn unit_for(bytes: u64, workers: u32) -> u64 {
        (bytes / (u64::from(workers.max(1)) * 16))
            .next_power_of_two()
            .clamp(CHOSEN_UNITS.0, CHOSEN_UNITS.1)
    }

    /// Returns the maximum size of a unit in bytes.
    fn unit(&self) -> u64 {
        self.unit.clamp(1, LARGEST_UNIT)
    }

    /// Returns the units in the order of the text.
    pub fn units(&self) -> impl Iterator<Item = Unit> {
        let unit = self.unit();
        { (0..).zip(self.inputs.files()) }.flat_map(move |(file, input)| {
            (0..input.len).step_by(unit as usize).map(move |from| {
                let len = (input.len - from).min(unit) as u32;
                Unit { file, len, from }
            })
        })
    }

    /// Returns the number of units.
    pub fn count(&self) -> u64 {
        let files = self.inputs.files().iter();
        files.map(|input| input.len.div_ceil(self.unit())).sum()
    }

    fn shape(&self) -> Shape {
        let parts = (self.workers.max(1).saturating_mul(4)).next_power_of_two();
        Shape {
            units: self.count(),
            tables: self.places.into(),
            part_bits: parts.ilog2().min(MOST_PART_BITS),
            files: self.inputs.files().len() as u64,
        }
    }

    /// Returns the number of bytes of pool data that a run with this plan takes.
    pub fn bytes(&self) -> u64 {
        let paths = self.inputs.files().iter().map(padded).sum::<u64>();
        let [.., paths_at] = self.shape().places();
        ALIGN + paths_at + paths
    }
}

/// Returns the size of a path in bytes, rounded up to whole words.
fn padded(file: &InputFile) -> u64 {
    (path_of(file).len() as u64).next_multiple_of(8)
}

/// Returns the path as it is stored in the pod.
fn path_of(file: &InputFile) -> &[u8] {
    file.path_for_hosts().as_os_str().as_bytes()
}

/// The alignment of the first word: a table's header shares its cache lines with nothing else.
const ALIGN: u64 = 128;

/// The numbers that determine the layout.
#[derive(Clone, Copy, Debug)]
struct Shape {
    units: u64,
    tables: u64,
    part_bits: u32,
    files: u64,
}

impl Shape {
    /// Returns the start of the units, results, tables, files and paths.
    fn places(self) -> [u64; 5] {
        let mut at = OWN;
        [
            self.units * UNIT_BYTES,
            Results::<Native>::bytes(self.units),
            self.tables * Table::<Native>::HEADER,
            self.files * FILE_BYTES,
            0,
        ]
        .map(|bytes| {
            let here = at;
            at = (at + bytes).next_multiple_of(ALIGN);
            here
        })
    }
}

/// The layout of a run at its place in memory.
#[derive(Clone, Copy, Debug)]
pub struct Run<M: Memory = Native> {
    memory: M,
    at: Offset,
    shape: Shape,
}

impl<M: Memory> Run<M> {
    /// Writes a run with `plan` into the `bytes` zeroed bytes at `start`, aligned to 8, before
    /// other threads can see it. Returns `None` if `bytes` is less than [needed](Plan::bytes).
    pub fn create(plan: &Plan, memory: M, start: Offset, bytes: u64) -> Option<Self> {
        if bytes < plan.bytes() {
            return None;
        }
        let shape = plan.shape();
        let run = Self {
            memory,
            at: aligned(start),
            shape,
        };
        let own = [
            (PROGRAM, plan.program),
            (UNITS, shape.units),
            (TABLES, shape.tables),
            (PART_BITS, shape.part_bits.into()),
            (FILES, shape.files),
            (SEED, plan.seed),
        ];
        // All relaxed: the later submission of the job orders them before the tasks' loads.
        let store = |at: Offset, word: u64| memory.store(at, word, Ordering::Relaxed);
        own.into_iter()
            .for_each(|(place, word)| store(run.at + place, word));
        for (unit, index) in plan.units().zip(0..) {
            let place = run.place(0) + index * UNIT_BYTES;
            store(place, u64::from(unit.file) << 32 | u64::from(unit.len));
            store(place + 8, unit.from);
        }
        let mut words = 0;
        for (file, index) in plan.inputs.files().iter().zip(0..) {
            let path = path_of(file);
            let place = run.place(3) + index * FILE_BYTES;
            store(place, file.len);
            store(place + 8, path.len() as u64);
            store(place + 16, words);
            store(place + 24, file.version);
            memory.copy_in(run.place(4) + words * 8, path);
            words += padded(file) / 8;
        }
        Some(run)
    }

    /// Opens the run in the `bytes` bytes of data at `start`; `None` if they hold no run.
    pub fn open(memory: M, start: Offset, bytes: u64) -> Option<Self> {
        let at = aligned(start);
        let room = bytes.checked_sub(at.raw() - start.raw())?;
        if room < OWN {
            return None;
        }
        let word = |place| memory.load::<u64>(at + place, Ordering::Relaxed);
        let [units, tables, files] = [UNITS, TABLES, FILES].map(word);
        // Reject counts that cannot fit into these bytes before multiplying them by a size.
        if [units, tables, files].iter().any(|many| *many > room) {
            return None;
        }
        let part_bits = u32::try_from(word(PART_BITS)).ok();
        let shape = Shape {
            units,
            tables,
            part_bits: part_bits.filter(|bits| *bits <= MOST_PART_BITS)?,
            files,
        };
        let [.., paths] = shape.places();
        (paths <= room).then_some(Self { memory, at, shape })
    }

    /// Returns the memory that holds the run.
    pub fn memory(self) -> M {
        self.memory
    }

    fn place(self, which: usize) -> Offset {
        self.at + self.shape.places()[which]
    }

    fn word(self, at: Offset) -> u64 {
        self.memory.load(at, Ordering::Relaxed)
    }

    /// Returns the number that identifies the program among the MapReduce programs.
    pub fn program(self) -> u64 {
        self.word(self.at + PROGRAM)
    }

    /// Returns the number of units of the text.
    pub fn units(self) -> u64 {
        self.shape.units
    }

    /// Returns the number of parts that the keys are divided into.
    pub fn parts(self) -> u64 {
        1 << self.shape.part_bits
    }

    /// Returns how many leading bits of a key's hash name its part.
    pub fn part_bits(self) -> u32 {
        self.shape.part_bits
    }

    /// Returns the results of the mapped units.
    pub fn results(self) -> Results<M> {
        Results::new(self.memory, self.place(1), self.shape.units)
    }

    /// Returns unit `index` and the cell of its text.
    pub fn unit(self, index: u64) -> (Unit, Offset) {
        debug_assert!(index < self.shape.units);
        let place = self.place(0) + index * UNIT_BYTES;
        let first = self.word(place);
        let unit = Unit {
            file: (first >> 32) as u32,
            len: first as u32,
            from: self.word(place + 8),
        };
        (unit, place + 16)
    }

    /// Returns file `number`; `None` if it does not exist. The path is empty if the driver has put
    /// the file's text into the segment.
    pub fn file(self, number: u32) -> Option<InputFile> {
        let number = u64::from(number);
        if number >= self.shape.files {
            return None;
        }
        let place = self.place(3) + number * FILE_BYTES;
        let length = usize::try_from(self.word(place + 8)).ok()?;
        if length > libc::PATH_MAX as usize {
            return None;
        }
        let mut path = vec![0; length];
        let from = self.place(4) + self.word(place + 16) * 8;
        self.memory.copy_out(from, &mut path);
        Some(InputFile {
            path: OsStr::from_bytes(&path).into(),
            len: self.word(place),
            version: self.word(place + 24),
            copied: None,
        })
    }

    /// Returns the first byte of the text; `None` if the text is empty or not loaded.
    pub fn first_byte(self) -> Option<u8> {
        if self.shape.units == 0 {
            return None;
        }
        let (_, cell) = self.unit(0);
        let text = Offset::from_raw(self.word(cell));
        let mut word = [0; 8];
        (!text.is_null()).then(|| {
            self.memory.copy_out(text, &mut word);
            word[0]
        })
    }

    /// Returns the number of tables.
    pub fn tables(self) -> u32 {
        self.shape.tables as u32
    }

    /// Returns the table of place `number` of the pool; `None` if it does not exist.
    pub fn table(self, number: u32) -> Option<Place<M>> {
        (u64::from(number) < self.shape.tables).then(|| Place {
            memory: self.memory,
            header: self.place(2) + u64::from(number) * Table::<M>::HEADER,
            number,
            results: self.results(),
            seed: self.seed(),
        })
    }

    /// Returns the seed of the hashes.
    pub fn seed(self) -> u64 {
        self.word(self.at + SEED)
    }

    /// Returns the cell that points to the map of totals.
    pub fn totals_cell(self) -> Offset {
        self.at + TOTALS
    }

    /// Returns the offset of the map of totals.
    pub fn totals(self) -> Offset {
        Offset::from_raw(self.word(self.totals_cell()))
    }
}

fn aligned(start: Offset) -> Offset {
    Offset::from_raw(start.raw().next_multiple_of(ALIGN))
}

#[cfg(test)]
mod tests {
    use super::*;
    use outlive::memory::PersistenceDomain;

    #[test]
    fn what_is_written_of_a_run_is_found_and_nothing_else() {
        let place = tempfile::tempdir().unwrap();
        let files = [("a", 10), ("a longer name", 0), ("b", 7)].map(|(name, len)| {
            let path = place.path().join(name);
            std::fs::write(&path, "x".repeat(len)).unwrap();
            path
        });
        let inputs = Inputs::find(&files).unwrap();
        let plan = Plan {
            inputs: inputs.clone(),
            program: 2,
            workers: 3,
            places: 5,
            unit: 4,
            seed: 9,
        };
        let memory = Native::leaked(1 << 16, PersistenceDomain::Flushed);
        let start = Offset::new(64);
        assert!(Run::open(memory, start, plan.bytes()).is_none_or(|run| run.units() == 0));
        assert!(Run::create(&plan, memory, start, plan.bytes() - 1).is_none());
        assert!(Run::create(&plan, memory, start, plan.bytes()).is_some());
        let run = Run::open(memory, start, plan.bytes()).unwrap();
        assert_eq!((run.program(), run.seed(), run.parts()), (2, 9, 16));
        let units: Vec<Unit> = (0..run.units()).map(|unit| run.unit(unit).0).collect();
        let unit = |file, from, len| Unit { file, len, from };
        assert_eq!(
            units,
            [
                unit(0, 0, 4),
                unit(0, 4, 4),
                unit(0, 8, 2),
                unit(2, 0, 4),
                unit(2, 4, 3)
            ]
        );
        assert_eq!(plan.count(), 5);
        let found: Vec<_> = (0..3).map_while(|file| run.file(file)).collect();
        assert_eq!(found, inputs.files());
        assert!(run.file(3).is_none());
        assert!(run.table(4).is_some() && run.table(5).is_none());
        // Impossible words.
        assert!(Run::open(memory, start, 16).is_none());
        for (place, word) in [(UNITS, u64::MAX), (PART_BITS, 11), (FILES, 1 << 40)] {
            let at = aligned(start) + place;
            let before: u64 = memory.load(at, Ordering::Relaxed);
            memory.store(at, word, Ordering::Relaxed);
            assert!(Run::open(memory, start, plan.bytes()).is_none());
            memory.store(at, before, Ordering::Relaxed);
        }
    }
}
