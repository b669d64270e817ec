//! How a job that is over is removed: its record, its result, the reason of its failure.
//!
//! The removal works like that of data (see [`names`](crate::store::names)). A staging slot names
//! the record. The job is offered by a tag in the word of its state, and taken by another tag if it
//! has no users. From then on it counts as no job. The remover, or the next owner of its staging
//! slot, removes the reason, retires the result by way of the slot, and removes the record last.
//!
//! # Possible references
//!
//! * *Its tasks.* While one is not over, its job stays. (Those of a failed job that wait for
//!   unwritten data are given up.) So does the root: it is given back before, which takes a moment
//!   if its task had to wait for its inputs.
//! * *Jobs that depend on it*, while they are only submitted: afterwards their dependencies are not
//!   read any more. The submitter of such a job owns a staging slot, and then checks whether a
//!   dependency is offered: one of the two sees the other, as with names.
//! * *Workers*, which keep lists of jobs. The version of the list is raised before the record is
//!   retired, and a worker pins before it compares it with that of its list.
//! * *A handle* ([`Job`](crate::Job)) in the program. It has the unique 64-bit number of the job's
//!   submission, which is also in the record, so it detects that its job is gone.
//! * *The next incarnation of its submitter*, which would find the job by its name, or submit it
//!   again. So a job is removed by a program that has no use for its result any more, and only
//!   after the submitter has it.

use super::{JobState, Record, Root, result_key};
use crate::engine::supply;
use crate::store::layout::{DESKS_IN_ALL, Hand, Layout};
use crate::store::names::{Cell, Tag};
use crate::store::staging::{At, StagingSlot};
use crate::{PoolError, State};
use outlive::heap::LocalHeap;
use outlive::memory::{Memory, Offset};

outlive::memory::crash_points! {
    /// The crash points of the removal of a job.
    pub enum RemoveJobPoint for "tasks.remove_job" {
        /// The staging slot names the job that is to be removed.
        Noted,
        /// The job is offered: a user may keep it.
        Offered,
        /// The job is removed; its result, its reason of failure and its record still exist.
        Taken,
        /// The reason of the job's failure is removed.
        Forgotten,
        /// The staging slot and the cell of the result both refer to the result of the job.
        OnDesk,
        /// Only the staging slot refers to the result.
        Gone,
        /// The result is retired.
        Retired,
        /// The job's record is removed.
        Dropped,
    }
}

impl<M: Memory> Layout<M> {
    /// Removes the job `name`, which is over. Returns `false` if it does not exist. Lock-free.
    ///
    /// # Errors
    /// If it is not over, has users, or is being removed by another thread.
    ///
    /// # Crash
    /// The job exists or not. The next owner of the staging slot, or another removal, does the
    /// rest.
    pub fn remove_job(self, hand: Hand<'_, M>, name: &[u8]) -> Result<bool, PoolError> {
        StagingSlot::settle_those_of_the_gone(self, hand)?;
        let desk = StagingSlot::take_for_removal(self, hand)?;
        let seated = desk.seated(hand);
        let removed = self.remove_job_at(hand, desk, name);
        // Also after an error: it settles the rest.
        let left = seated.leave();
        let removed = removed?;
        left?;
        Ok(removed)
    }

    fn remove_job_at(
        self,
        hand: Hand<'_, M>,
        desk: StagingSlot<M>,
        name: &[u8],
    ) -> Result<bool, PoolError> {
        // The pin keeps the record valid.
        let _pin = hand.heap.pin();
        let Some(job) = self.find_job(hand, name) else {
            return Ok(false);
        };
        let in_use = |by: &str| PoolError::JobInUse {
            name: String::from_utf8_lossy(name).into_owned(),
            by: by.to_owned(),
        };
        if !job.state().is_over() {
            return Err(in_use("it has not ended"));
        }
        desk.note(At::Job(job.at), job.number());
        self.memory.crash_point(RemoveJobPoint::Noted);
        if !job.offer(desk.number()) {
            desk.forget();
            return Err(in_use("another member is removing it"));
        }
        self.memory.crash_point(RemoveJobPoint::Offered);
        if let Some(by) = self.user_of_job(hand, desk, job)? {
            job.retag(Tag::Offered(desk.number()), None);
            desk.forget();
            return Err(in_use(&by));
        }
        let taken = Some(Tag::Taken(desk.number()));
        if !job.retag(Tag::Offered(desk.number()), taken) {
            desk.forget();
            return Err(in_use("a job that was just submitted depends on it"));
        }
        self.memory.crash_point(RemoveJobPoint::Taken);
        finish_removal_of_job(self, hand.heap, desk, job);
        desk.forget();
        Ok(true)
    }

    /// Returns a description of the user of the job.
    pub fn user_of_job(
        self,
        hand: Hand<'_, M>,
        desk: StagingSlot<M>,
        job: Record<M>,
    ) -> Result<Option<String>, PoolError> {
        let mut others = (0..DESKS_IN_ALL).filter(|number| *number != desk.number());
        // Before the jobs: a job whose submission has ended is among them.
        if others.any(|number| StagingSlot::at(self, number).submits()) {
            let by = "a job is being submitted that may depend on it; try again";
            return Ok(Some(by.into()));
        }
        let failed = job.state() == JobState::Failed;
        let mut runs = false;
        // Walk twice: a walk is not a snapshot, and a task may spawn others behind it, and end.
        // Tasks that begin now that the job is over spawn none, so the second walk sees those
        // others. New tasks do not count: their parent does, or its attempt has died.
        for number in (0..self.slots.used()).chain(0..self.slots.used()) {
            let (slot, chunk) = (self.slots.slot(number), self.slots.settings().chunk);
            supply::each(self.memory, slot, chunk, |task| {
                let status = task.status()?;
                let counts = !status.state().is_over() && status.state() != State::New;
                if !counts || task.job() != job.at.raw() {
                    return Ok(());
                }
                // It waits for unwritten data, and its job has failed.
                let given_up = failed
                    && status.state() == State::Waiting
                    && task.exchange_status(status, status.given_up());
                runs |= !given_up;
                Ok::<(), PoolError>(())
            })?;
        }
        if runs {
            return Ok(Some("some of its tasks have not ended".into()));
        }
        for number in 0..self.roots {
            let root = Root::of(self, number);
            if root.job() == Some(job) {
                root.give_back_if_over(hand)?;
            }
            if root.job() == Some(job) {
                return Ok(Some(
                    "other workers may still be reading its first task; try again".into(),
                ));
            }
        }
        // After the tasks, since they submit jobs, too.
        for other in self.all_jobs(hand) {
            if other.state() == JobState::Submitted && other.dependencies().any(|one| one == job) {
                let name = String::from_utf8_lossy(&other.name()).into_owned();
                return Ok(Some(format!(
                    "job `{name}` depends on it, and has not begun"
                )));
            }
        }
        Ok(None)
    }
}

/// Finishes the removal of a job that is taken. Called by the owner of the staging slot.
pub fn finish_removal_of_job<M: Memory>(
    layout: Layout<M>,
    heap: &LocalHeap<'_, M>,
    desk: StagingSlot<M>,
    job: Record<M>,
) {
    let (memory, name) = (layout.memory, job.name());
    // Before anything of it is retired: workers keep lists of jobs.
    layout.raise_version_by(heap);
    layout.errors.remove(heap, &name);
    memory.crash_point(RemoveJobPoint::Forgotten);
    let key = result_key(&name);
    if let Some(cell) = layout.names.find(heap, &key)
        && let Some(data) = cell.value()
    {
        desk.lay(data.block());
        memory.crash_point(RemoveJobPoint::OnDesk);
        cell.let_go(data.block(), None);
    }
    memory.crash_point(RemoveJobPoint::Gone);
    heap.retire_from(desk.block_at());
    memory.crash_point(RemoveJobPoint::Retired);
    layout.names.drop_entry(heap, &key);
    let number = desk.noted_word();
    layout
        .jobs
        .remove_if(heap, &name, |record| Record::<M>::is_taken(&record, number));
    memory.crash_point(RemoveJobPoint::Dropped);
}

/// Returns whether the result name of the job at `record` is still bound to `block`.
pub fn has_result<M: Memory>(
    layout: Layout<M>,
    heap: &LocalHeap<'_, M>,
    record: Offset,
    block: Offset,
) -> bool {
    let key = result_key(&Record::at(layout.memory, record).name());
    let data = { layout.names }.find(heap, &key).and_then(Cell::value);
    data.is_some_and(|data| data.block() == block)
}

/// Settles a removal in `desk`, whose owner is dead or could not finish it.
pub(crate) fn settle<M: Memory>(
    layout: Layout<M>,
    heap: &LocalHeap<'_, M>,
    desk: StagingSlot<M>,
    job: Record<M>,
) {
    // The record may have been removed, and its memory reused; or there is another job of its name.
    let _pin = heap.pin();
    let is_there = layout.jobs.place(heap, &job.name()) == Some(job.at);
    if !is_there || job.number() != desk.noted_word() {
        return;
    }
    if !job.retag(Tag::Offered(desk.number()), None) && job.has_tag(Tag::Taken(desk.number())) {
        finish_removal_of_job(layout, heap, desk, job);
    }
}
