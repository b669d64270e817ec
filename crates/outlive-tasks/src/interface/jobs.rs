//! Operations on jobs by name: submit, find, remove.

use super::{Job, WorkerPool};
use crate::functions::registry::Call;
use crate::store::jobs::{Submission, name_key};
use crate::{JobState, PoolError};
use outlive::heap::LocalHeap;
use outlive::memory::Offset;

impl WorkerPool {
    /// Submits the job `name` with the root `call`. If it was submitted before, with the same root,
    /// arguments and names, returns that job. Lock-free.
    ///
    /// # Errors
    /// If another job has that name, or there is no memory.
    ///
    /// # Crash
    /// It is submitted or not. The next incarnation submits it again, or finds it [by
    /// name](Self::job), as long as it has not been [removed](Self::remove_job).
    pub fn submit<'h>(
        &self,
        heap: &'h LocalHeap<'h>,
        name: &str,
        call: Call,
    ) -> Result<Job<'h>, PoolError> {
        self.submit_after(heap, name, call, &[])
    }

    /// Submits a job that begins when the jobs in `after` are complete.
    ///
    /// # Errors
    /// Returns the errors of [`submit`](Self::submit).
    pub fn submit_after<'h>(
        &self,
        heap: &'h LocalHeap<'h>,
        name: &str,
        call: Call,
        after: &[&Job<'_>],
    ) -> Result<Job<'h>, PoolError> {
        // Keeps the record until its number is read.
        let _pin = heap.pin();
        let function = self.registry.number(call.definition());
        let function = function.ok_or_else(|| PoolError::NoTask {
            name: call.definition().name().into(),
        })?;
        let keys = |names: &[String]| names.iter().map(|name| name_key(name)).collect::<Vec<_>>();
        let records: Vec<Offset> = after.iter().map(|job| job.record.at).collect();
        let submission = Submission {
            name: name.as_bytes(),
            function,
            arguments: call.arguments(),
            reads: &keys(&call.reads),
            writes: &keys(&call.writes),
            after: &records,
        };
        let hand = self.hand(heap);
        let record = if after.is_empty() {
            self.layout.submit(hand, &submission)?
        } else {
            let stay = || after.iter().all(|job| job.keep());
            self.layout.submit_dependent(hand, &submission, stay)?
        };
        self.layout.barrier.interrupt(heap.member())?;
        Ok(Job::of(*self, heap, record))
    }

    /// Returns the job `name`, if it was submitted and has not been removed.
    pub fn job<'h>(&self, heap: &'h LocalHeap<'h>, name: &str) -> Option<Job<'h>> {
        let _pin = heap.pin();
        let record = self.layout.find_job(self.hand(heap), name.as_bytes())?;
        (record.state() != JobState::Removed).then(|| Job::of(*self, heap, record))
    }

    /// Returns all jobs.
    pub fn jobs<'h>(&self, heap: &'h LocalHeap<'h>) -> Vec<Job<'h>> {
        let _pin = heap.pin();
        let records = self.layout.all_jobs(self.hand(heap)).into_iter();
        let there = records.filter(|record| record.state() != JobState::Removed);
        there.map(|record| Job::of(*self, heap, record)).collect()
    }

    /// Removes the job `name`, which has ended, with its result and the reason of its failure.
    /// Returns `false` if it does not exist. Another job may then have its name. Data that its
    /// tasks wrote under names stays: see [`remove_data`](Self::remove_data). The time grows with
    /// the number of jobs and of descriptors.
    ///
    /// Handles on the job show that it was removed. If the same job is submitted again, it runs
    /// again. So remove it when its result is no longer needed: as a rule its submitter does so,
    /// after it has saved the result. Otherwise the submitter's next incarnation, which begins with
    /// the submission, would not find the job.
    ///
    /// ```
    #[doc = include_str!("../example_pool.txt")]
    /// # task! {
    /// #     fn double(context, number: u64) {
    /// #         context.result_of(&(number * 2))
    /// #     }
    /// # }
    /// # with_a_worker(|heap, pool| {
    /// for number in 1..=3u64 {
    ///     let job = pool.submit(heap, "double", double(number))?;
    ///     assert_eq!(job.wait_for::<u64>(None)?, Some(number * 2));
    ///     assert!(pool.remove_job(heap, "double")?);
    ///     assert_eq!(job.state(), JobState::Removed);
    /// }
    /// assert!(pool.jobs(heap).is_empty());
    /// assert!(!pool.remove_job(heap, "double")?);
    /// # Ok(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`PoolError::JobInUse`], which names the user to wait for, if the job has not ended, a job
    /// that depends on it has not begun, some of its tasks still run, or another caller removes it.
    /// [`PoolError::NoDesk`] if too many callers perform such operations.
    ///
    /// # Crash
    /// The job exists or not. The next incarnation of the caller repeats the removal. The next
    /// caller that removes a job or data, puts data or submits the same job finishes the rest.
    pub fn remove_job(&self, heap: &LocalHeap<'_>, name: &str) -> Result<bool, PoolError> {
        self.layout.remove_job(self.hand(heap), name.as_bytes())
    }
}
