//! A job, as those see it who wait for its end.

use super::WorkerPool;
use crate::JobState;
use crate::jobs::{Record, result_key};
use crate::names::{Cell, Data};
use core::time::Duration;
use outlive::heap::LocalHeap;
use std::time::Instant;

/// A job of a pool.
#[derive(Clone, Copy, Debug)]
pub struct Job<'h> {
    pub(super) pool: WorkerPool,
    pub(super) heap: &'h LocalHeap<'h>,
    pub(super) record: Record,
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

impl Job<'_> {
    /// Its name.
    pub fn name(&self) -> String {
        String::from_utf8_lossy(&self.record.name()).into_owned()
    }

    /// How it stands.
    pub fn state(&self) -> JobState {
        self.record.state()
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
            match self.record.state() {
                JobState::Complete => return Ok(self.result()),
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

    fn result(&self) -> Vec<u8> {
        let key = result_key(&self.record.name());
        let cell = self.pool.layout.names.find(self.heap, &key);
        let data = cell.and_then(Cell::value);
        data.map_or_else(Vec::new, Data::to_vec)
    }

    /// Why it failed, if it did.
    pub fn error(&self) -> Option<String> {
        let hand = self.pool.hand(self.heap);
        (self.state() == JobState::Failed)
            .then(|| self.pool.layout.error_of(hand, &self.record.name()))?
    }
}

/// How long one waits for a job at most before one looks again, should no bell ring.
const WAIT_NAP: Duration = Duration::from_millis(100);
