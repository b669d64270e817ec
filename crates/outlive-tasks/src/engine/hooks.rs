//! The hooks that the layers above the engine run in a commit.

use super::{CommitPoint, EngineError, PostponePoint};
use crate::engine::deque::Deque;
use crate::engine::descriptor::Task;
use crate::engine::status::{State, Status};
use outlive::heap::LocalHeap;
use outlive::memory::Memory;

/// Additional actions when a task commits or fails.
///
/// Every method may be called again for the same task and attempt, by a worker that takes over from
/// a dead one and has settled its log. The result must be the same, wherever the first call was cut
/// short. That call may also have been complete, and the tasks that it made ready may have run. Two
/// calls are never concurrent.
pub trait Hooks<M: Memory> {
    /// The error of a hook.
    type Error: From<EngineError>;

    /// Returns whether `task` has outputs to [publish](Self::committed). If so, its commit takes
    /// more than one step.
    #[inline]
    fn has_outputs(&mut self, task: Task<M>) -> bool {
        let _ = task;
        false
    }

    /// Returns whether the pool scans for tasks that [wait](State::Waiting) although all their
    /// inputs exist, and [runs](super::Engine::start_waiting) them. If so, a task that does not fit
    /// into the deque may wait. Otherwise a full heap is an error, and the worker keeps the commit.
    fn finds_waiting(&self) -> bool {
        false
    }

    /// Notes that tasks wait because they did not fit into the deque. Called before the commit of
    /// their parent is complete.
    fn postponed(&mut self) {}

    /// Publishes the outputs of `task`: its attempt `attempt` has taken effect. Makes the tasks
    /// that waited for them ready in `batch`.
    ///
    /// # Errors
    /// If that is not possible now. The commit stays valid; the worker begins this call again when
    /// it next looks for a task.
    fn committed(
        &mut self,
        task: Task<M>,
        attempt: u8,
        batch: &mut Batch<'_, '_, M>,
    ) -> Result<(), Self::Error> {
        let _ = (task, attempt, batch);
        Ok(())
    }

    /// Handles a child, new or waiting, of a task that commits: makes it ready (the default), or
    /// has it [wait](Task::wait_for_inputs) and registers it with its inputs.
    ///
    /// # Errors
    /// Returns the errors of [`committed`](Self::committed).
    #[inline]
    fn child(&mut self, child: Task<M>, batch: &mut Batch<'_, '_, M>) -> Result<(), Self::Error> {
        Ok(batch.ready(child)?)
    }

    /// Reports to its job that `task` has failed finally, in attempt `attempt`.
    ///
    /// # Errors
    /// Returns the errors of [`committed`](Self::committed).
    fn failed(
        &mut self,
        task: Task<M>,
        attempt: u8,
        batch: &mut Batch<'_, '_, M>,
    ) -> Result<(), Self::Error> {
        let _ = (task, attempt, batch);
        Ok(())
    }
}

/// Hooks for tasks without inputs and outputs; failures are not reported.
impl<M: Memory> Hooks<M> for () {
    type Error = EngineError;
}

/// Tasks that are being pushed into the worker's deque: all become visible by one store.
///
/// # A full heap
///
/// A commit is final, so it must complete without free memory, too. Otherwise each worker in turn
/// would take it over and fail. Space for the children is reserved before a task takes effect, and
/// other tasks that become ready do not use it. But any number of tasks may have waited for an
/// output, and a worker that takes over a commit may have a smaller deque. So a task that does not
/// fit *waits*, although all its inputs are there, if [such tasks are found](Hooks::finds_waiting).
#[derive(Debug)]
pub struct Batch<'b, 'w, M: Memory> {
    deque: &'b mut Deque<M>,
    heap: &'w LocalHeap<'w, M>,
    /// Whether tasks that do not fit may wait.
    may_wait: bool,
    /// The number of children still to come, for which space is reserved.
    promised: u64,
    /// The number of tasks that wait because they did not fit.
    postponed: u64,
}

impl<'b, 'w, M: Memory> Batch<'b, 'w, M> {
    pub(super) fn new(
        deque: &'b mut Deque<M>,
        heap: &'w LocalHeap<'w, M>,
        may_wait: bool,
        promised: u64,
    ) -> Self {
        Self {
            deque,
            heap,
            may_wait,
            promised,
            postponed: 0,
        }
    }

    /// Uses up the reservation of one child, which comes next.
    pub(super) fn redeem(&mut self) {
        self.promised = self.promised.saturating_sub(1);
    }

    /// Publishes the tasks that were put. Returns the number of tasks that wait because they did
    /// not fit.
    #[doc(hidden)]
    pub fn publish(self) -> u64 {
        self.deque.publish();
        self.postponed
    }

    /// Makes a new or waiting task ready, and pushes it. Pushes a ready task, too: the worker that
    /// made it ready may have died before the push. Does nothing in any other state. If the deque
    /// is full and cannot grow, the task waits, provided that the pool
    /// [scans](Hooks::finds_waiting) for waiting tasks.
    ///
    /// # Errors
    /// If the deque must grow, the heap is full, and the pool does not scan for waiting tasks.
    ///
    /// # Crash
    /// The task is ready and in no deque, or waits and this was not reported: a worker that takes
    /// over the commit repeats the call.
    #[inline]
    pub fn ready(&mut self, task: Task<M>) -> Result<(), EngineError> {
        self.ready_if(task, |_| true)
    }

    /// Does the same as [`ready`](Self::ready) for a task that was seen [waiting](State::Waiting)
    /// in its life `sequence`, and nothing if the descriptor has another life by now.
    ///
    /// # Errors
    /// Returns the errors of [`ready`](Self::ready).
    pub fn ready_in(&mut self, task: Task<M>, sequence: u64) -> Result<(), EngineError> {
        self.ready_if(task, |status| status.sequence() == sequence)
    }

    #[inline(always)]
    fn ready_if(
        &mut self,
        task: Task<M>,
        is_it: impl Fn(Status) -> bool,
    ) -> Result<(), EngineError> {
        loop {
            let status = task.status()?;
            let state = status.state();
            if !is_it(status) || !matches!(state, State::New | State::Waiting | State::Ready) {
                return Ok(());
            }
            if let Err(error) = self.deque.reserve(self.heap, 1 + self.promised) {
                match error {
                    EngineError::Allocate(_) if self.may_wait => {}
                    error => return Err(error),
                }
                if self.postpone(task, status) {
                    return Ok(());
                }
                continue;
            }
            match state {
                // Only the parent's holder accesses a new child.
                State::New => task.set_status(status.with(State::Ready)),
                State::Waiting if !task.exchange_status(status, status.with(State::Ready)) => {
                    continue;
                }
                _ => {}
            }
            task.memory().crash_point(CommitPoint::Readied);
            return self.deque.put(self.heap, task.offset().raw());
        }
    }

    /// Makes the task wait, because it does not fit. Returns `false` if its status has changed.
    #[cold]
    fn postpone(&mut self, task: Task<M>, status: Status) -> bool {
        let waits = status.with(State::Waiting);
        let postponed = match status.state() {
            State::New => {
                task.set_status(waits);
                true
            }
            // An earlier holder may have pushed it. An entry in a deque then leads to a task that
            // waits.
            State::Ready => task.exchange_status(status, waits),
            _ => true,
        };
        if postponed {
            self.postponed += 1;
            task.memory().crash_point(PostponePoint::Postponed);
        }
        postponed
    }

    /// Returns the worker's heap handle.
    pub fn heap(&self) -> &LocalHeap<'_, M> {
        self.heap
    }
}
