//! Submission of a job, completely or not at all.
//!
//! The record describes the job completely. One compare-and-swap inserts it into the map, and is
//! the submission. A submitter that dies leaves the job or nothing (the map's recovery frees its
//! unfinished blocks). Submitting the same job again finds it. So a next incarnation need not know
//! the progress of the last one. A task that creates a job spawns a task that submits it, which may
//! run twice as any other. Another job of the same name is refused.

use super::record::{SAME, number_in};
use super::{JobState, Record};
use crate::PoolError;
use crate::engine::descriptor::MOST_ARGUMENTS;
use crate::store::layout::{Hand, Layout};
use crate::store::staging::{At, StagingSlot};
use outlive::memory::{Memory, Offset};
use outlive::structures::InsertError;
use xxhash_rust::xxh3::xxh3_64;

outlive::memory::crash_points! {
    /// The crash points of the submission of a job.
    pub enum SubmitPoint for "tasks.submit" {
        /// A staging slot announces the submission of a job that depends on other jobs.
        AtDesk,
        /// The job is submitted; the version is not raised yet.
        Inserted,
        /// The version is raised: workers see that their lists of jobs are old.
        Told,
    }
}

/// The description of a job that is submitted.
#[derive(Clone, Debug)]
pub struct Submission<'a> {
    pub name: &'a [u8],
    pub function: u32,
    pub arguments: &'a [u8],
    pub reads: &'a [Vec<u8>],
    pub writes: &'a [Vec<u8>],
    /// The records of the jobs on which this job depends.
    pub after: &'a [Offset],
}

fn padded(len: usize) -> usize {
    len.next_multiple_of(8)
}

impl Submission<'_> {
    /// Checks whether a record can hold the description of the job, and a descriptor its root task.
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

    /// Returns the record of the job, which was [checked](Self::check).
    pub fn to_bytes(&self) -> Vec<u8> {
        let lengths = self.arguments.len() as u64 | (self.name.len() as u64) << 32;
        let numbers = self.after.len() as u64
            | (self.reads.len() as u64) << 16
            | (self.writes.len() as u64) << 32;
        let mut bytes = Vec::new();
        // The words of the submission are written when it is made.
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

/// The reason why a job was not submitted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// Another job has this name.
    #[error("another job has the name `{name}`; give this one another name")]
    Exists {
        /// The name.
        name: String,
    },
    /// The job of that name is just being removed.
    #[error("the job `{name}` is being removed; submit it again when that is done")]
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
        "the arguments have {len} bytes; the maximum is {}; put the data under a name and let the \
         task read that",
        crate::engine::descriptor::MOST_ARGUMENTS
    )]
    TooLong {
        /// The length in bytes.
        len: usize,
    },
    /// The job reads or writes more names, or depends on more jobs, than a record can hold.
    #[error("one list has {many} names or jobs; the maximum is {MOST_NAMES}; divide the job")]
    TooMany {
        /// The number of them.
        many: usize,
    },
    /// The heap is full.
    #[error(transparent)]
    Heap(#[from] outlive::heap::buddy::AllocateError),
}

/// The maximum number of names or jobs in a list of a record.
const MOST_NAMES: usize = 0xFFFF;

impl<M: Memory> Layout<M> {
    /// Submits a job, or finds it if it was submitted before. Lock-free. One call submits it at
    /// most once, even if it is removed immediately. The record stays valid as long as the caller
    /// holds its pin.
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

    /// Submits a job that was encoded into bytes.
    pub fn submit_bytes(
        self,
        hand: Hand<'_, M>,
        name: &[u8],
        bytes: &[u8],
    ) -> Result<Record<M>, SubmitError> {
        let mut bytes = bytes.to_vec();
        bytes.resize(bytes.len().max(SAME), 0);
        // The number distinguishes the job from later ones of the same name, for handles.
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
                    // Returned even if it has been removed by now: to submit it again would be to
                    // run it again. The pin keeps the record.
                    return Ok(Record::at(self.memory, place));
                }
                Err(InsertError::Exists(there)) => {
                    if JobState::of_bytes(&there) == JobState::Removed {
                        // If the remover is dead, its removal is finished here.
                        if settled || StagingSlot::settle_those_of_the_gone(self, hand).is_err() {
                            return Err(SubmitError::BeingRemoved { name: shown() });
                        }
                        settled = true;
                        continue;
                    }
                    if there.get(SAME..) != bytes.get(SAME..) {
                        return Err(SubmitError::Exists { name: shown() });
                    }
                    // Its submitter may have died before it raised the version.
                    self.tell_of_submission(hand);
                    let record = self.find_job(hand, name);
                    if let Some(record) = record.filter(|it| it.number() == number_in(&there)) {
                        return Ok(record);
                    }
                    // The job that was found has been removed since. So this submission comes after
                    // that removal.
                    self.memory.spin_hint();
                }
                Err(InsertError::Heap(error)) => return Err(error.into()),
            }
        }
    }

    /// Submits a job that depends on other jobs. A staging slot keeps those jobs from being removed
    /// during the submission. `stay` returns whether all of them [are kept](Record::keep).
    ///
    /// # Crash
    /// The job is submitted or not.
    pub fn submit_dependent(
        self,
        hand: Hand<'_, M>,
        submission: &Submission<'_>,
        stay: impl FnOnce() -> bool,
    ) -> Result<Record<M>, PoolError> {
        // The pin keeps their records valid.
        let _pin = hand.heap.pin();
        let desk = StagingSlot::take(self, hand)?;
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
