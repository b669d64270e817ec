//! Jobs by name: submitted, found, removed.

use super::{Job, WorkerPool};
use crate::jobs::{Submission, name_key};
use crate::registry::Call;
use crate::{JobState, PoolError};
use outlive::heap::LocalHeap;
use outlive::memory::Offset;

impl WorkerPool {
    /// Submits the job `name`, whose root is `call`, or finds it if it has been submitted: with the same root, arguments and
    /// names. Lock-free.
    ///
    /// # Errors
    /// If there is another job of that name, or no room.
    ///
    /// # Crash
    /// It is submitted or not. The next incarnation submits it again, or finds it [by name](Self::job): as long as nobody has
    /// [removed](Self::remove_job) it.
    pub fn submit<'h>(
        &self,
        heap: &'h LocalHeap<'h>,
        name: &str,
        call: Call,
    ) -> Result<Job<'h>, PoolError> {
        self.submit_after(heap, name, call, &[])
    }

    /// The same for a job that begins when the jobs in `after` are complete.
    ///
    /// # Errors
    /// As [`submit`](Self::submit).
    pub fn submit_after<'h>(
        &self,
        heap: &'h LocalHeap<'h>,
        name: &str,
        call: Call,
        after: &[&Job<'_>],
    ) -> Result<Job<'h>, PoolError> {
        // The record stays one until its number is read.
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

    /// The job `name`, if it has been submitted and not been removed.
    pub fn job<'h>(&self, heap: &'h LocalHeap<'h>, name: &str) -> Option<Job<'h>> {
        let _pin = heap.pin();
        let record = self.layout.find_job(self.hand(heap), name.as_bytes())?;
        (record.state() != JobState::Removed).then(|| Job::of(*self, heap, record))
    }

    /// All jobs.
    pub fn jobs<'h>(&self, heap: &'h LocalHeap<'h>) -> Vec<Job<'h>> {
        let _pin = heap.pin();
        let records = self.layout.all_jobs(self.hand(heap)).into_iter();
        let there = records.filter(|record| record.state() != JobState::Removed);
        there.map(|record| Job::of(*self, heap, record)).collect()
    }

    /// Removes the job `name`, which has ended, with its result and the reason of its failure; `false` if there is none. Its
    /// name is free then for another job. What its tasks wrote under names stays: see
    /// [`remove_data`](Self::remove_data). It takes time by the number of jobs and of descriptors.
    ///
    /// Handles on the job know that it is gone. Whoever submits the same job once more has it run once more: so the one to
    /// remove it is who has no use for it any more, as a rule its submitter when he has its result where he wants
    /// it; a next incarnation of him that begins with the submission would otherwise find nothing.
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
    /// [`PoolError::JobInUse`], with what to wait for: if it has not ended, a job that depends on it has not begun, tasks of it
    /// run still, or somebody else removes it. [`PoolError::NoDesk`] if too many are about something of the kind.
    ///
    /// # Crash
    /// It is there, or it is not: the next incarnation removes it again. What was left to do is done by whoever next
    /// removes something, brings data or submits the same job.
    pub fn remove_job(&self, heap: &LocalHeap<'_>, name: &str) -> Result<bool, PoolError> {
        self.layout.remove_job(self.hand(heap), name.as_bytes())
    }
}
