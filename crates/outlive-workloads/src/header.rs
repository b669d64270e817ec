//! What every run begins with, whatever its program is: who works in it, which program it is, whether it was called off,
//! and where hosts are to be killed.
//!
//! ```text
//!  header | halts | what the program has
//! ```
//!
//! It is the beginning of a block of the heap, made by whoever begins the run and found by a root of the segment.

mod halts;

use crate::crew::{Crew, MOST_HOSTS};
use outlive::memory::{Memory, Native, Offset, Ordering};
use outlive::pod::Pod;
use outlive::segment::RootError;

outlive::shared! {
    /// The header of a run, as a root of the segment names it.
    pub struct RunHeader {
        words: [u64; 64],
    }
}

/// The name of the root.
pub const ROOT: &str = "outlive.run";

const MAGIC: u64 = u64::from_le_bytes(*b"outlrun2");
/// What stands before the halts.
const FIXED: u64 = 1024;

// The words that stay as they were written at first.
const PROGRAM: u64 = 8;
const HOSTS: u64 = 16;
const PROCESSES: u64 = 24;
const THREADS: u64 = 32;
const FIRST_PROCESS: u64 = 40;
const FIRST_WORKER: u64 = 48;
const KILLS: u64 = 56;
const UNITS: u64 = 64;
const SPARES: u64 = 72;
// Words that change.
const CALLED_OFF: u64 = 128;
const HIT: u64 = 384;
const SPARED: u64 = 512;

/// What a run is begun with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beginning {
    /// A number for the program, which tells workers what it is.
    pub program: u64,
    /// Who works.
    pub crew: Crew,
    /// How many hosts are to be killed.
    pub kills: u32,
    /// How many units of work there are, by which the kills are spread.
    pub units: u64,
}

impl Beginning {
    /// How many bytes stand before what the program has. A multiple of 128.
    pub fn bytes(&self) -> u64 {
        (FIXED + u64::from(self.kills) * 8).next_multiple_of(128)
    }
}

/// The header of a run.
#[derive(Clone, Copy, Debug)]
pub struct Header<M: Memory = Native> {
    memory: M,
    at: Offset,
    beginning: Beginning,
}

impl<M: Memory> Header<M> {
    /// Writes a header at `at`, where zeros stand. Nobody finds it before it is [published](Self::publish).
    ///
    /// # Panics
    /// If there is no worker, or too many hosts.
    pub fn create(memory: M, at: Offset, beginning: Beginning) -> Self {
        let Beginning {
            program,
            crew,
            kills,
            units,
        } = beginning;
        assert!(crew.workers() > 0 && crew.hosts <= MOST_HOSTS);
        let words = [
            (PROGRAM, program),
            (HOSTS, crew.hosts.into()),
            (PROCESSES, crew.processes.into()),
            (THREADS, crew.threads.into()),
            (FIRST_PROCESS, crew.first_process.into()),
            (FIRST_WORKER, crew.first_worker.into()),
            (KILLS, kills.into()),
            (UNITS, units),
            (SPARES, crew.spares.into()),
        ];
        for (place, word) in words {
            memory.store(at + place, word, Ordering::Relaxed);
        }
        Self {
            memory,
            at,
            beginning,
        }
    }

    /// Lets it be found, with all that was written for the program before.
    pub fn publish(self) {
        // Release: whoever finds the first word finds all others.
        self.memory.store(self.at, MAGIC, Ordering::Release);
    }

    /// The header at `at`; `None` if there is none.
    pub fn open(memory: M, at: Offset) -> Option<Self> {
        if memory.load::<u64>(at, Ordering::Acquire) != MAGIC {
            return None;
        }
        let word = |place| memory.load::<u64>(at + place, Ordering::Relaxed);
        let small = |place| u32::try_from(word(place)).ok();
        let hosts = small(HOSTS).filter(|hosts| *hosts <= MOST_HOSTS)?;
        let crew = Crew {
            hosts,
            spares: small(SPARES).filter(|spares| *spares <= hosts)?,
            processes: small(PROCESSES)?,
            threads: small(THREADS)?,
            first_process: small(FIRST_PROCESS)?,
            first_worker: small(FIRST_WORKER)?,
        };
        let processes = crew.hosts.checked_mul(crew.processes)?;
        processes.checked_mul(crew.threads)?;
        let beginning = Beginning {
            program: word(PROGRAM),
            crew,
            kills: small(KILLS)?,
            units: word(UNITS),
        };
        Some(Self {
            memory,
            at,
            beginning,
        })
    }

    /// What it was begun with.
    pub fn beginning(self) -> Beginning {
        self.beginning
    }

    /// Where it is.
    pub fn at(self) -> Offset {
        self.at
    }

    /// Where the program's own begins.
    pub fn end(self) -> Offset {
        self.at + self.beginning.bytes()
    }

    /// The memory.
    pub fn memory(self) -> M {
        self.memory
    }

    /// The number of the program.
    pub fn program(self) -> u64 {
        self.beginning.program
    }

    /// Who works.
    pub fn crew(self) -> Crew {
        self.beginning.crew
    }

    /// How many hosts are to be killed.
    pub fn kills(self) -> u32 {
        self.beginning.kills
    }

    /// How many units of work there are.
    pub fn units(self) -> u64 {
        self.beginning.units
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
}

impl Header {
    /// The header of the run in `pod`; `None` if there is none.
    ///
    /// # Errors
    /// If the roots cannot be read.
    pub fn find(pod: &Pod) -> Result<Option<Self>, RootError> {
        let root = pod.roots().find::<RunHeader>(ROOT)?;
        Ok(root.and_then(|root| Self::open(pod.segment().memory(), root.offset())))
    }
}

/// Why a run ended before it was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CalledOff {
    /// Whoever began it does not want it any more.
    Interrupted,
    /// There was no block of so many bytes.
    Full(u64),
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
            Self::Changed(file) => (3, file.into()),
            Self::TooLong(unit) => (4, unit),
            Self::Failed(worker) => (5, worker.into()),
        };
        code << 56 | detail & ((1 << 56) - 1)
    }

    fn from_word(word: u64) -> Option<Self> {
        let detail = word & ((1 << 56) - 1);
        Some(match word >> 56 {
            1 => Self::Interrupted,
            2 => Self::Full(detail),
            3 => Self::Changed(detail as u32),
            4 => Self::TooLong(detail),
            5 => Self::Failed(detail as u32),
            _ => return None,
        })
    }
}
