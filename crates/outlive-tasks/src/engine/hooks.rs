//! What those above the engine do in a commit.

use super::{CommitPoint, EngineError, PostponePoint};
use crate::deque::Deque;
use crate::descriptor::Task;
use crate::status::{State, Status};
use outlive::heap::LocalHeap;
use outlive::memory::Memory;

/// What is done besides when a task commits or fails.
///
/// Every method may be called again for the same task and attempt by a worker that takes over from a dead one, whose log is
/// settled by then: it must come to the same end when it was cut short at any instruction before. By then an earlier
/// call may have been complete, and readied tasks may have run. It is never called by two at a time.
pub trait Hooks<M: Memory> {
    /// What can go wrong.
    type Error: From<EngineError>;

    /// Whether there is anything to [publish](Self::committed) for `task`, so that it cannot be done at once.
    #[inline]
    fn has_outputs(&mut self, task: Task<M>) -> bool {
        let _ = task;
        false
    }

    /// Whether somebody finds tasks that [wait](State::Waiting) though they have all that they wait for, and
    /// [runs](super::Engine::start_waiting) them: then those wait for which the deque has no room. Otherwise
    /// a full heap is an error, and the commit stays with the worker.
    fn finds_waiting(&self) -> bool {
        false
    }

    /// Such tasks wait now; called before their parent's commit is at its end.
    fn postponed(&mut self) {}

    /// Attempt `attempt` of `task` has taken effect: publishes what it made, and readies by `batch` who waited for it.
    ///
    /// # Errors
    /// If it cannot be done now. The commit stands; the worker begins this again when it next looks for a task.
    fn committed(
        &mut self,
        task: Task<M>,
        attempt: u8,
        batch: &mut Batch<'_, '_, M>,
    ) -> Result<(), Self::Error> {
        let _ = (task, attempt, batch);
        Ok(())
    }

    /// A child of a task that commits: readies it, which is the default, or has it
    /// [wait](Task::wait_for_inputs) and registers it with its inputs. It is new, or waits.
    ///
    /// # Errors
    /// As [`committed`](Self::committed).
    #[inline]
    fn child(&mut self, child: Task<M>, batch: &mut Batch<'_, '_, M>) -> Result<(), Self::Error> {
        Ok(batch.ready(child)?)
    }

    /// `task` has failed for good in attempt `attempt`: says so to its job.
    ///
    /// # Errors
    /// As [`committed`](Self::committed).
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

/// Tasks without inputs and outputs, whose failures interest nobody.
impl<M: Memory> Hooks<M> for () {
    type Error = EngineError;
}

/// Tasks on their way into the worker's deque: all become visible by one store.
///
/// # A full heap
///
/// A commit stands, so it must come to its end without room, too: else it is handed from worker to worker for ever. Room for the
/// children is had before a task takes effect, and who is readied besides leaves it to them. But those who waited are as many as
/// they are, and whoever takes a commit over may have a smaller deque. So a task for which there is no room *waits*, though
/// it has all that it waits for, if [somebody finds it](Hooks::finds_waiting).
#[derive(Debug)]
pub struct Batch<'b, 'w, M: Memory> {
    deque: &'b mut Deque<M>,
    heap: &'w LocalHeap<'w, M>,
    /// Whether tasks for which there is no room may wait.
    may_wait: bool,
    /// For how many tasks that are still to come there is room.
    promised: u64,
    /// How many wait because there is no room.
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

    /// The next one is of those to whom room was promised.
    pub(super) fn redeem(&mut self) {
        self.promised = self.promised.saturating_sub(1);
    }

    /// All are in the deque, or wait; how many do because there is no room.
    pub(super) fn publish(self) -> u64 {
        self.deque.publish();
        self.postponed
    }

    /// Makes a new or waiting task ready, and pushes it; also if it is ready already, for whoever made it so may have died
    /// before he pushed it. Does nothing if it is beyond that. If there is no room it waits, if that is of use.
    ///
    /// # Errors
    /// If the deque has to grow, there is no room, and nobody would find it while it waits.
    ///
    /// # Crash
    /// The task is ready and in no deque, or waits and nobody was told: whoever takes over the commit does this again.
    #[inline]
    pub fn ready(&mut self, task: Task<M>) -> Result<(), EngineError> {
        self.ready_if(task, |_| true)
    }

    /// The same for a task that was seen [waiting](State::Waiting) in its life `sequence`: in another one it is another
    /// task.
    ///
    /// # Errors
    /// As [`ready`](Self::ready).
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
                // The parent's holder has its children for itself.
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

    /// Has the task wait, for there is no room; `false` if its status is not that any more.
    #[cold]
    fn postpone(&mut self, task: Task<M>, status: Status) -> bool {
        let waits = status.with(State::Waiting);
        let postponed = match status.state() {
            State::New => {
                task.set_status(waits);
                true
            }
            // A predecessor has pushed it, or not: nobody can tell. If it is in a deque, that entry leads to one that waits.
            State::Ready => task.exchange_status(status, waits),
            _ => true,
        };
        if postponed {
            self.postponed += 1;
            task.memory().crash_point(PostponePoint::Postponed);
        }
        postponed
    }

    /// The worker's way to the heap.
    pub fn heap(&self) -> &LocalHeap<'_, M> {
        self.heap
    }
}
