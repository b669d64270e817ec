//! A handle on a job, to wait for its end.

use super::WorkerPool;
use crate::JobState;
use crate::store::jobs::{Record, result_key};
use crate::store::names::Data;
use core::time::Duration;
use outlive::heap::LocalHeap;
use std::time::Instant;

/// A job of a pool.
#[derive(Clone, Copy, Debug)]
pub struct Job<'h> {
    pub(super) pool: WorkerPool,
    pub(super) heap: &'h LocalHeap<'h>,
    pub(super) record: Record,
    /// The number of its submission.
    number: u64,
}

/// The reason why a job has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    /// The job failed.
    #[error("the job `{job}` failed: {why}")]
    Failed {
        /// The job.
        job: String,
        /// The reason.
        why: String,
    },
    /// The job was removed.
    #[error("the job was removed, and its result with it")]
    Removed,
    /// The job has not ended within the time limit.
    #[error(
        "the job `{job}` has not ended within {waited:?}; wait again, or check the pool's status"
    )]
    TimedOut {
        /// The job.
        job: String,
        /// The time that was waited.
        waited: Duration,
    },
}

impl<'h> Job<'h> {
    /// Returns a handle on the job with this record, which exists.
    pub(super) fn of(pool: WorkerPool, heap: &'h LocalHeap<'h>, record: Record) -> Self {
        Self {
            pool,
            heap,
            record,
            number: record.number(),
        }
    }

    /// Calls `ask` with the job's record, unless the job was removed: the record may be reused.
    fn ask<T>(&self, ask: impl FnOnce(Record) -> T) -> Option<T> {
        // A remover raises the version, and takes the record, before it retires the record. So the
        // record stays as long as the pin, or its state or its number shows that it was removed.
        let _pin = self.heap.pin();
        let removed =
            self.record.number() != self.number || self.record.state() == JobState::Removed;
        (!removed).then(|| ask(self.record))
    }

    /// Returns whether the job is kept for a submission that depends on it and has recorded that.
    pub(super) fn keep(&self) -> bool {
        self.ask(Record::keep) == Some(true)
    }

    /// Returns the job's name; empty if it was removed.
    pub fn name(&self) -> String {
        let name = self.ask(Record::name).unwrap_or_default();
        String::from_utf8_lossy(&name).into_owned()
    }

    /// Returns the job's state.
    pub fn state(&self) -> JobState {
        self.ask(Record::state).unwrap_or(JobState::Removed)
    }

    /// Returns the job's result, which its tasks [wrote](crate::Context::result), once it is
    /// complete; empty if they wrote none. Waits at most for `timeout`; without one, forever.
    ///
    /// # Errors
    /// If it failed, or has not ended in time.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<Vec<u8>, JobError> {
        let (layout, since) = (self.pool.layout, Instant::now());
        let member = self.heap.member();
        let key = layout.version_at().raw();
        loop {
            let bells = member.bells();
            let seen = bells.map(|bells| bells.read(key));
            match self.state() {
                JobState::Complete => return self.result(),
                JobState::Removed => return Err(JobError::Removed),
                JobState::Failed => {
                    return Err(JobError::Failed {
                        job: self.name(),
                        why: self.error().unwrap_or_default(),
                    });
                }
                _ => {}
            }
            let waited = since.elapsed();
            let left = timeout.map_or(WAIT_NAP, |timeout| timeout.saturating_sub(waited));
            if left.is_zero() {
                return Err(JobError::TimedOut {
                    job: self.name(),
                    waited,
                });
            }
            match (bells, seen) {
                (Some(bells), Some(seen)) => bells.wait(key, seen, left.min(WAIT_NAP)),
                _ => std::thread::sleep(left.min(Duration::from_millis(1))),
            }
        }
    }

    /// Returns the job's result as a value; `None` if it has another size.
    ///
    /// # Errors
    /// Returns the errors of [`wait`](Self::wait).
    pub fn wait_for<T: bytemuck::Pod>(
        &self,
        timeout: Option<Duration>,
    ) -> Result<Option<T>, JobError> {
        let bytes = self.wait(timeout)?;
        Ok(bytemuck::try_pod_read_unaligned(&bytes).ok())
    }

    fn result(&self) -> Result<Vec<u8>, JobError> {
        // The result, if it exists, stays as long as the pin.
        let pin = self.heap.pin();
        let key = self.ask(|record| result_key(&record.name()));
        let key = key.ok_or(JobError::Removed)?;
        let data = self.pool.layout.names.read(self.heap, &pin, &key);
        let result = data.map_or_else(Vec::new, Data::to_vec);
        // If the job was removed, the result may have been missing, or that of another job.
        match self.state() {
            JobState::Removed => Err(JobError::Removed),
            _ => Ok(result),
        }
    }

    /// Returns the reason why the job failed, if it failed.
    pub fn error(&self) -> Option<String> {
        let hand = self.pool.hand(self.heap);
        (self.state() == JobState::Failed)
            .then(|| self.pool.layout.error_of(hand, self.name().as_bytes()))?
    }
}

/// The longest time between two checks of a job, if the wake-up futex is not signalled.
const WAIT_NAP: Duration = Duration::from_millis(100);
