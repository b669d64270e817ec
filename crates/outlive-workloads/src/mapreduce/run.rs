//! What a reduction has in the pod besides its text: where its words stand, for those who work and for those who watch.
//!
//! ```text
//!  own words | units | results of mapping | tables' headers | files | paths
//! ```
//!
//! All of it is data of the pool, under one name. The text of each unit, the tables and the map of totals are blocks of their
//! own, each in a cell here.

use super::results::Results;
use crate::input::{InputFile, Inputs};
use crate::table::{Place, Table};
use outlive::memory::{Memory, Native, Offset, Ordering};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

// The own words: they stay as they were written at first, but for the cell of the totals.
const PROGRAM: u64 = 0;
const UNITS: u64 = 8;
const TABLES: u64 = 16;
const PART_BITS: u64 = 24;
const FILES: u64 = 32;
const SEED: u64 = 40;
const TOTALS: u64 = 64;
const OWN: u64 = 128;

/// How one unit stands there: file and length, place in the file, cell of the text.
const UNIT_BYTES: u64 = 24;
/// The number of bytes of a file's words: its length, the length of its path in bytes, the word at
/// which the path begins, and its version.
const FILE_BYTES: u64 = 32;

/// The largest unit: what is loaded or mapped at a time.
pub const LARGEST_UNIT: u64 = 1 << 20;
/// The smallest and the largest unit that are chosen where nobody says how large units are to be: the largest takes
/// a word count some 3 ms, which is what a death costs at most and what workers wait for at the end of a phase.
const CHOSEN_UNITS: (u64, u64) = (16 << 10, 512 << 10);
/// The most parts that keys are divided into, as a logarithm.
const MOST_PART_BITS: u32 = 10;

/// What a reduction is to be like.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What is read.
    pub inputs: Inputs,
    /// Which program of its kind it is.
    pub program: u64,
    /// How many are to work.
    pub workers: u32,
    /// How many places for workers there are.
    pub places: u32,
    /// How many bytes a unit has at most: 1 to [`LARGEST_UNIT`].
    pub unit: u64,
    /// The seed of the hashes.
    pub seed: u64,
}

/// One unit of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Which file it is in.
    pub file: u32,
    /// How many bytes it has.
    pub len: u32,
    /// Where in the file it begins.
    pub from: u64,
}

impl Plan {
    /// How large units are best for so many bytes and workers: a few milliseconds' work, and many for each worker.
    pub fn unit_for(bytes: u64, workers: u32) -> u64 {
        (bytes / (u64::from(workers.max(1)) * 16))
            .next_power_of_two()
            .clamp(CHOSEN_UNITS.0, CHOSEN_UNITS.1)
    }

    /// How large units are, at most.
    fn unit(&self) -> u64 {
        self.unit.clamp(1, LARGEST_UNIT)
    }

    /// The units, in the order of the text.
    pub fn units(&self) -> impl Iterator<Item = Unit> {
        let unit = self.unit();
        { (0..).zip(self.inputs.files()) }.flat_map(move |(file, input)| {
            (0..input.len).step_by(unit as usize).map(move |from| {
                let len = (input.len - from).min(unit) as u32;
                Unit { file, len, from }
            })
        })
    }

    /// How many units there are.
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

    /// How many bytes of data a run takes that is like this.
    pub fn bytes(&self) -> u64 {
        let paths = self.inputs.files().iter().map(padded).sum::<u64>();
        let [.., paths_at] = self.shape().places();
        ALIGN + paths_at + paths
    }
}

/// How many bytes a path takes: whole words.
fn padded(file: &InputFile) -> u64 {
    (path_of(file).len() as u64).next_multiple_of(8)
}

/// Returns the path as it is stored in the pod.
fn path_of(file: &InputFile) -> &[u8] {
    file.path_for_hosts().as_os_str().as_bytes()
}

/// To what the first word is aligned: a table's header is alone on its lines.
const ALIGN: u64 = 128;

/// By what it is known where everything stands.
#[derive(Clone, Copy, Debug)]
struct Shape {
    units: u64,
    tables: u64,
    part_bits: u32,
    files: u64,
}

impl Shape {
    /// Units, results, tables, files, paths: where each begins.
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

/// Where everything of a run stands.
#[derive(Clone, Copy, Debug)]
pub struct Run<M: Memory = Native> {
    memory: M,
    at: Offset,
    shape: Shape,
}

impl<M: Memory> Run<M> {
    /// Writes a run like `plan` into the `bytes` zeroed bytes at `start`, aligned to 8, before anybody else sees it.
    /// `None` if they are fewer than [it takes](Plan::bytes).
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
        // Relaxed, all of it: the job that is submitted afterwards orders it before what tasks do.
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

    /// The run in the `bytes` bytes of data at `start`; `None` if there is none.
    pub fn open(memory: M, start: Offset, bytes: u64) -> Option<Self> {
        let at = aligned(start);
        let room = bytes.checked_sub(at.raw() - start.raw())?;
        if room < OWN {
            return None;
        }
        let word = |place| memory.load::<u64>(at + place, Ordering::Relaxed);
        let [units, tables, files] = [UNITS, TABLES, FILES].map(word);
        // What cannot be in so many bytes is not multiplied by what each takes.
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

    /// The memory.
    pub fn memory(self) -> M {
        self.memory
    }

    fn place(self, which: usize) -> Offset {
        self.at + self.shape.places()[which]
    }

    fn word(self, at: Offset) -> u64 {
        self.memory.load(at, Ordering::Relaxed)
    }

    /// Which program of its kind it is.
    pub fn program(self) -> u64 {
        self.word(self.at + PROGRAM)
    }

    /// How many units of the text there are.
    pub fn units(self) -> u64 {
        self.shape.units
    }

    /// How many parts the keys are divided into.
    pub fn parts(self) -> u64 {
        1 << self.shape.part_bits
    }

    /// By how many bits of a key's hash its part is known.
    pub fn part_bits(self) -> u32 {
        self.shape.part_bits
    }

    /// What has become of the units that are mapped.
    pub fn results(self) -> Results<M> {
        Results::new(self.memory, self.place(1), self.shape.units)
    }

    /// Unit `index`, and the cell of its text.
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

    /// The first byte of the text, once it is loaded; `None` if there is none.
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

    /// How many tables there are.
    pub fn tables(self) -> u32 {
        self.shape.tables as u32
    }

    /// The table of place `number` of the pool; `None` if there is none.
    pub fn table(self, number: u32) -> Option<Place<M>> {
        (u64::from(number) < self.shape.tables).then(|| Place {
            memory: self.memory,
            header: self.place(2) + u64::from(number) * Table::<M>::HEADER,
            number,
            results: self.results(),
            seed: self.seed(),
        })
    }

    /// The seed of the hashes.
    pub fn seed(self) -> u64 {
        self.word(self.at + SEED)
    }

    /// The word that leads to the map of totals.
    pub fn totals_cell(self) -> Offset {
        self.at + TOTALS
    }

    /// Where the map of totals is.
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
        // Words that cannot be.
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
