//! A run of MapReduce: where its words stand, for those who work and for those who watch.
//!
//! ```text
//!  header of the run | own words | units | lists of loading, mapping, reducing | tables' headers | paths
//! ```
//!
//! All of it is one block of the heap, which begins as that of [every run](crate::header) does.
//! The text of each unit, the tables and the map of totals are blocks of their own, each in a cell here.

use crate::crew::Crew;
use crate::header::{Beginning, CalledOff, Header};
use crate::input::Inputs;
use crate::table::{Blocks, Place, Table};
use crate::work_list::Units;
use outlive::heap::buddy::AllocateError;
use outlive::memory::{Memory, Native, Offset, Ordering};

// The own words: they stay as they were written at first.
const SEED: u64 = 0;
const PART_BITS: u64 = 8;
const TOTALS: u64 = 16;
const OWN: u64 = 128;

/// The largest unit: what is loaded or mapped at a time.
pub const LARGEST_UNIT: u64 = 1 << 20;
/// The smallest and the largest unit that are chosen where nobody says how large units are to be: the largest takes
/// a word count some 3 ms, which is what a death costs at most and what workers wait for at the end of a phase.
const CHOSEN_UNITS: (u64, u64) = (16 << 10, 512 << 10);

/// What a run is to be like.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What is read.
    pub inputs: Inputs,
    /// A number for the program, which tells workers what it is.
    pub program: u64,
    /// Who works.
    pub crew: Crew,
    /// How many bytes a unit has at most: 1 to [`LARGEST_UNIT`].
    pub unit: u64,
    /// The seed of the hashes.
    pub seed: u64,
    /// How many hosts are to be killed.
    pub kills: u32,
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
        (bytes / (u64::from(workers) * 16))
            .next_power_of_two()
            .clamp(CHOSEN_UNITS.0, CHOSEN_UNITS.1)
    }

    /// The units.
    pub fn units(&self) -> Vec<Unit> {
        let unit = self.unit.clamp(1, LARGEST_UNIT);
        let mut units = Vec::new();
        for (file, input) in (0..).zip(self.inputs.files()) {
            for from in (0..input.len).step_by(unit as usize) {
                let len = (input.len - from).min(unit) as u32;
                units.push(Unit { file, len, from });
            }
        }
        units
    }

    fn part_bits(&self) -> u32 {
        (self.crew.workers() * 4)
            .next_power_of_two()
            .ilog2()
            .min(10)
    }

    fn beginning(&self) -> Beginning {
        Beginning {
            program: self.program,
            crew: self.crew,
            kills: self.kills,
            units: self.units().len() as u64,
        }
    }
}

/// Where everything of a run stands.
#[derive(Clone, Copy, Debug)]
pub struct Run<M: Memory = Native> {
    header: Header<M>,
    part_bits: u32,
}

/// What stands behind the header, in the order of the picture at the top: where each begins.
fn places<M: Memory>(beginning: Beginning, parts: u64) -> [u64; 6] {
    let (units, workers) = (beginning.units, u64::from(beginning.crew.workers()));
    let mut at = beginning.bytes() + OWN;
    [
        units * UNIT_BYTES,
        Units::<M>::bytes(units),
        Units::<M>::bytes(units),
        Units::<M>::bytes(parts),
        workers * Table::<M>::HEADER,
        0,
    ]
    .map(|bytes| {
        let here = at;
        at = (at + bytes).next_multiple_of(128);
        here
    })
}

/// How one unit stands in the header's block: file and length, place in the file, cell of the text.
const UNIT_BYTES: u64 = 24;

impl<M: Memory> Run<M> {
    fn place(self, which: usize) -> Offset {
        let beginning = self.header.beginning();
        self.header.at() + places::<M>(beginning, self.parts())[which]
    }

    /// How many bytes the block of a run like `plan` takes.
    pub fn bytes(plan: &Plan) -> u64 {
        let [.., paths] = places::<M>(plan.beginning(), 1 << plan.part_bits());
        paths + 8 + plan.inputs.to_bytes().len() as u64
    }

    /// Makes a run like `plan`, in a block that the word at `cell` holds from then on. For whoever begins it,
    /// before anybody else sees it.
    ///
    /// # Errors
    /// If there is no room for it.
    ///
    /// # Panics
    /// If the plan has no worker or too many.
    pub fn create(
        plan: &Plan,
        blocks: Blocks<'_, M>,
        memory: M,
        cell: Offset,
    ) -> Result<Self, AllocateError> {
        let bytes = Self::bytes(plan);
        let at = blocks.allocate_into(bytes, cell)?;
        memory.copy_in(at, &vec![0; bytes as usize]);
        let run = Self {
            header: Header::create(memory, at, plan.beginning()),
            part_bits: plan.part_bits(),
        };
        for (unit, index) in plan.units().iter().zip(0..) {
            let place = run.place(0) + index * UNIT_BYTES;
            let first = u64::from(unit.file) << 32 | u64::from(unit.len);
            memory.store(place, first, Ordering::Relaxed);
            memory.store(place + 8, unit.from, Ordering::Relaxed);
        }
        let (names, paths) = (plan.inputs.to_bytes(), run.place(5));
        memory.store(paths, names.len() as u64, Ordering::Relaxed);
        memory.copy_in(paths + 8, &names);
        let words = [(SEED, plan.seed), (PART_BITS, run.part_bits.into())];
        for (place, word) in words {
            memory.store(run.header.end() + place, word, Ordering::Relaxed);
        }
        run.header.publish();
        Ok(run)
    }

    /// The run that `header` begins.
    pub fn of(header: Header<M>) -> Option<Self> {
        let at = header.end() + PART_BITS;
        let part_bits: u64 = header.memory().load(at, Ordering::Relaxed);
        let part_bits = u32::try_from(part_bits).ok().filter(|bits| *bits <= 10)?;
        Some(Self { header, part_bits })
    }

    /// What it begins with.
    pub fn header(self) -> Header<M> {
        self.header
    }

    /// The memory.
    pub fn memory(self) -> M {
        self.header.memory()
    }

    fn word(self, place: u64) -> u64 {
        self.memory()
            .load(self.header.end() + place, Ordering::Relaxed)
    }

    /// How many workers there are.
    pub fn workers(self) -> u32 {
        self.header.crew().workers()
    }

    /// The files.
    pub fn inputs(self) -> Option<Inputs> {
        let paths = self.place(5);
        let len: u64 = self.memory().load(paths, Ordering::Relaxed);
        let mut bytes = vec![0; usize::try_from(len).ok()?];
        self.memory().copy_out(paths + 8, &mut bytes);
        Inputs::from_bytes(&bytes)
    }

    /// The list of what is read from disk.
    pub fn loading(self) -> Units<M> {
        Units::new(self.memory(), self.place(1), self.header.units())
    }

    /// The list of what is mapped: the same units.
    pub fn mapping(self) -> Units<M> {
        Units::new(self.memory(), self.place(2), self.header.units())
    }

    /// The list of what is reduced: the parts of the keys.
    pub fn reducing(self) -> Units<M> {
        Units::new(self.memory(), self.place(3), self.parts())
    }

    /// How many parts the keys are divided into.
    pub fn parts(self) -> u64 {
        1 << self.part_bits
    }

    /// By how many bits of a key's hash its part is known.
    pub fn part_bits(self) -> u32 {
        self.part_bits
    }

    /// Unit `index`, and the cell of its text.
    pub fn unit(self, index: u64) -> (Unit, Offset) {
        let place = self.place(0) + index * UNIT_BYTES;
        let first: u64 = self.memory().load(place, Ordering::Relaxed);
        let unit = Unit {
            file: (first >> 32) as u32,
            len: first as u32,
            from: self.memory().load(place + 8, Ordering::Relaxed),
        };
        (unit, place + 16)
    }

    /// The first byte of the text, once it is loaded; `None` if there is none.
    pub fn first_byte(self) -> Option<u8> {
        if self.header.units() == 0 {
            return None;
        }
        let (_, cell) = self.unit(0);
        let text = Offset::from_raw(self.memory().load(cell, Ordering::Relaxed));
        let mut word = [0; 8];
        (!text.is_null()).then(|| {
            self.memory().copy_out(text, &mut word);
            word[0]
        })
    }

    /// The table of worker `number`.
    pub fn table(self, number: u32) -> Place<M> {
        Place {
            memory: self.memory(),
            header: self.place(4) + u64::from(number) * Table::<M>::HEADER,
            number,
            units: self.mapping(),
            seed: self.word(SEED),
        }
    }

    /// The word that leads to the map of totals.
    pub fn totals_cell(self) -> Offset {
        self.header.end() + TOTALS
    }

    /// Where the map of totals is.
    pub fn totals(self) -> Offset {
        Offset::from_raw(self.word(TOTALS))
    }

    /// Why it was called off, if it was.
    pub fn called_off(self) -> Option<CalledOff> {
        self.header.called_off()
    }

    /// Whether everything is done.
    pub fn is_done(self) -> bool {
        let reducing = self.reducing();
        (0..reducing.count()).all(|part| reducing.result(part) != 0)
    }
}
