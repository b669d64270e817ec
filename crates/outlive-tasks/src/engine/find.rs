//! Where a worker finds its next task.

use super::{Engine, EngineError, Hooks, Running};
use crate::deque::{Stolen, steal};
use crate::descriptor::{Task, damaged};
use crate::status::{State, Status};
use outlive::membership::Instance;
use outlive::memory::Memory;
use outlive::recovery::Recovered;

outlive::memory::crash_points! {
    /// Where the taking of a task may be cut short.
    pub enum TakePoint for "tasks.take" {
        /// It is noted in the running slot.
        Noted,
        /// It runs.
        Started,
        /// It runs again: who ran it is dead.
        TakenOver,
        /// The commit of a dead one goes on.
        CommitTakenOver,
        /// Its failure does.
        FailureTakenOver,
    }
}

outlive::memory::crash_points! {
    /// Where the taking of a task that waits may be cut short.
    pub enum StartWaitingPoint for "tasks.start_waiting" {
        /// It is ready, and noted in the running slot only.
        Readied,
    }
}

/// How often a worker goes round the others' deques.
const ROUNDS: u32 = 2;

/// What came of an attempt to take a task from the dead.
pub(super) enum Taken<M: Memory> {
    /// Somebody has it, or it is nothing to be run.
    Nothing,
    /// It is the worker's.
    Run(Running<M>),
    /// A commit or a failure was brought to its end.
    Finished,
}

impl<M: Memory> Engine<'_, M> {
    /// The next task: from the worker's deque, from others', or what a dead worker was about. `None` if nothing is found;
    /// others may be running tasks that will spawn some. First it brings to its end what this worker, or a dead one, could
    /// not. Lock-free.
    ///
    /// # Errors
    /// [`EngineError::Busy`] if the worker still runs one; what a hook says; or if a word is damaged.
    ///
    /// # Crash
    /// The task is ready or held by a dead worker: somebody else finds it.
    #[inline(always)]
    pub fn next<H: Hooks<M>>(&mut self, hooks: &mut H) -> Result<Option<Running<M>>, H::Error> {
        if self.held.is_none() && !self.inherited {
            // What a worker does most.
            while let Some(entry) = self.deque.pop() {
                if let Some(run) = self.start_noted(entry)? {
                    return Ok(Some(run));
                }
            }
        }
        self.look_around(hooks)
    }

    #[inline(never)]
    fn look_around<H: Hooks<M>>(&mut self, hooks: &mut H) -> Result<Option<Running<M>>, H::Error> {
        loop {
            self.go_on(hooks)?;
            if self.inherited {
                let taken = match self.slot.running(self.slots.memory())? {
                    Some(task) => self.take(task, hooks)?,
                    None => Taken::Nothing,
                };
                // Only now: an error leaves it where it is. If it is not to be had, its holder has noted it.
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
                // It may have pushed something.
                Taken::Finished => {}
                Taken::Nothing => return Ok(None),
            }
        }
    }

    /// Runs `task` if it is ready: one that is in no deque, as the root of a job. Not while a predecessor's task is still to
    /// be found by [`next`](Self::next).
    ///
    /// # Errors
    /// [`EngineError::Busy`] if the worker still runs one, or if the task is damaged.
    ///
    /// # Crash
    /// The task is ready or held by a dead worker.
    pub fn start(&mut self, task: Task<M>) -> Result<Option<Running<M>>, EngineError> {
        if let Some(held) = self.held {
            return Err(self.busy(held));
        }
        if self.inherited {
            // What the predecessor was about is noted nowhere else.
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

    /// Runs `task` if it waits in its life `sequence`: for who has found that all its inputs are there, and nobody
    /// else who would ready it.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    ///
    /// # Crash
    /// As [`start`](Self::start): it is noted before it is ready.
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

    /// Wrong: readies it, and notes it then. For the proofs that see it.
    pub(crate) fn start_waiting_unnoted(
        &mut self,
        task: Task<M>,
        sequence: u64,
    ) -> Result<Option<Running<M>>, EngineError> {
        let status = task.status()?;
        if status.state() != State::Waiting || status.sequence() != sequence {
            return Ok(None);
        }
        task.exchange_status(status, status.with(State::Ready));
        self.slots.memory().crash_point(StartWaitingPoint::Readied);
        let entry = task.offset().raw();
        self.slot.note(entry);
        self.start_noted(entry)
    }

    /// Runs the task that `entry`, which is noted in the running slot, leads to, if it is ready.
    #[inline(always)]
    pub(crate) fn start_noted(&mut self, entry: u64) -> Result<Option<Running<M>>, EngineError> {
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

    /// Once round the deques of all slots, whoever owns them.
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

    /// A number below `bound`, another one each time (xorshift).
    fn random(&mut self, bound: u32) -> u32 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % u64::from(bound.max(1))) as u32
    }

    /// What is noted in the running slots of owners that are gone.
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

    /// Whether slot `number` has an owner that is not gone.
    pub(super) fn lives(&self, number: u32) -> bool {
        let owner = self.slots.slot(number).owner();
        let generations = self.heap.member().generations();
        owner.is_some_and(|owner| !generations.is_gone(owner))
    }

    /// Takes a task that a dead worker had or was about to have: to run it, or to bring its commit or failure to its end.
    pub(super) fn take<H: Hooks<M>>(
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

    /// Wrong: looks whether the owner of slot `number` is gone, and at the status afterwards. For the proofs that see it.
    pub(crate) fn take_blindly(&mut self, number: u32) -> Result<Option<Running<M>>, EngineError> {
        let slot = self.slots.slot(number);
        if let Some(owner) = slot.owner()
            && (self.lives(number) || !self.settle(owner.id)?)
        {
            return Ok(None);
        }
        let Some(task) = slot.running(self.slots.memory())? else {
            return Ok(None);
        };
        let status = task.status()?;
        self.take_as(task, status, status)
    }

    /// Wrong: swaps the status in whatever life of the descriptor. For the proofs that see it.
    pub(crate) fn take_whatever_life(
        &mut self,
        number: u32,
    ) -> Result<Option<Running<M>>, EngineError> {
        let slot = self.slots.slot(number);
        let Some(task) = slot.running(self.slots.memory())? else {
            return Ok(None);
        };
        let status = task.status()?;
        if status.state() != State::Running || self.holder(task, status)?.is_none() {
            return Ok(None);
        }
        let now = task.status()?;
        if now.to_word() & 0xFF_FFFF != status.to_word() & 0xFF_FFFF {
            return Ok(None);
        }
        self.take_as(task, status, now)
    }

    /// What both end with: takes `task`, which runs by `status`, if it is `now`.
    fn take_as(
        &mut self,
        task: Task<M>,
        status: Status,
        now: Status,
    ) -> Result<Option<Running<M>>, EngineError> {
        if status.state() != State::Running {
            return Ok(None);
        }
        self.slot.note(task.offset().raw());
        let Some(next) = now.taken_over_by(self.number) else {
            return Ok(None);
        };
        if !task.exchange_status(now, next) {
            return Ok(None);
        }
        self.held = Some(task);
        Ok(Some(Running::new(task, next)))
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
            // The predecessor's: its log was settled before the slot was claimed.
            return Ok(Some(self.before.map(|before| before.worker)));
        }
        if number >= self.slots.settings().capacity {
            let what = "status of a task: it names a slot that there is not";
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

    /// Sees to it that nothing of a dead incarnation of `id` is still to be carried out; `false` while a living one is at
    /// it.
    pub(super) fn settle(&self, id: u32) -> Result<bool, EngineError> {
        let recovered = self.recoverers.recover(self.heap.member(), id)?;
        Ok(!matches!(recovered, Recovered::ByAnother(_)))
    }

    /// Goes on with the commit or the failure that this worker holds.
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
            // Whoever died in it had room, in a deque of his own.
            self.commit(task, status, hooks, 0)
        } else {
            memory.crash_point(TakePoint::FailureTakenOver);
            self.tell(task, status, hooks)
        }
    }
}
