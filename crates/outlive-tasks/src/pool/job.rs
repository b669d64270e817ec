//! A job, as those see it who wait for its end.

use super::WorkerPool;
use crate::JobState;
use crate::jobs::{Record, result_key};
use crate::names::Data;
use core::time::Duration;
use outlive::heap::LocalHeap;
use std::time::Instant;

/// A job of a pool.
#[derive(Clone, Copy, Debug)]
pub struct Job<'h> {
    pub(super) pool: WorkerPool,
    pub(super) heap: &'h LocalHeap<'h>,
    pub(super) record: Record,
    /// That of its submission.
    number: u64,
}

/// Why a job has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    /// It failed.
    #[error("the job `{job}` failed: {why}")]
    Failed {
        /// The job.
        job: String,
        /// Why.
        why: String,
    },
    /// It was removed.
    #[error("the job was removed; what it had is gone")]
    Removed,
    /// It has not ended yet.
    #[error(
        "the job `{job}` has not ended within {waited:?}; wait again, or look at the pool's status"
    )]
    TimedOut {
        /// The job.
        job: String,
        /// How long was waited.
        waited: Duration,
    },
}

impl<'h> Job<'h> {
    /// A handle on the job with this record, which is there.
    pub(super) fn of(pool: WorkerPool, heap: &'h LocalHeap<'h>, record: Record) -> Self {
        Self {
            pool,
            heap,
            record,
            number: record.number(),
        }
    }

    /// Asks its record, while that is one; after its removal it may be anything.
    fn ask<T>(&self, ask: impl FnOnce(Record) -> T) -> Option<T> {
        // Whoever removes it raised the version, and took it, before he retired the record: it is there for as long as the
        // pin, or its state or its number say that it is not.
        let _pin = self.heap.pin();
        let removed =
            self.record.number() != self.number || self.record.state() == JobState::Removed;
        (!removed).then(|| ask(self.record))
    }

    /// For who is about to depend on it: whether it stays until he has said so.
    pub(super) fn keep(&self) -> bool {
        self.ask(Record::keep) == Some(true)
    }

    /// Its name; empty if it was removed.
    pub fn name(&self) -> String {
        let name = self.ask(Record::name).unwrap_or_default();
        String::from_utf8_lossy(&name).into_owned()
    }

    /// How it stands.
    pub fn state(&self) -> JobState {
        self.ask(Record::state).unwrap_or(JobState::Removed)
    }

    /// Its result, what its tasks [said](crate::Context::result) it is, once it is complete; nothing, if they said nothing. Waits at
    /// most for `timeout`; for ever without one.
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

    /// Its result as a value; `None` if it is of another size.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_for<T: bytemuck::Pod>(
        &self,
        timeout: Option<Duration>,
    ) -> Result<Option<T>, JobError> {
        let bytes = self.wait(timeout)?;
        Ok(bytemuck::try_pod_read_unaligned(&bytes).ok())
    }

    fn result(&self) -> Result<Vec<u8>, JobError> {
        // The result stays as long as the pin, if it is there.
        let pin = self.heap.pin();
        let key = self.ask(|record| result_key(&record.name()));
        let key = key.ok_or(JobError::Removed)?;
        let data = self.pool.layout.names.read(self.heap, &pin, &key);
        let result = data.map_or_else(Vec::new, Data::to_vec);
        // Otherwise there may have been none any more, or that of another job.
        match self.state() {
            JobState::Removed => Err(JobError::Removed),
            _ => Ok(result),
        }
    }

    /// Why it failed, if it did.
    pub fn error(&self) -> Option<String> {
        let hand = self.pool.hand(self.heap);
        (self.state() == JobState::Failed)
            .then(|| self.pool.layout.error_of(hand, self.name().as_bytes()))?
    }
}

/// How long one waits for a job at most before one looks again, should no bell ring.
const WAIT_NAP: Duration = Duration::from_millis(100);
