//! How a job is removed that is over: its record, its result, the reason of its failure.
//!
//! As data is ([`names`](crate::names), `remove.rs`): at a desk, which says which record; offered by a tag in the word of
//! its state, taken by another if nobody uses it. From then on it is a job to nobody. Who has taken it, or the next one at his
//! desk, removes the reason, retires the result out of the desk, and removes the record last.
//!
//! # Who may still have a reference
//!
//! * *Its tasks.* While one is not over, its job stays. (Those of a failed job that wait for what nobody has written are given
//!   up.) So does the root: it is given back before, which takes a moment if its task had to wait for its inputs.
//! * *Jobs that depend on it*, while they are only submitted: afterwards nobody asks any more. Whoever submits such a
//!   job sits at a desk meanwhile, and then looks whether one of those is offered: one sees the other, as with names.
//! * *Workers*, who keep lists of jobs. The version of the list is raised before the record is retired, and a worker pins before
//!   he compares it with that of his list.
//! * *A handle* ([`Job`](crate::Job)) in the program's hands. It has the number of the job's submission, which stands in the
//!   record, and is of 64 bits that are no other's: it knows that its job is gone.
//! * *The next incarnation of its submitter*, which would find the job by its name, or submit it anew. So a job is
//!   removed by whoever has no use for its result any more, and not before its submitter has it.

use super::{JobState, Record, Root, result_key};
use crate::desk::{At, Desk};
use crate::layout::{DESKS_IN_ALL, Hand, Layout};
use crate::names::{Cell, Tag};
use crate::{PoolError, State, supply};
use outlive::heap::LocalHeap;
use outlive::memory::{Memory, Offset};

outlive::memory::crash_points! {
    /// Where the removal of a job may be cut short.
    pub enum RemoveJobPoint for "tasks.remove_job" {
        /// The desk says what is to be removed.
        Noted,
        /// It is offered: whoever uses it may keep it.
        Offered,
        /// It is removed; all that it had is there.
        Taken,
        /// The reason of its failure is removed.
        Forgotten,
        /// Its result is at the desk, too.
        OnDesk,
        /// It is at the desk only.
        Gone,
        /// It is retired.
        Retired,
        /// Its record is removed.
        Dropped,
    }
}

impl<M: Memory> Layout<M> {
    /// Removes the job `name`, which is over; `false` if there is none. Lock-free.
    ///
    /// # Errors
    /// If it is not over, somebody uses it, or removes it just now.
    ///
    /// # Crash
    /// It is there, or it is not; what is left to do is done by whoever next sits at the desk, or removes it again.
    pub fn remove_job(self, hand: Hand<'_, M>, name: &[u8]) -> Result<bool, PoolError> {
        self.remove_job_slowly(hand, name, || ())
    }

    /// The same, with a `pause` between the offer and the look at who uses it: for the proofs.
    pub fn remove_job_slowly(
        self,
        hand: Hand<'_, M>,
        name: &[u8],
        pause: impl FnOnce(),
    ) -> Result<bool, PoolError> {
        Desk::settle_those_of_the_gone(self, hand)?;
        let desk = Desk::take_for_removal(self, hand)?;
        let seated = desk.seated(hand);
        let removed = self.remove_job_at(hand, desk, name, pause);
        // Also what an error left half-done.
        let left = seated.leave();
        let removed = removed?;
        left?;
        Ok(removed)
    }

    fn remove_job_at(
        self,
        hand: Hand<'_, M>,
        desk: Desk<M>,
        name: &[u8],
        pause: impl FnOnce(),
    ) -> Result<bool, PoolError> {
        // The record stays one while this looks at it.
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
            return Err(in_use("another removes it"));
        }
        self.memory.crash_point(RemoveJobPoint::Offered);
        pause();
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
        finish(self, hand.heap, desk, job);
        desk.forget();
        Ok(true)
    }

    /// Wrong: looks who uses the job before it offers it; then there is a `pause`. For the proofs that see it.
    pub fn remove_job_looking_first(
        self,
        hand: Hand<'_, M>,
        name: &[u8],
        pause: impl FnOnce(),
    ) -> Result<bool, PoolError> {
        let desk = Desk::take_for_removal(self, hand)?;
        let mut removed = false;
        if let Some(job) = self.find_job(hand, name)
            && self.user_of_job(hand, desk, job)?.is_none()
        {
            pause();
            desk.note(At::Job(job.at), job.number());
            job.offer(desk.number());
            job.retag(Tag::Offered(desk.number()), Some(Tag::Taken(desk.number())));
            finish(self, hand.heap, desk, job);
            removed = true;
        }
        desk.leave(hand)?;
        Ok(removed)
    }

    /// Who uses the job, for people.
    fn user_of_job(
        self,
        hand: Hand<'_, M>,
        desk: Desk<M>,
        job: Record<M>,
    ) -> Result<Option<String>, PoolError> {
        let mut others = (0..DESKS_IN_ALL).filter(|number| *number != desk.number());
        // Before the jobs: one that is in nobody's hands any more is among them.
        if others.any(|number| Desk::at(self, number).submits()) {
            let by = "a job is being submitted that may depend on it; try again";
            return Ok(Some(by.into()));
        }
        let failed = job.state() == JobState::Failed;
        let mut runs = false;
        // Twice: a walk is not a picture of one moment, and a task may spawn others behind it, and end. What begins now that the job
        // is over spawns nothing, so these are seen by the second. One that is new does not count: it is its parent's,
        // which does, or whose attempt has died.
        for number in (0..self.slots.used()).chain(0..self.slots.used()) {
            let (slot, chunk) = (self.slots.slot(number), self.slots.settings().chunk);
            supply::each(self.memory, slot, chunk, |task| {
                let status = task.status()?;
                let counts = !status.state().is_over() && status.state() != State::New;
                if !counts || task.job() != job.at.raw() {
                    return Ok(());
                }
                // It waits for what nobody has written, and its job has failed.
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
                    "others may be looking at its first task still; try again".into(),
                ));
            }
        }
        // After the tasks: they submit jobs, too.
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

/// All that remains when the job is taken: by who sits at the desk.
fn finish<M: Memory>(layout: Layout<M>, heap: &LocalHeap<'_, M>, desk: Desk<M>, job: Record<M>) {
    let (memory, name) = (layout.memory, job.name());
    // Before anything of it is retired: workers keep lists.
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

/// Whether `block` is the result of the job at `record`, which is being removed.
pub(crate) fn has_result<M: Memory>(
    layout: Layout<M>,
    heap: &LocalHeap<'_, M>,
    record: Offset,
    block: Offset,
) -> bool {
    let key = result_key(&Record::at(layout.memory, record).name());
    let data = { layout.names }.find(heap, &key).and_then(Cell::value);
    data.is_some_and(|data| data.block() == block)
}

/// Settles a removal at `desk`, whose owner is gone, or could not go on.
pub(crate) fn settle<M: Memory>(
    layout: Layout<M>,
    heap: &LocalHeap<'_, M>,
    desk: Desk<M>,
    job: Record<M>,
) {
    // Its record may have been removed, be free by now, and be anything; or there is another job of its name.
    let _pin = heap.pin();
    let is_there = layout.jobs.place(heap, &job.name()) == Some(job.at);
    if !is_there || job.number() != desk.noted_word() {
        return;
    }
    if !job.retag(Tag::Offered(desk.number()), None) && job.has_tag(Tag::Taken(desk.number())) {
        finish(layout, heap, desk, job);
    }
}
