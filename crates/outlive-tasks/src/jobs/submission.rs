//! A job is submitted wholly or not at all.
//!
//! The record has all that the job is, and the map's insertion puts it there by one compare-and-swap, which is
//! the submission. A submitter that dies left the job or nothing (the map's recovery frees what was on its
//! way). To submit the same once more is to find it. So a next incarnation need not know how far the last one came; and a
//! task that creates a job spawns a task that submits it, which may run twice as any other may. Another job of the same
//! name is refused.

use super::record::{SAME, number_in};
use super::{JobState, Record};
use crate::PoolError;
use crate::descriptor::MOST_ARGUMENTS;
use crate::desk::{At, Desk};
use crate::layout::{Hand, Layout};
use outlive::memory::{Memory, Offset};
use outlive::structures::InsertError;
use xxhash_rust::xxh3::xxh3_64;

outlive::memory::crash_points! {
    /// Where the submission of a job may be cut short.
    pub enum SubmitPoint for "tasks.submit" {
        /// A desk says that a job is submitted which depends on others.
        AtDesk,
        /// The job is submitted; nobody was told.
        Inserted,
        /// Those who keep a list of jobs know that theirs is old.
        Told,
    }
}

/// What is submitted.
#[derive(Clone, Debug)]
pub(crate) struct Submission<'a> {
    pub name: &'a [u8],
    pub function: u32,
    pub arguments: &'a [u8],
    pub reads: &'a [Vec<u8>],
    pub writes: &'a [Vec<u8>],
    /// Records of jobs.
    pub after: &'a [Offset],
}

fn padded(len: usize) -> usize {
    len.next_multiple_of(8)
}

impl Submission<'_> {
    /// Whether a record can say all this, and a task be made of it.
    pub fn check(&self) -> Result<(), SubmitError> {
        let len = self.arguments.len();
        if len > MOST_ARGUMENTS {
            return Err(SubmitError::TooLong { len });
        }
        let lists = [self.after.len(), self.reads.len(), self.writes.len()];
        match lists.into_iter().find(|many| *many > MOST_NAMES) {
            Some(many) => Err(SubmitError::TooMany { many }),
            None => Ok(()),
        }
    }

    /// The record of the job, which was [checked](Self::check).
    pub fn to_bytes(&self) -> Vec<u8> {
        let lengths = self.arguments.len() as u64 | (self.name.len() as u64) << 32;
        let numbers = self.after.len() as u64
            | (self.reads.len() as u64) << 16
            | (self.writes.len() as u64) << 32;
        let mut bytes = Vec::new();
        // The words of the submission come when it is made.
        let words = [0, 0, 0, 0, u64::from(self.function), lengths, numbers];
        let after = self.after.iter().map(|job| job.raw());
        for word in words.into_iter().chain(after) {
            bytes.extend_from_slice(&word.to_ne_bytes());
        }
        let mut push = |part: &[u8]| {
            bytes.extend_from_slice(part);
            bytes.resize(padded(bytes.len()), 0);
        };
        push(self.arguments);
        push(self.name);
        for name in self.reads.iter().chain(self.writes) {
            push(&(name.len() as u64).to_ne_bytes());
            push(name);
        }
        bytes
    }
}

/// Why a job was not submitted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// There is another of that name.
    #[error("another job is called `{name}`; give this one another name")]
    Exists {
        /// The name.
        name: String,
    },
    /// The job of that name is just being removed.
    #[error("the job `{name}` is just being removed; submit it again when that is done")]
    BeingRemoved {
        /// The name.
        name: String,
    },
    /// A job that it depends on was removed.
    #[error("the job `{name}` depends on a job that was removed")]
    DependsOnRemoved {
        /// The name.
        name: String,
    },
    /// Its arguments are longer than a task can name.
    #[error(
        "arguments of {len} bytes: the most are {}; put the data under a name and let the task read that",
        crate::descriptor::MOST_ARGUMENTS
    )]
    TooLong {
        /// How long they are.
        len: usize,
    },
    /// It reads, writes or follows more than a record can say.
    #[error("{many} names or jobs in one list: the most are {MOST_NAMES}; divide the job")]
    TooMany {
        /// How many.
        many: usize,
    },
    /// The heap has no room.
    #[error(transparent)]
    Heap(#[from] outlive::heap::buddy::AllocateError),
}

/// How many names or jobs a list of a record has at most.
const MOST_NAMES: usize = 0xFFFF;

impl<M: Memory> Layout<M> {
    /// Submits a job, or finds it if it has been submitted. Lock-free. Once it was submitted by this call it is not submitted by it
    /// again, whoever removes it. The record stays one for as long as a pin of the caller's.
    ///
    /// # Crash
    /// It is submitted or not.
    pub fn submit(
        self,
        hand: Hand<'_, M>,
        submission: &Submission<'_>,
    ) -> Result<Record<M>, SubmitError> {
        submission.check()?;
        self.submit_bytes(hand, submission.name, &submission.to_bytes())
    }

    /// The same of a job that was put into bytes.
    pub fn submit_bytes(
        self,
        hand: Hand<'_, M>,
        name: &[u8],
        bytes: &[u8],
    ) -> Result<Record<M>, SubmitError> {
        let mut bytes = bytes.to_vec();
        bytes.resize(bytes.len().max(SAME), 0);
        // By this a handle knows its job from another that is submitted by the same name later.
        let number = xxh3_64(&[&self.next_number().to_ne_bytes(), name].concat());
        bytes[16..24].copy_from_slice(&number.to_ne_bytes());
        let _pin = hand.heap.pin();
        let shown = || String::from_utf8_lossy(name).into_owned();
        let mut settled = false;
        loop {
            match self.jobs.insert_at(hand.heap, name, &bytes) {
                Ok(place) => {
                    self.memory.crash_point(SubmitPoint::Inserted);
                    self.tell_of_submission(hand);
                    // This one, also if somebody was so quick that it has been removed by now: to submit it again would be to
                    // run it again. The pin keeps the record.
                    return Ok(Record::at(self.memory, place));
                }
                Err(InsertError::Exists(there)) => {
                    if JobState::of_bytes(&there) == JobState::Removed {
                        // If who removes it is dead, that is brought to its end here.
                        if settled || Desk::settle_those_of_the_gone(self, hand).is_err() {
                            return Err(SubmitError::BeingRemoved { name: shown() });
                        }
                        settled = true;
                        continue;
                    }
                    if there.get(SAME..) != bytes.get(SAME..) {
                        return Err(SubmitError::Exists { name: shown() });
                    }
                    // Who submitted it may have died before he said so.
                    self.tell_of_submission(hand);
                    let record = self.find_job(hand, name);
                    if let Some(record) = record.filter(|it| it.number() == number_in(&there)) {
                        return Ok(record);
                    }
                    // Another's, which was removed meanwhile: so this submission comes after that removal.
                    self.memory.spin_hint();
                }
                Err(InsertError::Heap(error)) => return Err(error.into()),
            }
        }
    }

    /// Submits a job that depends on others: at a desk, so that none of these is removed meanwhile. `stay` says of all of them
    /// that they [are kept](Record::keep).
    ///
    /// # Crash
    /// It is submitted or not.
    pub fn submit_dependent(
        self,
        hand: Hand<'_, M>,
        submission: &Submission<'_>,
        stay: impl FnOnce() -> bool,
    ) -> Result<Record<M>, PoolError> {
        // Their records stay records while this looks at them.
        let _pin = hand.heap.pin();
        let desk = Desk::take(self, hand)?;
        let seated = desk.seated(hand);
        desk.note(At::Submission, 0);
        self.memory.crash_point(SubmitPoint::AtDesk);
        let submitted = if stay() {
            self.submit(hand, submission)
        } else {
            let name = String::from_utf8_lossy(submission.name).into_owned();
            Err(SubmitError::DependsOnRemoved { name })
        };
        let left = seated.leave();
        let record = submitted?;
        left?;
        Ok(record)
    }

    fn tell_of_submission(self, hand: Hand<'_, M>) {
        self.raise_version(hand);
        self.memory.crash_point(SubmitPoint::Told);
    }
}
