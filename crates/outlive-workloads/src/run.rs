//! A run of MapReduce: where its words stand, for those who work and for those who watch.
//!
//! ```text
//!  header | units | lists of loading, mapping, reducing | tables' headers | halts | paths
//! ```
//!
//! All of it is one block of the heap, made by whoever begins the run and found by a root of the segment.
//! The text of each unit, the tables and the map of totals are blocks of their own, each in a cell here.

use crate::input::Inputs;
use crate::table::{Blocks, Place, Table};
use crate::work_list::Units;
use outlive::heap::buddy::AllocateError;
use outlive::membership::InstanceId;
use outlive::memory::{Memory, Native, Offset, Ordering};

outlive::shared! {
    /// The header of a run, as a root of the segment names it.
    pub struct MapReduceRun {
        words: [u64; 64],
    }
}

/// The name of the root.
pub const ROOT: &str = "outlive.mapreduce";

const MAGIC: u64 = u64::from_le_bytes(*b"outmapr2");
const HEADER: u64 = 1024;

// The words of the header that stay as they were written at first.
const PROGRAM: u64 = 8;
const SEED: u64 = 16;
const UNITS: u64 = 24;
const PART_BITS: u64 = 32;
const WORKERS: u64 = 40;
const FIRST_ID: u64 = 48;
const THREADS: u64 = 56;
const FIRST_PROCESS: u64 = 88;
const PROCESSES: u64 = 96;
const PATHS: u64 = 64;
const TOTALS: u64 = 80;
const CALLED_OFF: u64 = 128;
const KILLS: u64 = 72;
const HIT: u64 = 384;
const SPARED: u64 = 512;

/// How many hosts a run can have.
pub const MOST_HOSTS: u32 = 1024;
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
    /// How many hosts there are.
    pub hosts: u32,
    /// How many processes each host has.
    pub processes: u32,
    /// How many workers each process has.
    pub threads: u32,
    /// The id of the first process; the others follow, host by host.
    pub first_process: InstanceId,
    /// The id of the first worker; the others follow, process by process.
    pub first_id: InstanceId,
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

    /// The workers.
    pub fn workers(&self) -> u32 {
        self.hosts * self.processes * self.threads
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
        (self.workers() * 4).next_power_of_two().ilog2().min(10)
    }
}

/// Where everything of a run stands.
#[derive(Clone, Copy, Debug)]
pub struct Run<M: Memory = Native> {
    memory: M,
    at: Offset,
    units: u64,
    part_bits: u32,
    workers: u32,
    kills: u32,
}

/// What stands behind the header, in the order of the picture at the top.
fn places<M: Memory>(units: u64, parts: u64, workers: u32, kills: u32) -> [u64; 7] {
    let mut at = HEADER;
    [
        units * UNIT_BYTES,
        Units::<M>::bytes(units),
        Units::<M>::bytes(units),
        Units::<M>::bytes(parts),
        u64::from(workers) * Table::<M>::HEADER,
        u64::from(kills) * 8,
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
    fn places(&self) -> [u64; 7] {
        places::<M>(self.units, self.parts(), self.workers, self.kills)
    }

    /// How many bytes the block of a run like `plan` takes.
    pub fn bytes(plan: &Plan) -> u64 {
        let [.., paths] = places::<M>(
            plan.units().len() as u64,
            1 << plan.part_bits(),
            plan.workers(),
            plan.kills,
        );
        paths + 8 + plan.inputs.to_bytes().len() as u64
    }

    fn of(plan: &Plan, memory: M, at: Offset) -> Self {
        Self {
            memory,
            at,
            units: plan.units().len() as u64,
            part_bits: plan.part_bits(),
            workers: plan.workers(),
            kills: plan.kills,
        }
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
        assert!(plan.workers() > 0 && plan.hosts <= MOST_HOSTS);
        let bytes = Self::bytes(plan);
        let at = blocks.allocate_into(bytes, cell)?;
        let run = Self::of(plan, memory, at);
        memory.copy_in(at, &vec![0; bytes as usize]);
        let [units, .., paths] = run.places();
        for (unit, index) in plan.units().iter().zip(0..) {
            let place = at + (units + index * UNIT_BYTES);
            let first = u64::from(unit.file) << 32 | u64::from(unit.len);
            memory.store(place, first, Ordering::Relaxed);
            memory.store(place + 8, unit.from, Ordering::Relaxed);
        }
        let names = plan.inputs.to_bytes();
        memory.store(at + paths, names.len() as u64, Ordering::Relaxed);
        memory.copy_in(at + (paths + 8), &names);
        let words = [
            (PROGRAM, plan.program),
            (SEED, plan.seed),
            (UNITS, run.units),
            (PART_BITS, run.part_bits.into()),
            (WORKERS, run.workers.into()),
            (FIRST_ID, plan.first_id.into()),
            (THREADS, plan.threads.into()),
            (PROCESSES, plan.processes.into()),
            (FIRST_PROCESS, plan.first_process.into()),
            (PATHS, paths),
            (KILLS, run.kills.into()),
        ];
        for (place, word) in words {
            memory.store(at + place, word, Ordering::Relaxed);
        }
        // Release: whoever finds the first word finds all others.
        memory.store(at, MAGIC, Ordering::Release);
        Ok(run)
    }

    /// The run whose header is at `at`; `None` if there is none.
    pub fn open(memory: M, at: Offset) -> Option<Self> {
        if memory.load::<u64>(at, Ordering::Acquire) != MAGIC {
            return None;
        }
        let word = |place| memory.load::<u64>(at + place, Ordering::Relaxed);
        Some(Self {
            memory,
            at,
            units: word(UNITS),
            part_bits: u32::try_from(word(PART_BITS)).ok()?,
            workers: u32::try_from(word(WORKERS)).ok()?,
            kills: u32::try_from(word(KILLS)).ok()?,
        })
    }

    /// Where its header is.
    pub fn at(self) -> Offset {
        self.at
    }

    /// The memory.
    pub fn memory(self) -> M {
        self.memory
    }

    fn word(self, place: u64) -> u64 {
        self.memory.load(self.at + place, Ordering::Relaxed)
    }

    /// The number of the program.
    pub fn program(self) -> u64 {
        self.word(PROGRAM)
    }

    /// How many workers there are.
    pub fn workers(self) -> u32 {
        self.workers
    }

    /// How many workers each process has.
    pub fn threads(self) -> u32 {
        self.word(THREADS) as u32
    }

    /// How many processes each host has.
    pub fn processes(self) -> u32 {
        self.word(PROCESSES) as u32
    }

    /// The place of the process with this id among all of them, host by host; `None` if it is none of them.
    pub fn process_of(self, id: InstanceId) -> Option<u32> {
        let index = id.checked_sub(self.word(FIRST_PROCESS) as u32)?;
        (u64::from(index) * u64::from(self.threads()) < u64::from(self.workers)).then_some(index)
    }

    /// The id of worker `number`.
    pub fn id_of(self, number: u32) -> InstanceId {
        self.word(FIRST_ID) as u32 + number
    }

    /// The number of the worker with this id, if it is a worker's.
    pub fn worker_of(self, id: InstanceId) -> Option<u32> {
        let number = id.checked_sub(self.word(FIRST_ID) as u32)?;
        (number < self.workers).then_some(number)
    }

    /// The files.
    pub fn inputs(self) -> Option<Inputs> {
        let paths = self.at + self.word(PATHS);
        let len: u64 = self.memory.load(paths, Ordering::Relaxed);
        let mut bytes = vec![0; usize::try_from(len).ok()?];
        self.memory.copy_out(paths + 8, &mut bytes);
        Inputs::from_bytes(&bytes)
    }

    /// The list of what is read from disk.
    pub fn loading(self) -> Units<M> {
        Units::new(self.memory, self.at + self.places()[1], self.units)
    }

    /// The list of what is mapped: the same units.
    pub fn mapping(self) -> Units<M> {
        Units::new(self.memory, self.at + self.places()[2], self.units)
    }

    /// The list of what is reduced: the parts of the keys.
    pub fn reducing(self) -> Units<M> {
        Units::new(self.memory, self.at + self.places()[3], self.parts())
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
        let place = self.at + (self.places()[0] + index * UNIT_BYTES);
        let first: u64 = self.memory.load(place, Ordering::Relaxed);
        let unit = Unit {
            file: (first >> 32) as u32,
            len: first as u32,
            from: self.memory.load(place + 8, Ordering::Relaxed),
        };
        (unit, place + 16)
    }

    /// The first byte of the text, once it is loaded; `None` if there is none.
    pub fn first_byte(self) -> Option<u8> {
        if self.units == 0 {
            return None;
        }
        let (_, cell) = self.unit(0);
        let text = Offset::from_raw(self.memory.load(cell, Ordering::Relaxed));
        let mut word = [0; 8];
        (!text.is_null()).then(|| {
            self.memory.copy_out(text, &mut word);
            word[0]
        })
    }

    /// The table of worker `number`.
    pub fn table(self, number: u32) -> Place<M> {
        let tables = self.at + self.places()[4];
        Place {
            memory: self.memory,
            header: tables + u64::from(number) * Table::<M>::HEADER,
            number,
            units: self.mapping(),
            seed: self.word(SEED),
        }
    }

    /// The word that leads to the map of totals.
    pub fn totals_cell(self) -> Offset {
        self.at + TOTALS
    }

    /// Where the map of totals is.
    pub fn totals(self) -> Offset {
        Offset::from_raw(self.word(TOTALS))
    }

    /// The word that is not 0 once the run is called off.
    pub fn called_off_at(self) -> Offset {
        self.at + CALLED_OFF
    }

    /// Why the run was called off, if it was.
    pub fn called_off(self) -> Option<CalledOff> {
        let word: u64 = self.memory.load(self.called_off_at(), Ordering::Acquire);
        CalledOff::from_word(word)
    }

    /// Calls the run off: nobody begins another unit. The first reason stands.
    pub fn call_off(self, why: CalledOff) {
        let word = why.to_word();
        let at = self.called_off_at();
        let _ = self
            .memory
            .compare_exchange(at, 0, word, Ordering::Release, Ordering::Relaxed);
    }

    /// Whether everything is done.
    pub fn is_done(self) -> bool {
        let reducing = self.reducing();
        (0..reducing.count()).all(|part| reducing.result(part) != 0)
    }
}

/// Why a run ended before it was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CalledOff {
    /// Whoever began it does not want it any more.
    Interrupted,
    /// There was no block of so many bytes.
    Full(u64),
    /// A file could not be read; its number and the error of the operating system.
    Unreadable(u32, i32),
    /// A file has another length than when it was looked at.
    Changed(u32),
    /// A key is longer than a table can name, in this unit.
    TooLong(u64),
    /// Something else, which this worker has said.
    Failed(u32),
}

impl CalledOff {
    fn to_word(self) -> u64 {
        let (code, detail) = match self {
            Self::Interrupted => (1, 0),
            Self::Full(bytes) => (2, bytes),
            Self::Unreadable(file, error) => {
                (3, u64::from(file) << 16 | u64::from(error as u32 & 0xFFFF))
            }
            Self::Changed(file) => (4, file.into()),
            Self::TooLong(unit) => (5, unit),
            Self::Failed(worker) => (6, worker.into()),
        };
        code << 56 | detail & ((1 << 56) - 1)
    }

    fn from_word(word: u64) -> Option<Self> {
        let detail = word & ((1 << 56) - 1);
        Some(match word >> 56 {
            1 => Self::Interrupted,
            2 => Self::Full(detail),
            3 => Self::Unreadable((detail >> 16) as u32, (detail & 0xFFFF) as i32),
            4 => Self::Changed(detail as u32),
            5 => Self::TooLong(detail),
            6 => Self::Failed(detail as u32),
            _ => return None,
        })
    }
}

/// Stopping workers right before their commit points, so that their hosts can be killed there: the worst case.
///
/// Each halt has the number of a unit. The first worker that is about to commit a unit from that number on,
/// and whose host has no halted worker yet, takes the halt and waits for its death; of hosts that were killed before
/// only if others have let it pass by. Halts are taken in order, and nobody has to see one taken before the next can be.
impl<M: Memory> Run<M> {
    fn halt_at(self, index: u64) -> Offset {
        self.at + (self.places()[5] + index * 8)
    }

    /// Makes halts for these units, of which there are as many as the plan has kills.
    pub fn arm(self, units: &[u64]) {
        assert!(units.len() as u64 <= u64::from(self.kills));
        for (index, unit) in (0..).zip(units) {
            let word = ARMED | unit & 0xFFFF_FFFF;
            self.memory
                .store(self.halt_at(index), word, Ordering::Release);
        }
    }

    /// The hosts of the workers that have halted, in the order of their halts.
    pub fn halted(self) -> impl Iterator<Item = u32> {
        (0..u64::from(self.kills))
            .map(move |index| {
                self.memory
                    .load::<u64>(self.halt_at(index), Ordering::Acquire)
            })
            .take_while(|word| word & TAKEN != 0)
            .map(|word| word as u32)
    }

    fn bit(host: u32) -> (u64, u64) {
        (u64::from(host / 64) * 8, 1 << (host % 64))
    }

    /// Notes that `host` is about to die: no worker of it halts. Returns whether that is news.
    pub fn hit(self, host: u32) -> bool {
        let (word, bit) = Self::bit(host);
        let before: u64 = self
            .memory
            .fetch_or(self.at + HIT + word, bit, Ordering::AcqRel);
        before & bit == 0
    }

    fn unhit(self, host: u32) {
        let (word, bit) = Self::bit(host);
        self.memory
            .fetch_and(self.at + HIT + word, !bit, Ordering::AcqRel);
    }

    /// Notes that `host`, which was hit, is dead. Its next incarnation halts only where others have let a halt
    /// pass by.
    pub fn spare(self, host: u32) {
        let (word, bit) = Self::bit(host);
        self.memory
            .fetch_or(self.at + SPARED + word, bit, Ordering::AcqRel);
        self.unhit(host);
    }

    fn is_spared(self, host: u32) -> bool {
        let (word, bit) = Self::bit(host);
        let spared: u64 = self.memory.load(self.at + SPARED + word, Ordering::Relaxed);
        spared & bit != 0
    }

    /// Whether the worker that is about to commit `unit` on `host` takes a halt.
    pub fn halts(self, unit: u64, host: u32) -> bool {
        for index in 0..u64::from(self.kills) {
            let at = self.halt_at(index);
            let word: u64 = self.memory.load(at, Ordering::Acquire);
            if word & TAKEN != 0 {
                continue;
            }
            let patience = if self.is_spared(host) {
                self.units / (u64::from(self.kills) + 1) / 2
            } else {
                0
            };
            let due = (word & 0xFFFF_FFFF) + patience;
            if word & ARMED == 0 || unit < due || !self.hit(host) {
                return false;
            }
            let taken = TAKEN | u64::from(host);
            if self
                .memory
                .compare_exchange(at, word, taken, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
            {
                return true;
            }
            // Another host was faster.
            self.unhit(host);
        }
        false
    }
}

const ARMED: u64 = 1 << 62;
const TAKEN: u64 = 1 << 63;
