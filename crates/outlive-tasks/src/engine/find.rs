//! The search of a worker for its next task.

use super::{Engine, EngineError, Hooks, Running};
use crate::engine::deque::{Stolen, steal};
use crate::engine::descriptor::{Task, damaged};
use crate::engine::status::{State, Status};
use outlive::membership::Instance;
use outlive::memory::Memory;
use outlive::recovery::Recovered;

outlive::memory::crash_points! {
    /// Crash points of taking a task.
    pub enum TakePoint for "tasks.take" {
        /// The task is noted in the running slot.
        Noted,
        /// The task runs.
        Started,
        /// The task of a dead worker runs again.
        TakenOver,
        /// The commit of a dead worker is continued.
        CommitTakenOver,
        /// The failure of a dead worker's task is continued.
        FailureTakenOver,
    }
}

outlive::memory::crash_points! {
    /// Crash points of taking a task that waits.
    pub enum StartWaitingPoint for "tasks.start_waiting" {
        /// The task is ready, and noted in the running slot only.
        Readied,
    }
}

/// The number of rounds over the deques of other workers in one search.
const ROUNDS: u32 = 2;

/// The result of an attempt to take a task from a dead worker.
#[doc(hidden)]
#[derive(Debug)]
pub enum Taken<M: Memory> {
    /// Another worker has the task, or it is not to be run.
    Nothing,
    /// This worker holds the task, and runs it.
    Run(Running<M>),
    /// A commit or a failure was finished.
    Finished,
}

impl<M: Memory> Engine<'_, M> {
    /// Returns the next task: from the worker's deque, from other deques, or from a dead worker.
    /// First finishes a commit or failure that this worker or a dead one left. Returns `None` if it
    /// finds no task; other workers may be running tasks that will spawn some. Lock-free.
    ///
    /// # Errors
    /// [`EngineError::Busy`] if the worker still runs a task; a hook's error; or if a word is
    /// damaged.
    ///
    /// # Crash
    /// The task is ready or held by a dead worker: another worker finds it.
    #[inline(always)]
    pub fn next<H: Hooks<M>>(&mut self, hooks: &mut H) -> Result<Option<Running<M>>, H::Error> {
        if self.held.is_none() && !self.inherited {
            // The most frequent case.
            while let Some(entry) = self.deque.pop() {
                if let Some(run) = self.start_noted(entry)? {
                    return Ok(Some(run));
                }
            }
        }
        self.search(hooks)
    }

    #[inline(never)]
    fn search<H: Hooks<M>>(&mut self, hooks: &mut H) -> Result<Option<Running<M>>, H::Error> {
        loop {
            self.go_on(hooks)?;
            if self.inherited {
                let taken = match self.slot.running(self.slots.memory())? {
                    Some(task) => self.take(task, hooks)?,
                    None => Taken::Nothing,
                };
                // Only now: after an error the task is still there. A task that cannot be taken is
                // noted by its holder.
                self.inherited = false;
                if let Taken::Run(run) = taken {
                    return Ok(Some(run));
                }
            }
            while let Some(entry) = self.deque.pop() {
                if let Some(run) = self.start_noted(entry)? {
                    return Ok(Some(run));
                }
            }
            for _ in 0..ROUNDS {
                if let Some(run) = self.steal_around()? {
                    return Ok(Some(run));
                }
            }
            match self.take_from_the_dead(hooks)? {
                Taken::Run(run) => return Ok(Some(run)),
                // It may have pushed tasks.
                Taken::Finished => {}
                Taken::Nothing => return Ok(None),
            }
        }
    }

    /// Runs `task` if it is ready: a task in no deque, as the root of a job. Returns `None` while
    /// [`next`](Self::next) has yet to find a predecessor's task.
    ///
    /// # Errors
    /// [`EngineError::Busy`] if the worker still runs a task, or an error if the task is damaged.
    ///
    /// # Crash
    /// The task is ready or held by a dead worker.
    pub fn start(&mut self, task: Task<M>) -> Result<Option<Running<M>>, EngineError> {
        if let Some(held) = self.held {
            return Err(self.busy(held));
        }
        if self.inherited {
            // The predecessor's task is noted nowhere else.
            return Ok(None);
        }
        if task.status()?.state() != State::Ready {
            return Ok(None);
        }
        let entry = task.offset().raw();
        self.slot.note(entry);
        self.slots.memory().crash_point(TakePoint::Noted);
        self.start_noted(entry)
    }

    /// Runs `task` if it waits in its life `sequence`. The caller has found that all its inputs are
    /// there, and that no other worker would make it ready.
    ///
    /// # Errors
    /// Returns the errors of [`start`](Self::start).
    ///
    /// # Crash
    /// The outcome is that of a crash in [`start`](Self::start), because the task is noted before
    /// it is ready.
    pub fn start_waiting(
        &mut self,
        task: Task<M>,
        sequence: u64,
    ) -> Result<Option<Running<M>>, EngineError> {
        if let Some(held) = self.held {
            return Err(self.busy(held));
        }
        let status = task.status()?;
        if self.inherited || status.state() != State::Waiting || status.sequence() != sequence {
            return Ok(None);
        }
        let entry = task.offset().raw();
        self.slot.note(entry);
        self.slots.memory().crash_point(TakePoint::Noted);
        task.exchange_status(status, status.with(State::Ready));
        self.slots.memory().crash_point(StartWaitingPoint::Readied);
        self.start_noted(entry)
    }

    /// Runs the task of `entry`, which is noted in the running slot, if it is ready.
    #[inline(always)]
    #[doc(hidden)]
    pub fn start_noted(&mut self, entry: u64) -> Result<Option<Running<M>>, EngineError> {
        let memory = self.slots.memory();
        let task = Task::checked(memory, self.slot.bottom_at(), entry)?;
        let status = task.status()?;
        if status.state() == State::Ready {
            let running = status.started_by(self.number);
            if task.exchange_status(status, running) {
                memory.crash_point(TakePoint::Started);
                self.held = Some(task);
                return Ok(Some(Running::new(task, running)));
            }
        }
        Ok(None)
    }

    /// Tries to steal from the deques of all slots once, with or without an owner.
    fn steal_around(&mut self) -> Result<Option<Running<M>>, EngineError> {
        let used = self.slots.used();
        let first = self.random(used);
        for step in 0..used {
            let number = (first + step) % used;
            if number == self.number {
                continue;
            }
            let victim = self.slots.slot(number);
            while let Stolen::Entry(entry) = steal(self.slots.memory(), victim, self.slot)? {
                if let Some(run) = self.start_noted(entry)? {
                    return Ok(Some(run));
                }
            }
        }
        Ok(None)
    }

    /// Returns a pseudo-random number below `bound` (xorshift).
    fn random(&mut self, bound: u32) -> u32 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % u64::from(bound.max(1))) as u32
    }

    /// Takes over a task that is recorded in the running slot of a dead or departed worker.
    fn take_from_the_dead<H: Hooks<M>>(&mut self, hooks: &mut H) -> Result<Taken<M>, H::Error> {
        let memory = self.slots.memory();
        for number in 0..self.slots.used() {
            let slot = self.slots.slot(number);
            if number == self.number || self.lives(number) {
                continue;
            }
            if let Some(task) = slot.running(memory)? {
                match self.take(task, hooks)? {
                    Taken::Nothing => {}
                    taken => return Ok(taken),
                }
            }
        }
        Ok(Taken::Nothing)
    }

    /// Returns whether slot `number` has an owner that is not gone.
    pub(super) fn lives(&self, number: u32) -> bool {
        let owner = self.slots.slot(number).owner();
        let generations = self.heap.member().generations();
        owner.is_some_and(|owner| !generations.is_gone(owner))
    }

    /// Takes a task that a dead worker held or was about to take: to run it, or to finish its
    /// commit or failure.
    #[doc(hidden)]
    pub fn take<H: Hooks<M>>(
        &mut self,
        task: Task<M>,
        hooks: &mut H,
    ) -> Result<Taken<M>, H::Error> {
        loop {
            let dead;
            let status = task.status()?;
            let next = match status.state() {
                State::Ready => {
                    self.slot.note(task.offset().raw());
                    self.slots.memory().crash_point(TakePoint::Noted);
                    match self.start_noted(task.offset().raw())? {
                        Some(run) => return Ok(Taken::Run(run)),
                        None => continue,
                    }
                }
                State::Running | State::Committing | State::Failing => {
                    let Some(holder) = self.holder(task, status)? else {
                        return Ok(Taken::Nothing);
                    };
                    dead = holder;
                    status
                        .taken_over_by(self.number)
                        .unwrap_or(status.exhausted_by(self.number))
                }
                _ => return Ok(Taken::Nothing),
            };
            let memory = self.slots.memory();
            self.slot.note(task.offset().raw());
            memory.crash_point(TakePoint::Noted);
            if !task.exchange_status(status, next) {
                continue;
            }
            self.held = Some(task);
            if next.state() == State::Running {
                memory.crash_point(TakePoint::TakenOver);
                let mut run = Running::new(task, next);
                run.dead = dead;
                return Ok(Taken::Run(run));
            }
            self.finish(task, next, hooks)?;
            return Ok(Taken::Finished);
        }
    }

    /// Returns the dead holder of a held task, as `status` names it, once its log is settled:
    /// `Some` with the last owner of its slot, or `Some(None)` if that owner left the slot. `None`
    /// if the task cannot be taken now.
    #[expect(
        clippy::option_option,
        reason = "the task may be taken from no known worker"
    )]
    fn holder(
        &self,
        task: Task<M>,
        status: Status,
    ) -> Result<Option<Option<Instance>>, EngineError> {
        let number = status.runner();
        if number == self.number {
            // The predecessor: its log was settled before the slot was claimed.
            return Ok(Some(self.before.map(|before| before.worker)));
        }
        if number >= self.slots.settings().capacity {
            let what = "status of a task: it names a slot that does not exist";
            return Err(damaged(task.offset(), status.to_word(), what));
        }
        // After the status: see the top of `engine`.
        let Some(owner) = self.slots.slot(number).owner() else {
            return Ok(Some(None));
        };
        if !self.heap.member().generations().is_gone(owner) {
            return Ok(None);
        }
        Ok(self.settle(owner.id)?.then_some(Some(owner)))
    }

    /// Settles the log of a dead incarnation of `id`. Returns `false` while a live member is doing
    /// so.
    pub(super) fn settle(&self, id: u32) -> Result<bool, EngineError> {
        let recovered = self.recoverers.recover(self.heap.member(), id)?;
        Ok(!matches!(recovered, Recovered::ByAnother(_)))
    }

    /// Continues the commit or the failure that this worker holds.
    fn go_on<H: Hooks<M>>(&mut self, hooks: &mut H) -> Result<(), H::Error> {
        let Some(task) = self.held else {
            return Ok(());
        };
        let status = task.status()?;
        match status.state() {
            State::Committing | State::Failing => self.finish(task, status, hooks),
            _ => Err(self.busy(task).into()),
        }
    }

    fn finish<H: Hooks<M>>(
        &mut self,
        task: Task<M>,
        status: Status,
        hooks: &mut H,
    ) -> Result<(), H::Error> {
        let memory = self.slots.memory();
        if status.state() == State::Committing {
            memory.crash_point(TakePoint::CommitTakenOver);
            // The dead worker had reserved space in a deque of its own.
            self.commit(task, status, hooks, 0)
        } else {
            memory.crash_point(TakePoint::FailureTakenOver);
            self.tell(task, status, hooks)
        }
    }
}
