//! How a job ends: complete, or failed with a reason.
//!
//! A job is complete when a judge says so ([`judge`](crate::pool::judge)). It fails when one of its
//! tasks has failed finally, when it is stuck, or when a job that it depends on has failed.
//! First the reason is put into the map of errors (the first one stays), then the state is changed
//! by compare-and-swap. A worker that takes a task of a failed job skips it.

use super::{JobState, Record};
use crate::PoolError;
use crate::store::layout::{Hand, Layout};
use outlive::memory::Memory;
use outlive::structures::InsertError;

outlive::memory::crash_points! {
    /// The crash points of the end of a job.
    pub enum EndPoint for "tasks.end" {
        /// The reason of the job's failure is recorded.
        Explained,
        /// The job is over.
        Ended,
        /// The job's root is free for another job.
        GivenBack,
    }
}

impl<M: Memory> Layout<M> {
    /// Fails the job, if it has not ended. The first reason stays. Returns whether this call ended
    /// it.
    ///
    /// # Crash
    /// The job has failed, or not. In the second case its reason may be recorded already: a later
    /// call finds it.
    pub fn fail_job(self, hand: Hand<'_, M>, job: Record<M>, why: &str) -> Result<bool, PoolError> {
        self.fail_job_for(hand, job, why, None)
    }

    /// Fails the job for a task that could not allocate `wanted` bytes.
    ///
    /// # Crash
    /// The outcome is that of a crash in [`fail_job`](Self::fail_job).
    pub fn fail_job_for(
        self,
        hand: Hand<'_, M>,
        job: Record<M>,
        why: &str,
        wanted: Option<u64>,
    ) -> Result<bool, PoolError> {
        if job.state().is_over() {
            return Ok(false);
        }
        if let Some(bytes) = wanted {
            job.note_wanted(bytes);
        }
        match self.errors.insert(hand.heap, &job.name(), why.as_bytes()) {
            // A full heap must not end worker after worker: the job fails without its reason, apart
            // from `wanted`.
            Ok(()) | Err(InsertError::Exists(_) | InsertError::Heap(_)) => {}
        }
        self.memory.crash_point(EndPoint::Explained);
        let open = job.go(JobState::Open, JobState::Failed);
        let ended = open || job.go(JobState::Submitted, JobState::Failed)
            // Another thread opened it between the two.
            || job.go(JobState::Open, JobState::Failed);
        if ended {
            self.memory.crash_point(EndPoint::Ended);
            self.raise_version(hand);
        }
        Ok(ended)
    }

    /// Completes the job, if it is open. Called by a judge.
    pub fn complete_job(self, hand: Hand<'_, M>, job: Record<M>) -> bool {
        let ended = job.go(JobState::Open, JobState::Complete);
        if ended {
            self.memory.crash_point(EndPoint::Ended);
            self.raise_version(hand);
        }
        ended
    }
}
