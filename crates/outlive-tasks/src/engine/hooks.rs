//! What those above the engine do in a commit.

use super::EngineError;
use crate::deque::Deque;
use crate::descriptor::Task;
use crate::status::State;
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
#[derive(Debug)]
pub struct Batch<'b, 'w, M: Memory> {
    pub(super) deque: &'b mut Deque<M>,
    pub(super) heap: &'w LocalHeap<'w, M>,
}

impl<M: Memory> Batch<'_, '_, M> {
    /// Makes a new or waiting task ready, and pushes it; also if it is ready already, for whoever made it so may have died
    /// before he pushed it. Does nothing if it is beyond that.
    ///
    /// # Errors
    /// If the deque has to grow and there is no room.
    ///
    /// # Crash
    /// The task is ready and in no deque: whoever takes over the commit does this again.
    #[inline]
    pub fn ready(&mut self, task: Task<M>) -> Result<(), EngineError> {
        loop {
            let status = task.status()?;
            match status.state() {
                // The parent's holder has its children for itself.
                State::New => task.set_status(status.with(State::Ready)),
                State::Waiting => {
                    if !task.exchange_status(status, status.with(State::Ready)) {
                        continue;
                    }
                }
                State::Ready => {}
                _ => return Ok(()),
            }
            return self.push(task);
        }
    }

    /// The same for a task that was seen [waiting](State::Waiting) in its life `sequence`: in another one it is another
    /// task.
    ///
    /// # Errors
    /// As [`ready`](Self::ready), for one that is ready already. If there is no room for one that waits, it goes on to wait, though it has
    /// all that it waits for: whoever looks for such ones when nothing else can be done runs it. So a full heap does not end worker
    /// after worker in one commit.
    pub fn ready_in(&mut self, task: Task<M>, sequence: u64) -> Result<(), EngineError> {
        loop {
            let status = task.status()?;
            if status.sequence() != sequence {
                return Ok(());
            }
            match status.state() {
                State::Waiting => {
                    match self.deque.reserve(self.heap, 1) {
                        Err(EngineError::Allocate(_)) => return Ok(()),
                        reserved => reserved?,
                    }
                    if !task.exchange_status(status, status.with(State::Ready)) {
                        continue;
                    }
                }
                State::Ready => {}
                _ => return Ok(()),
            }
            return self.push(task);
        }
    }

    /// Pushes a task that is ready.
    #[inline(always)]
    fn push(&mut self, task: Task<M>) -> Result<(), EngineError> {
        task.memory().crash_point(super::CommitPoint::Readied);
        self.deque.put(self.heap, task.offset().raw())
    }

    /// The worker's way to the heap.
    pub fn heap(&self) -> &LocalHeap<'_, M> {
        self.heap
    }
}
