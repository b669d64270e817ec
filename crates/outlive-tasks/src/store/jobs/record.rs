//! The record of a job: its description, and the words of it that change.
//!
//! A record is the value of an entry in the map of jobs, in place. Its first four words concern
//! this submission; the others describe the job:
//!
//! ```text
//!   0  state   submitted, open, complete, failed | above 8 bits, a tag while it is being removed
//!   8  root    the number of its root, from 1; 0 before it has one
//!  16  number  of the submission
//!  24  wanted  the size of the failed allocation, if the job failed for lack of memory
//!  32  function | lengths of the arguments, the name | numbers of dependencies, inputs, outputs
//!  56  dependencies (records) | arguments | name | names of inputs and of outputs, each with its length
//! ```

use super::Root;
use crate::Task;
use crate::store::layout::Layout;
use crate::store::names::Tag;
use outlive::memory::{Memory, Native, Offset, Ordering};

/// The state of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum JobState {
    /// The job depends on jobs that are not complete, or no worker has opened it yet.
    Submitted,
    /// The job's tasks can be run.
    Open,
    /// All tasks of the job are done.
    Complete,
    /// The job has failed.
    Failed,
    /// The job was [removed](crate::WorkerPool::remove_job).
    Removed,
}

impl JobState {
    fn from_word(word: u64) -> Self {
        let tag = word >> TAG;
        if tag != 0 && tag.is_multiple_of(2) {
            return Self::Removed;
        }
        match word & ((1 << TAG) - 1) {
            0 => Self::Submitted,
            1 => Self::Open,
            2 => Self::Complete,
            // A damaged word counts as an end.
            _ => Self::Failed,
        }
    }

    /// Returns the state in the bytes of a record.
    pub(super) fn of_bytes(bytes: &[u8]) -> Self {
        let word = bytes.get(..8).and_then(|word| word.try_into().ok());
        Self::from_word(word.map_or(u64::MAX, u64::from_ne_bytes))
    }

    /// Returns whether the state is final.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Complete | Self::Failed | Self::Removed)
    }
}

const STATE: u64 = 0;
pub(super) const ROOT: u64 = 8;
const NUMBER: u64 = 16;
const WANTED: u64 = 24;
/// The offset from which two submissions of the same job are equal.
pub(super) const SAME: usize = 32;
const FUNCTION: u64 = 32;
const LENGTHS: u64 = 40;
const NUMBERS: u64 = 48;
const BODY: u64 = 56;
/// The shift of a removal's tag in the word of the state.
const TAG: u32 = 8;

/// Returns the number of the submission in the bytes of a record.
pub(super) fn number_in(bytes: &[u8]) -> u64 {
    let at = NUMBER as usize;
    let word = bytes.get(at..at + 8).and_then(|word| word.try_into().ok());
    word.map_or(0, u64::from_ne_bytes)
}

/// The decoded description of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    pub name: Vec<u8>,
    pub function: u32,
    pub arguments: Vec<u8>,
    pub reads: Vec<Vec<u8>>,
    pub writes: Vec<Vec<u8>>,
    pub after: Vec<Offset>,
}

/// A job's record.
#[derive(Clone, Copy, Debug)]
pub struct Record<M: Memory = Native> {
    memory: M,
    pub at: Offset,
}

impl<M: Memory> PartialEq for Record<M> {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl<M: Memory> Record<M> {
    /// The bytes of a record without its body.
    pub const LEAST_BYTES: u64 = BODY;

    /// Returns the record at `at`.
    pub fn at(memory: M, at: Offset) -> Self {
        Self { memory, at }
    }

    fn word(self, place: u64) -> u64 {
        // Relaxed: written before the record was linked.
        self.memory.load(self.at + place, Ordering::Relaxed)
    }

    /// Returns the state of the job.
    #[inline]
    pub fn state(self) -> JobState {
        // Acquire: the reason was written before the job was ended.
        JobState::from_word(self.memory.load(self.at + STATE, Ordering::Acquire))
    }

    pub(super) fn go(self, from: JobState, to: JobState) -> bool {
        // AcqRel: all that was done for the job, for the next thread that continues it.
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        let (from, to) = (from as u64, to as u64);
        self.memory
            .compare_exchange(self.at + STATE, from, to, order.0, order.1)
            .is_ok()
    }

    /// Returns the number of the job's submission.
    pub fn number(self) -> u64 {
        self.word(NUMBER)
    }

    /// Returns the number of bytes that a task of the job could not allocate, if it was recorded.
    pub fn wanted(self) -> Option<u64> {
        Some(self.word(WANTED)).filter(|wanted| *wanted != 0)
    }

    /// Records the number of bytes that a task could not allocate, unless one is recorded already.
    /// (A heap without space for a block may not have space for a reason either.)
    pub(super) fn note_wanted(self, bytes: u64) {
        let order = (Ordering::Relaxed, Ordering::Relaxed);
        let at = self.at + WANTED;
        let _ = self.memory.compare_exchange(at, 0, bytes, order.0, order.1);
    }

    fn change(self, from: u64, to: u64) -> bool {
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        self.memory
            .compare_exchange(self.at + STATE, from, to, order.0, order.1)
            .is_ok()
    }

    /// Offers the job, which is over, for removal. Returns `false` if another thread has
    /// offered it already.
    pub fn offer(self, desk: u64) -> bool {
        let state: u64 = self.memory.load(self.at + STATE, Ordering::Acquire);
        let tagged = state | Tag::Offered(desk).bits() << TAG;
        let offered = state >> TAG == 0 && self.change(state, tagged);
        // SeqCst: see `keep`.
        self.memory.fence(Ordering::SeqCst);
        offered
    }

    /// Returns whether the job stays, for a caller that submits a job that depends on it and has
    /// noted that in a staging slot. The caller has pinned before, and found the job.
    pub fn keep(self) -> bool {
        // SeqCst: the note precedes the read of the tag. It pairs with the fence of a remover,
        // which offers the job and then reads the staging slots: one of the two sees the other.
        self.memory.fence(Ordering::SeqCst);
        loop {
            let state: u64 = self.memory.load(self.at + STATE, Ordering::Acquire);
            if state >> TAG == 0 {
                return true;
            }
            if JobState::from_word(state) == JobState::Removed {
                return false;
            }
            // Without its tag the remover cannot take the job.
            self.change(state, state & ((1 << TAG) - 1));
            self.memory.spin_hint();
        }
    }

    /// Replaces the caller's tag `from` by `to`, or removes it if `to` is `None`. Returns whether
    /// the tag was there.
    pub fn retag(self, from: Tag, to: Option<Tag>) -> bool {
        let state: u64 = self.memory.load(self.at + STATE, Ordering::Acquire);
        let tag = to.map_or(0, Tag::bits) << TAG;
        state >> TAG == from.bits() && self.change(state, state & ((1 << TAG) - 1) | tag)
    }

    /// Returns whether the caller's tag is there.
    pub(super) fn has_tag(self, tag: Tag) -> bool {
        self.memory.load::<u64>(self.at + STATE, Ordering::Acquire) >> TAG == tag.bits()
    }

    /// Returns whether these bytes are a record with that number, of a removed job.
    pub(super) fn is_taken(bytes: &[u8], number: u64) -> bool {
        number_in(bytes) == number && JobState::of_bytes(bytes) == JobState::Removed
    }

    pub(super) fn root(self) -> Option<u32> {
        // Acquire: the root was reserved before.
        let word: u64 = self.memory.load(self.at + ROOT, Ordering::Acquire);
        (word as u32).checked_sub(1)
    }

    /// Returns the task of the job's root, once it can be started.
    pub fn root_task(self, layout: Layout<M>) -> Option<Task<M>> {
        let root = self.root().filter(|root| *root < layout.roots)?;
        let root = Root::of(layout, root);
        // Acquire, and before the job is read: a root that was given back belongs to a job that is
        // over.
        (root.life() != 0 && root.job() == Some(self)).then(|| root.task())
    }

    /// Decodes the record. Returns `None` if it is damaged.
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

    /// Returns the job's name.
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
