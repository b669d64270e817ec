//! Counts of the operations of threads, by kind, and of the stores to lines that several threads
//! touch.

use super::{Op, Word};
use crate::line::LineAddress;

/// The number of operations of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Instructions that access no memory.
    pub compute: u64,
    /// Loads of shared memory.
    pub loads: u64,
    /// Stores to shared memory.
    pub stores: u64,
    /// Atomics: each is also a load and a store.
    pub atomics: u64,
    /// Loads of private memory.
    pub private_loads: u64,
    /// Stores to private memory.
    pub private_stores: u64,
    /// Fences, locks, unlocks, barriers and operations on conditions.
    pub synchronisations: u64,
    /// Of the stores and atomics, those to lines that several threads touch.
    pub stores_to_touched_by_several: u64,
}

impl Counts {
    /// Returns the number of instructions.
    pub fn instructions(&self) -> u64 {
        self.compute
            + self.loads
            + self.stores
            + self.atomics
            + self.private_loads
            + self.private_stores
            + self.synchronisations
    }

    /// Returns the number of stores, shared and private.
    pub fn all_stores(&self) -> u64 {
        self.stores + self.atomics + self.private_stores
    }

    /// Returns the fraction of the data accesses that are stores.
    pub fn store_fraction(&self) -> f64 {
        let loads = self.loads + self.atomics + self.private_loads;
        self.all_stores() as f64 / ((loads + self.all_stores()).max(1)) as f64
    }

    /// Returns the fraction of the stores that go to lines that several threads touch.
    pub fn shared_store_fraction(&self) -> f64 {
        self.stores_to_touched_by_several as f64 / (self.all_stores().max(1)) as f64
    }

    pub(super) fn count(&mut self, op: Op) {
        match op {
            Op::Compute(instructions) => self.compute += u64::from(instructions),
            Op::Load(_) => self.loads += 1,
            Op::Store(..) | Op::StorePart(..) => self.stores += 1,
            Op::Atomic(..) => self.atomics += 1,
            Op::PrivateLoad(_) => self.private_loads += 1,
            Op::PrivateStore(_) => self.private_stores += 1,
            Op::Fence
            | Op::Lock(_)
            | Op::Unlock(_)
            | Op::Barrier(_)
            | Op::Wait(..)
            | Op::Signal(_)
            | Op::Broadcast(_) => self.synchronisations += 1,
            Op::Acquire(_) | Op::Release(_) | Op::Await(..) | Op::Advance(_) => {}
        }
    }
}

/// The threads that touched each line.
#[derive(Clone, Debug)]
pub(super) struct Touches {
    lines: Vec<Touch>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Touch {
    /// No thread (0), one thread (its number plus 1), or [`SEVERAL`].
    by: u16,
    /// Whether one of the accesses was an atomic.
    atomic: bool,
    stores: u32,
}

/// The kind of an access to a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Load,
    Store,
    Atomic,
}

const SEVERAL: u16 = u16::MAX;

impl Touches {
    pub fn new(words: u64) -> Self {
        Self {
            lines: vec![Touch::default(); words.div_ceil(Word::PER_LINE) as usize],
        }
    }

    #[inline]
    pub fn touch(&mut self, thread: usize, word: Word, access: Access) {
        let touch = &mut self.lines[word.line().0 as usize];
        let thread = (thread + 1) as u16;
        if touch.by != thread {
            touch.by = if touch.by == 0 { thread } else { SEVERAL };
        }
        touch.atomic |= access == Access::Atomic;
        touch.stores = touch
            .stores
            .saturating_add(u32::from(access != Access::Load));
    }

    /// Returns the lines that one thread alone touches, and never by an atomic, with that thread.
    pub fn by_one(&self) -> impl Iterator<Item = (LineAddress, u16)> + '_ {
        let lines = (0..).map(LineAddress).zip(&self.lines);
        lines.filter_map(|(line, touch)| {
            let one = touch.by != 0 && touch.by != SEVERAL && !touch.atomic;
            one.then(|| (line, touch.by - 1))
        })
    }

    pub fn stores_to_touched_by_several(&self) -> u64 {
        let several = self.lines.iter().filter(|touch| touch.by == SEVERAL);
        several.map(|touch| u64::from(touch.stores)).sum()
    }
}
