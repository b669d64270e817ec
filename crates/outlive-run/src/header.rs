//! The header of a run, common to all programs: its workers, its program, whether it was called
//! off, and where hosts are to be killed.
//!
//! ```text
//!  header | halts | data of the program
//! ```
//!
//! The header is the beginning of a block of the heap, which is created with the run and found by a
//! root of the segment.

mod halts;

use crate::crew::{Crew, MOST_HOSTS};
use outlive::memory::{Memory, Native, Offset, Ordering};
use outlive::pod::Pod;
use outlive::segment::RootError;

outlive::shared! {
    /// The type of the header as a root of the segment.
    pub struct RunHeader {
        words: [u64; 64],
    }
}

/// The name of the root.
pub const ROOT: &str = "outlive.run";

const MAGIC: u64 = u64::from_le_bytes(*b"outlrun2");
/// The bytes before the halts.
const FIXED: u64 = 1024;

// Words that never change.
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

/// The parameters with which a run begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beginning {
    /// The number of the program, by which workers find it.
    pub program: u64,
    /// The hosts and workers.
    pub crew: Crew,
    /// The number of hosts to be killed.
    pub kills: u32,
    /// The number of units of work, over which the kills are spread.
    pub units: u64,
}

impl Beginning {
    /// Returns the number of bytes before the program's own data, a multiple of 128.
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
    /// Writes a header at `at`, where all bytes are zero. It is not found before it is
    /// [published](Self::publish).
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

    /// Publishes the header, with all data that was written for the program before.
    pub fn publish(self) {
        // Release: a reader of the first word sees all others.
        self.memory.store(self.at, MAGIC, Ordering::Release);
    }

    /// Returns the header at `at`, if there is one.
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

    /// Returns the parameters of the run.
    pub fn beginning(self) -> Beginning {
        self.beginning
    }

    /// Returns the header's offset.
    pub fn at(self) -> Offset {
        self.at
    }

    /// Returns the offset at which the program's own data begins.
    pub fn end(self) -> Offset {
        self.at + self.beginning.bytes()
    }

    /// Returns the memory.
    pub fn memory(self) -> M {
        self.memory
    }

    /// Returns the number of the program.
    pub fn program(self) -> u64 {
        self.beginning.program
    }

    /// Returns the hosts and workers.
    pub fn crew(self) -> Crew {
        self.beginning.crew
    }

    /// Returns the number of hosts to be killed.
    pub fn kills(self) -> u32 {
        self.beginning.kills
    }

    /// Returns the number of units of work.
    pub fn units(self) -> u64 {
        self.beginning.units
    }

    /// Returns the offset of the word that is not 0 once the run is cancelled.
    pub fn called_off_at(self) -> Offset {
        self.at + CALLED_OFF
    }

    /// Returns the reason why the run was cancelled, if it was.
    pub fn called_off(self) -> Option<CalledOff> {
        let word: u64 = self.memory.load(self.called_off_at(), Ordering::Acquire);
        CalledOff::from_word(word)
    }

    /// Cancels the run: no worker begins another unit. The first reason is kept.
    pub fn call_off(self, why: CalledOff) {
        let word = why.to_word();
        let at = self.called_off_at();
        let _ = self
            .memory
            .compare_exchange(at, 0, word, Ordering::Release, Ordering::Relaxed);
    }
}

impl Header {
    /// Returns the header of the run in `pod`, if there is one.
    ///
    /// # Errors
    /// If the roots cannot be read.
    pub fn find(pod: &Pod) -> Result<Option<Self>, RootError> {
        let root = pod.roots().find::<RunHeader>(ROOT)?;
        Ok(root.and_then(|root| Self::open(pod.segment().memory(), root.offset())))
    }
}

/// The reason why a run was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CalledOff {
    /// The driver was interrupted, or cannot kill a host.
    Interrupted,
    /// The heap has no block of this many bytes.
    Full(u64),
    /// The file with this number has changed since it was opened first.
    Changed(u32),
    /// A key of this unit is longer than a table can store.
    TooLong(u64),
    /// This worker failed and has reported why.
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
