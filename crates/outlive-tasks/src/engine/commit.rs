//! The end of a task: it takes effect, fails, or is begun again.

use super::{Batch, ClaimPoint, Engine, EngineError, Hooks, Running};
use crate::descriptor::Task;
use crate::status::{State, Status};
use outlive::memory::Memory;

outlive::memory::crash_points! {
    /// Where the completion of a task may be cut short.
    pub enum CommitPoint for "tasks.commit" {
        /// Its children are chained in its descriptor; it runs.
        Chained,
        /// It has taken effect.
        Committed,
        /// Its outputs are published.
        Published,
        /// A child, or one who waited, is ready and not pushed.
        Readied,
        /// All are pushed.
        Pushed,
        /// It is done.
        Done,
        /// The block of its arguments is free.
        Unblocked,
    }
}

outlive::memory::crash_points! {
    /// Where a commit may be cut short that has no room for what it readies.
    pub enum PostponePoint for "tasks.postpone" {
        /// A task waits, for there is no room to push it.
        Postponed,
    }
}

outlive::memory::crash_points! {
    /// Where the failure of a task may be cut short.
    pub enum FailPoint for "tasks.fail" {
        /// A child that it would have spawned is free.
        ChildFreed,
        /// It has failed; nobody knows.
        Failing,
        /// Its job knows.
        Told,
        /// It runs again.
        Retried,
    }
}

impl<M: Memory> Engine<'_, M> {
    /// The task has been run: it takes effect, with its children and outputs. Lock-free.
    ///
    /// # Errors
    /// If there is no room to push the children: the task still runs, and may be [failed](Self::fail). Or if what
    /// remains after it took effect could not be done: then it [is spent](Running::is_spent), and
    /// [`next`](Self::next) begins with the rest.
    ///
    /// # Crash
    /// It has taken effect, and whoever takes over publishes the rest; or it has not, and runs again.
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
        // Release, as all stores of the status: the children and what the task did.
        task.set_status(status);
        memory.crash_point(CommitPoint::Committed);
        self.commit(task, status, hooks, run.count)
    }

    /// Wrong: publishes the children of a task that runs. For the proofs that see it.
    pub(crate) fn publish_children(&mut self, run: &Running<M>) -> Result<(), EngineError> {
        let mut batch = Batch::new(&mut self.deque, self.heap, false, 0);
        let mut word = run.children;
        while word != 0 {
            let child = Task::checked(self.slots.memory(), run.task.children_at(), word)?;
            word = child.next();
            batch.ready(child)?;
        }
        batch.publish();
        Ok(())
    }

    /// Publishes what a task made that has taken effect, from the beginning. The worker holds it, and has room for `room`
    /// children.
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
        let mut batch = Batch::new(&mut self.deque, self.heap, may_wait, room);
        hooks.committed(task, attempt, &mut batch)?;
        memory.crash_point(CommitPoint::Published);
        let (mut from, mut word) = (task.children_at(), head);
        while word != 0 {
            let child = Task::checked(memory, from, word)?;
            // Before it is pushed: from then on the chain is stable only because nobody gives it another life.
            (from, word) = (child.next_at(), child.next());
            batch.redeem();
            match child.status()?.state() {
                State::New | State::Waiting => hooks.child(child, &mut batch)?,
                State::Ready => batch.ready(child)?,
                // It has been run, or is being run.
                _ => {}
            }
        }
        if batch.publish() != 0 {
            // Before the end: whoever takes over does all of it again.
            hooks.postponed();
        }
        memory.crash_point(CommitPoint::Pushed);
        self.end(task, status.with(State::Done));
        Ok(())
    }

    /// The task's life is over, with nothing left to do.
    #[inline(always)]
    fn end(&mut self, task: Task<M>, status: Status) {
        // Read before: afterwards the descriptor is its home's.
        let home = task.home();
        task.set_status(status);
        self.slots.memory().crash_point(CommitPoint::Done);
        self.held = None;
        if home == self.number {
            if task.has_block() {
                // If it cannot be freed now, it is when the descriptor has another life.
                let _ = task.free_block(self.heap);
                self.slots.memory().crash_point(CommitPoint::Unblocked);
            }
            self.supply.put(task);
        }
    }

    /// The task has failed for good: it has no effect, and its job is told. Lock-free.
    ///
    /// # Errors
    /// If its job could not be told: it [is spent](Running::is_spent), and [`next`](Self::next) tells it.
    ///
    /// # Crash
    /// It has failed, and whoever takes over tells its job; or it runs again.
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

    /// Tells a failed task's job, from the beginning. The worker holds the task.
    pub(super) fn tell<H: Hooks<M>>(
        &mut self,
        task: Task<M>,
        status: Status,
        hooks: &mut H,
    ) -> Result<(), H::Error> {
        let memory = self.slots.memory();
        let may_wait = hooks.finds_waiting();
        let mut batch = Batch::new(&mut self.deque, self.heap, may_wait, 0);
        hooks.failed(task, status.attempt(), &mut batch)?;
        if batch.publish() != 0 {
            hooks.postponed();
        }
        memory.crash_point(FailPoint::Told);
        self.end(task, status.with(State::Failed));
        Ok(())
    }

    /// Begins the task again, as another attempt of the same worker: it has no children now. `false`, and nothing is
    /// changed but that, if it has no attempts left.
    ///
    /// # Errors
    /// If what it spawned could not be freed.
    ///
    /// # Crash
    /// It runs again.
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

    /// Leaves the task, which this worker cannot do, to others, and gives up the slot: what the attempt spawned is freed. The
    /// task stays in the running slot, which is how it is found: with a slot that has no owner it is as a dead worker's.
    ///
    /// # Errors
    /// If what it spawned could not be freed: the worker holds the task until it is gone.
    ///
    /// # Crash
    /// It runs again.
    pub fn leave_to_others(mut self, mut run: Running<M>) -> Result<(), EngineError> {
        if run.spent {
            return Err(self.busy(run.task));
        }
        self.disown(&mut run)?;
        // Release: what the attempt did. Whoever finds no owner may take the task, so nothing of it is touched from here on.
        self.slot.give_up();
        self.slots.memory().crash_point(ClaimPoint::GivenUp);
        Ok(())
    }

    /// Wrong: clears the note, as a worker does that holds nothing. For the proofs that see it.
    pub(crate) fn leave_to_nobody(mut self, mut run: Running<M>) -> Result<(), EngineError> {
        self.disown(&mut run)?;
        self.held = None;
        self.give_up()
    }

    /// Frees what this attempt has spawned.
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
