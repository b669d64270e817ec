//! The record of a job: what it says, and the two words of it that change.
//!
//! A record is the value of an entry in the map of jobs, in place:
//!
//! ```text
//!   0  state   submitted, open, complete, failed
//!   8  root    the number of its root, from 1; 0 before it has one
//!  16  function | lengths of the arguments, the name | numbers of dependencies, inputs, outputs
//!  40  dependencies (records) | arguments | name | names of inputs and of outputs, each with its length
//! ```

use super::Root;
use crate::Task;
use crate::layout::Layout;
use outlive::memory::{Memory, Native, Offset, Ordering};

/// How a job stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum JobState {
    /// It depends on jobs that are not complete, or nobody has come by yet.
    Submitted,
    /// Its tasks can be run.
    Open,
    /// All its tasks are done.
    Complete,
    /// It failed.
    Failed,
}

impl JobState {
    fn from_word(word: u64) -> Self {
        match word {
            0 => Self::Submitted,
            1 => Self::Open,
            2 => Self::Complete,
            // What damage made up ends.
            _ => Self::Failed,
        }
    }

    /// Whether nothing changes any more.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Complete | Self::Failed)
    }
}

const STATE: u64 = 0;
pub(super) const ROOT: u64 = 8;
const FUNCTION: u64 = 16;
const LENGTHS: u64 = 24;
const NUMBERS: u64 = 32;
const BODY: u64 = 40;

/// What a record says of its job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Contents {
    pub name: Vec<u8>,
    pub function: u32,
    pub arguments: Vec<u8>,
    pub reads: Vec<Vec<u8>>,
    pub writes: Vec<Vec<u8>>,
    pub after: Vec<Offset>,
}

/// A job's record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record<M: Memory = Native> {
    memory: M,
    pub at: Offset,
}

impl<M: Memory> PartialEq for Record<M> {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl<M: Memory> Record<M> {
    /// The record at `at`.
    pub fn at(memory: M, at: Offset) -> Self {
        Self { memory, at }
    }

    fn word(self, place: u64) -> u64 {
        // Relaxed: written before the record was linked.
        self.memory.load(self.at + place, Ordering::Relaxed)
    }

    /// How the job stands.
    #[inline]
    pub fn state(self) -> JobState {
        // Acquire: who ended it has written why.
        JobState::from_word(self.memory.load(self.at + STATE, Ordering::Acquire))
    }

    pub(super) fn go(self, from: JobState, to: JobState) -> bool {
        // AcqRel: what was done for the job, for whoever goes on from there.
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        let (from, to) = (from as u64, to as u64);
        self.memory
            .compare_exchange(self.at + STATE, from, to, order.0, order.1)
            .is_ok()
    }

    pub(super) fn root(self) -> Option<u32> {
        // Acquire: the root was reserved before.
        let word: u64 = self.memory.load(self.at + ROOT, Ordering::Acquire);
        (word as u32).checked_sub(1)
    }

    /// Its root's task, once that can be started.
    pub fn root_task(self, layout: Layout<M>) -> Option<Task<M>> {
        let root = self.root().filter(|root| *root < layout.roots)?;
        let root = Root::of(layout, root);
        // Acquire, and before the job is looked at: a root that was given back belongs to a job that is over.
        (root.life() != 0 && root.job() == Some(self)).then(|| root.task())
    }

    /// All that it says. `None` for what only damage writes.
    pub fn contents(self) -> Option<Contents> {
        let memory = self.memory;
        let (lengths, numbers) = (self.word(LENGTHS), self.word(NUMBERS));
        let mut at = self.at + BODY;
        let mut take = |len: u64| {
            let from = Offset::checked(at.raw(), len.next_multiple_of(8), 8, memory.size()).ok()?;
            let mut bytes = vec![0; len as usize];
            memory.copy_out(from, &mut bytes);
            at = from + len.next_multiple_of(8);
            Some(bytes)
        };
        let number = |bytes: Vec<u8>| u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
        let after: Option<Vec<_>> = (0..numbers & 0xFFFF)
            .map(|_| Some(Offset::from_raw(number(take(8)?))))
            .collect();
        let (after, arguments, name) = (after?, take(lengths & 0xFFFF_FFFF)?, take(lengths >> 32)?);
        let mut names = |many: u64| -> Option<Vec<_>> {
            (0..many & 0xFFFF)
                .map(|_| {
                    let len = number(take(8)?);
                    take(len)
                })
                .collect()
        };
        Some(Contents {
            name,
            function: self.word(FUNCTION) as u32,
            arguments,
            reads: names(numbers >> 16)?,
            writes: names(numbers >> 32)?,
            after,
        })
    }

    /// Its name.
    pub fn name(self) -> Vec<u8> {
        self.contents()
            .map_or_else(Vec::new, |contents| contents.name)
    }

    pub(super) fn dependencies(self) -> impl Iterator<Item = Self> {
        let memory = self.memory;
        (0..self.word(NUMBERS) & 0xFFFF).map(move |index| {
            let job = self.word(BODY + index * 8);
            Self::at(memory, Offset::from_raw(job))
        })
    }
}
