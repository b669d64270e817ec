//! The state that a worker keeps across its deaths, in the program's part of its log.
//!
//! ```text
//!  0x000  which tally counts: its sequence number
//!  0x040  intent: sequence number, what, which, how much, after which operation of the log
//!  0x080  tally 0      0x240  tally 1
//! ```
//!
//! A tally is written into the copy that is not current, and becomes current by one store, so that
//! a death leaves the old one or the new one. An intent's number is written last.

use super::stage::{COMMON_KEYS, LARGE_CELLS, OWN_KEYS, SHARED_KEYS, SMALL_CELLS};
use bytemuck::{Pod, Zeroable};
use outlive_memory::{Memory, Native, Offset, Ordering};

const SELECTOR: u64 = 0;
const INTENT: u64 = 0x40;
const TALLIES: u64 = 0x80;
const TALLY_BYTES: u64 = 0x1C0;

/// The kind of a worker's operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum What {
    /// Counts under a lock.
    Count = 1,
    /// Allocates a large block into a cell.
    Allocate = 2,
    /// Frees a large block from its cell.
    Free = 3,
    /// Allocates a small block into a cell.
    AllocateSmall = 4,
    FreeSmall = 5,
    /// Inserts an own key, or changes its value.
    Put = 6,
    /// Removes an own key.
    Remove = 7,
    /// Adds one to the value of a shared key, by compare-and-exchange.
    Add = 8,
    /// Inserts a common key.
    InsertCommon = 9,
    RemoveCommon = 10,
}

impl What {
    fn of(number: u64) -> Option<Self> {
        [
            Self::Count,
            Self::Allocate,
            Self::Free,
            Self::AllocateSmall,
            Self::FreeSmall,
            Self::Put,
            Self::Remove,
            Self::Add,
            Self::InsertCommon,
            Self::RemoveCommon,
        ]
        .into_iter()
        .find(|what| *what as u64 == number)
    }
}

/// An operation that a worker is about to carry out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Intent {
    /// Its number among this worker's, from 1.
    pub sequence: u64,
    pub what: What,
    /// The number of the counter, cell or key.
    pub which: u64,
    /// The value.
    pub much: u64,
    /// The number of the log's last operation before it.
    pub after: u64,
}

/// The number of counters.
pub const COUNTERS: usize = 6;

/// The settled operations of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Tally {
    /// The number of the last settled intent.
    pub sequence: u64,
    /// The number of counts, by counter.
    pub counted: [u64; COUNTERS],
    /// The number of large blocks allocated, and freed.
    pub allocated: u64,
    pub freed: u64,
    /// Bits of the cells that hold a block.
    pub large: u64,
    pub small: u64,
    pub small_allocated: u64,
    pub small_freed: u64,
    /// The number of changes and removals of own keys, and their values; 0 for absent keys.
    pub puts: u64,
    pub removes: u64,
    pub own: [u64; OWN_KEYS as usize],
    /// The number of additions to each shared key.
    pub added: [u64; SHARED_KEYS as usize],
    /// The number of insertions and removals of each common key.
    pub inserted: [u64; COMMON_KEYS as usize],
    pub removed: [u64; COMMON_KEYS as usize],
    /// The number of intents without effect.
    pub vain: u64,
}

const _: () =
    assert!(size_of::<Tally>() as u64 <= TALLY_BYTES && LARGE_CELLS <= 64 && SMALL_CELLS <= 64);

impl Tally {
    /// Enters `intent`, and whether it took effect.
    pub fn enter(&mut self, intent: Intent, effect: bool) {
        self.sequence = intent.sequence;
        if !effect {
            self.vain += 1;
            return;
        }
        match intent.what {
            What::Count => self.counted[intent.which as usize] += 1,
            What::Allocate => {
                self.allocated += 1;
                self.large |= 1 << intent.which;
            }
            What::Free => {
                self.freed += 1;
                self.large &= !(1 << intent.which);
            }
            What::AllocateSmall => {
                self.small_allocated += 1;
                self.small |= 1 << intent.which;
            }
            What::FreeSmall => {
                self.small_freed += 1;
                self.small &= !(1 << intent.which);
            }
            What::Put => {
                self.puts += 1;
                self.own[intent.which as usize] = intent.much;
            }
            What::Remove => {
                self.removes += 1;
                self.own[intent.which as usize] = 0;
            }
            What::Add => self.added[intent.which as usize] += 1,
            What::InsertCommon => self.inserted[intent.which as usize] += 1,
            What::RemoveCommon => self.removed[intent.which as usize] += 1,
        }
    }
}

/// The sum of all workers' tallies.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    pub sequence: u64,
    pub counted: [u64; COUNTERS],
    pub allocated: u64,
    pub freed: u64,
    pub small_allocated: u64,
    pub small_freed: u64,
    pub puts: u64,
    pub removes: u64,
    pub added: [u64; SHARED_KEYS as usize],
    pub inserted: [u64; COMMON_KEYS as usize],
    pub removed: [u64; COMMON_KEYS as usize],
    pub vain: u64,
}

fn add_all<const N: usize>(sums: &mut [u64; N], of: [u64; N]) {
    for (sum, one) in sums.iter_mut().zip(of) {
        *sum += one;
    }
}

impl Sum {
    pub fn add(&mut self, tally: &Tally) {
        self.sequence += tally.sequence;
        add_all(&mut self.counted, tally.counted);
        self.allocated += tally.allocated;
        self.freed += tally.freed;
        self.small_allocated += tally.small_allocated;
        self.small_freed += tally.small_freed;
        self.puts += tally.puts;
        self.removes += tally.removes;
        add_all(&mut self.added, tally.added);
        add_all(&mut self.inserted, tally.inserted);
        add_all(&mut self.removed, tally.removed);
        self.vain += tally.vain;
    }

    /// Returns the number of effects by kind, for people.
    pub fn effects(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("counts", self.counted.iter().sum()),
            ("large blocks allocated", self.allocated),
            ("large blocks freed", self.freed),
            ("small blocks allocated", self.small_allocated),
            ("small blocks freed", self.small_freed),
            ("own keys put", self.puts),
            ("own keys removed", self.removes),
            ("additions to shared keys", self.added.iter().sum()),
            ("common keys inserted", self.inserted.iter().sum()),
            ("common keys removed", self.removed.iter().sum()),
        ]
    }
}

/// One worker's ledger. Only the worker writes to it.
#[derive(Clone, Copy, Debug)]
pub struct Ledger {
    memory: Native,
    at: Offset,
}

impl Ledger {
    /// The ledger in the program's scratch area `at`.
    pub fn at(memory: Native, at: Offset) -> Self {
        Self { memory, at }
    }

    fn copy(self, sequence: u64) -> Offset {
        self.at + TALLIES + (sequence & 1) * TALLY_BYTES
    }

    /// Returns the current tally.
    pub fn tally(self) -> Tally {
        loop {
            let sequence: u64 = self.memory.load(self.at + SELECTOR, Ordering::Acquire);
            let mut tally = Tally::zeroed();
            let from = self.copy(sequence);
            self.memory
                .copy_out(from, bytemuck::bytes_of_mut(&mut tally));
            // A reader that is not the owner may have been overtaken by two commits.
            if tally.sequence == sequence {
                return tally;
            }
            self.memory.spin_hint();
        }
    }

    /// Returns the number of the last settled intent.
    pub fn sequence(self) -> u64 {
        self.memory.load(self.at + SELECTOR, Ordering::Acquire)
    }

    /// Makes `tally` the current one.
    pub fn commit(self, tally: &Tally) {
        let to = self.copy(tally.sequence);
        self.memory.copy_in(to, bytemuck::bytes_of(tally));
        // Release: the copy is written before it becomes current.
        self.memory
            .store(self.at + SELECTOR, tally.sequence, Ordering::Release);
    }

    /// Records `intent` before it is carried out.
    pub fn intend(self, intent: Intent) {
        let at = self.at + INTENT;
        let words = [intent.what as u64, intent.which, intent.much, intent.after];
        for (i, word) in (1..).zip(words) {
            self.memory.store(at + i * 8, word, Ordering::Relaxed);
        }
        self.memory.store(at, intent.sequence, Ordering::Release);
    }

    /// Returns the intent after number `settled`, if there is one.
    pub fn intended(self, settled: u64) -> Result<Option<Intent>, String> {
        let at = self.at + INTENT;
        let sequence: u64 = self.memory.load(at, Ordering::Acquire);
        if sequence <= settled {
            return Ok(None);
        }
        let [what, which, much, after] =
            [1, 2, 3, 4].map(|i| self.memory.load::<u64>(at + i * 8, Ordering::Relaxed));
        if sequence != settled + 1 {
            return Err(format!("intent {sequence} follows tally {settled}"));
        }
        let what = What::of(what)
            .ok_or_else(|| format!("intent {sequence} has the unknown operation {what}"))?;
        Ok(Some(Intent {
            sequence,
            what,
            which,
            much,
            after,
        }))
    }
}
