//! The end of a task: it takes effect, fails, or is retried.

use super::{Batch, ClaimPoint, Engine, EngineError, Hooks, Running};
use crate::engine::descriptor::Task;
use crate::engine::status::{State, Status};
use outlive::memory::Memory;

outlive::memory::crash_points! {
    /// Crash points of the completion of a task.
    pub enum CommitPoint for "tasks.commit" {
        /// The children are chained in the descriptor; the task still runs.
        Chained,
        /// The task has taken effect.
        Committed,
        /// The outputs are published.
        Published,
        /// A child, or a task that waited for an output, is ready and not pushed.
        Readied,
        /// All ready tasks are pushed.
        Pushed,
        /// The task is done.
        Done,
        /// The block of the arguments is free.
        Unblocked,
    }
}

outlive::memory::crash_points! {
    /// Crash points of a commit that has no space for the tasks that it makes ready.
    pub enum PostponePoint for "tasks.postpone" {
        /// A task waits, because there is no space to push it.
        Postponed,
    }
}

outlive::memory::crash_points! {
    /// Crash points of the failure of a task.
    pub enum FailPoint for "tasks.fail" {
        /// A child of the failed attempt is free.
        ChildFreed,
        /// The task has failed; its job has not been notified.
        Failing,
        /// The job has been notified.
        Told,
        /// The task runs again.
        Retried,
    }
}

impl<'w, M: Memory> Engine<'w, M> {
    /// Completes a task that has been run: it takes effect, with its children and outputs.
    /// Lock-free.
    ///
    /// # Errors
    /// If there is no space to push the children: the task still runs, and may be
    /// [failed](Self::fail). Or if the rest of the work could not be finished after the task took
    /// effect: then the task [is spent](Running::is_spent), and [`next`](Self::next) begins with
    /// the rest.
    ///
    /// # Crash
    /// The task has taken effect, and a worker that takes over publishes the rest; or it has not,
    /// and is re-executed.
    #[inline(always)]
    pub fn complete<H: Hooks<M>>(
        &mut self,
        run: &mut Running<M>,
        hooks: &mut H,
    ) -> Result<(), H::Error> {
        let task = run.task;
        if run.children == 0 && !run.spent && !hooks.has_outputs(task) {
            run.spent = true;
            self.end(task, run.status.with(State::Done));
            return Ok(());
        }
        self.complete_with(run, hooks)
    }

    #[inline(never)]
    fn complete_with<H: Hooks<M>>(
        &mut self,
        run: &mut Running<M>,
        hooks: &mut H,
    ) -> Result<(), H::Error> {
        let (task, memory) = (run.task, self.slots.memory());
        if run.spent {
            return Err(self.busy(task).into());
        }
        self.deque.reserve(self.heap, run.count)?;
        task.set_children(run.children, run.status.attempt());
        memory.crash_point(CommitPoint::Chained);
        run.spent = true;
        let status = run.status.with(State::Committing);
        // Release, as all stores of the status: the children and the effects of the task.
        task.set_status(status);
        memory.crash_point(CommitPoint::Committed);
        self.commit(task, status, hooks, run.count)
    }

    /// Returns a batch of this worker, in which `room` entries of the deque are reserved for
    /// children.
    #[doc(hidden)]
    pub fn batch(&mut self, may_wait: bool, room: u64) -> Batch<'_, 'w, M> {
        Batch::new(&mut self.deque, self.heap, may_wait, room)
    }

    /// Publishes, from the beginning, the outputs and children of a task that has taken effect. The
    /// worker holds the task, and has space for `room` children.
    pub(super) fn commit<H: Hooks<M>>(
        &mut self,
        task: Task<M>,
        status: Status,
        hooks: &mut H,
        room: u64,
    ) -> Result<(), H::Error> {
        let memory = self.slots.memory();
        let (head, attempt) = task.children();
        let may_wait = hooks.finds_waiting();
        let mut batch = self.batch(may_wait, room);
        hooks.committed(task, attempt, &mut batch)?;
        memory.crash_point(CommitPoint::Published);
        let (mut from, mut word) = (task.children_at(), head);
        while word != 0 {
            let child = Task::checked(memory, from, word)?;
            // Before it is pushed: from then on the chain is stable only because no owner gives it
            // another life.
            (from, word) = (child.next_at(), child.next());
            batch.redeem();
            match child.status()?.state() {
                State::New | State::Waiting => hooks.child(child, &mut batch)?,
                State::Ready => batch.ready(child)?,
                _ => {}
            }
        }
        if batch.publish() != 0 {
            // Before the end: a worker that takes over repeats all of it.
            hooks.postponed();
        }
        memory.crash_point(CommitPoint::Pushed);
        self.end(task, status.with(State::Done));
        Ok(())
    }

    /// Ends the life of the task, for which nothing is left to do.
    #[inline(always)]
    fn end(&mut self, task: Task<M>, status: Status) {
        // Read before the status is set: afterwards the descriptor belongs to its home.
        let home = task.home();
        task.set_status(status);
        self.slots.memory().crash_point(CommitPoint::Done);
        self.held = None;
        if home == self.number {
            if task.has_block() {
                // If this fails, it is freed when the descriptor gets another life.
                let _ = task.free_block(self.heap);
                self.slots.memory().crash_point(CommitPoint::Unblocked);
            }
            self.supply.put(task);
        }
    }

    /// Fails the task finally: it has no effect, is not retried, and its job is notified.
    /// Lock-free.
    ///
    /// # Errors
    /// If its job could not be notified: the task [is spent](Running::is_spent), and
    /// [`next`](Self::next) notifies the job.
    ///
    /// # Crash
    /// The task has failed, and a worker that takes over notifies its job; or it is re-executed.
    pub fn fail<H: Hooks<M>>(
        &mut self,
        run: &mut Running<M>,
        hooks: &mut H,
    ) -> Result<(), H::Error> {
        if run.spent {
            return Err(self.busy(run.task).into());
        }
        self.disown(run)?;
        run.spent = true;
        let status = run.status.with(State::Failing);
        run.task.set_status(status);
        self.slots.memory().crash_point(FailPoint::Failing);
        self.tell(run.task, status, hooks)
    }

    /// Notifies a failed task's job, from the beginning. The worker holds the task.
    pub(super) fn tell<H: Hooks<M>>(
        &mut self,
        task: Task<M>,
        status: Status,
        hooks: &mut H,
    ) -> Result<(), H::Error> {
        let memory = self.slots.memory();
        let may_wait = hooks.finds_waiting();
        let mut batch = self.batch(may_wait, 0);
        hooks.failed(task, status.attempt(), &mut batch)?;
        if batch.publish() != 0 {
            hooks.postponed();
        }
        memory.crash_point(FailPoint::Told);
        self.end(task, status.with(State::Failed));
        Ok(())
    }

    /// Begins another attempt of the task on the same worker, without the children of the last
    /// attempt. Returns `false` if no attempts are left; then only the children are removed.
    ///
    /// # Errors
    /// If its children could not be freed.
    ///
    /// # Crash
    /// The task is re-executed.
    pub fn retry(&mut self, run: &mut Running<M>) -> Result<bool, EngineError> {
        if run.spent {
            return Err(self.busy(run.task));
        }
        self.disown(run)?;
        let Some(status) = run.status.taken_over_by(self.number) else {
            return Ok(false);
        };
        run.task.set_status(status);
        run.status = status;
        self.slots.memory().crash_point(FailPoint::Retried);
        Ok(true)
    }

    /// Leaves the task, which this worker cannot do, to other workers, and gives up the slot. The
    /// attempt's children are freed. The task stays in the running slot, which then has no owner.
    /// Other workers find it there as they find the task of a dead worker.
    ///
    /// # Errors
    /// If its children could not be freed. The worker then holds the task until the worker leaves
    /// or dies.
    ///
    /// # Crash
    /// The task is re-executed.
    pub fn leave_to_others(mut self, mut run: Running<M>) -> Result<(), EngineError> {
        if run.spent {
            return Err(self.busy(run.task));
        }
        self.disown(&mut run)?;
        // Release: the writes of the attempt. Another worker may take the task from a slot without
        // owner, so nothing of the task is accessed from here on.
        self.slot.give_up();
        self.slots.memory().crash_point(ClaimPoint::GivenUp);
        Ok(())
    }

    /// Frees the children of this attempt.
    fn disown(&mut self, run: &mut Running<M>) -> Result<(), EngineError> {
        let memory = self.slots.memory();
        while run.children != 0 {
            let child = Task::checked(memory, run.task.children_at(), run.children)?;
            let next = child.next();
            child.free_block(self.heap)?;
            child.set_status(child.status()?.with(State::Free));
            memory.crash_point(FailPoint::ChildFreed);
            self.supply.put(child);
            run.children = next;
            run.count -= 1;
        }
        Ok(())
    }
}
