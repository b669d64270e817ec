//! The lookout: an idle worker's scan for tasks that wait although all that they wait for exists.
//!
//! A worker that readies a task pushes it to its deque. If the deque is full and there is no memory
//! for a larger one, the task keeps waiting ([`Batch`](crate::Batch)). A process that brings data
//! from outside has no deque at all. The [judge](crate::pool::judge) finds such tasks, but it
//! judges only while no worker works, which may never happen. So a thread that leaves such a task
//! *calls*: it raises a counter. An idle worker that sees a call scans all descriptors, a part of
//! them after each unsuccessful search for tasks, so that the next search is never delayed for
//! long. It keeps the tasks that the scan finds in private memory, and runs them one by one, unless
//! other workers are faster. Nothing in the pod changes before it
//! [starts](crate::Engine::start_waiting) one. So all idle workers scan, and share the tasks.
//!
//! Without a call this costs an idle worker two loads.
//!
//! # When a call is answered
//!
//! A call is answered when a scan that began after it has found nothing. The call was made after
//! the task was left (release, paired with the acquire at the start of a scan). A thread that
//! leaves a task and dies before it calls is in a commit, which is repeated. So a task that was
//! called for is either seen waiting or already taken. A scan that has found tasks answers no call,
//! because its worker may die with them in private memory.
//!
//! (A process that brings data calls as it clears its staging slot. If it dies before, the next
//! owner of the staging slot calls, or the judge finds the waiting tasks.)
//!
//! # Why the scan may run while others work
//!
//! The scan reads a status, then the words that belong to it. The result counts only if the status
//! is then replaced by compare-and-swap from that value, so in the same life of the descriptor:
//! another life has another sequence ([`status`](crate::engine::status)). Ports of a task that has
//! ended in between may be free and have any contents. They are range-checked as they are read, and
//! a cell is followed only if the task's status is unchanged after the word was read.
//!
//! A task whose job has failed is found like any other. It is skipped when it is run, and its
//! descriptor becomes free. (Other tasks of such a job, which wait for missing data, keep their
//! descriptors and ports until the data is written or the job is removed. They are no more than the
//! job had spawned when it failed.)

use crate::engine::supply;
use crate::store::jobs::Root;
use crate::store::layout::Layout;
use crate::store::task_ports::ports_of;
use crate::{PoolError, State, Status, Task};
use outlive::memory::{Memory, Offset};

/// The number of chunks of descriptors in one part of a walk: about a thousand descriptors.
const PART: u32 = 16;

/// The private state of a worker's lookout.
#[derive(Debug, Default)]
pub struct Lookout {
    /// Tasks that can be run unless other workers have begun them, with their lives.
    found: Vec<(Offset, u64)>,
    /// The walk in progress.
    walk: Option<Walk>,
    /// The number of descriptors that were read.
    pub looked: u64,
}

#[derive(Debug)]
struct Walk {
    /// The number of calls when the walk began.
    calls: u64,
    /// Whether it has found a task.
    found: bool,
    /// The current slot, and the word that leads to the next chunk; 0 before the first one.
    slot: u32,
    chunk: u64,
}

impl Lookout {
    /// Takes one of the tasks that were found.
    pub fn take(&mut self) -> Option<(Offset, u64)> {
        self.found.pop()
    }

    /// Keeps the tasks that another scan has found.
    pub fn keep(&mut self, found: Vec<(Offset, u64)>) {
        self.found.extend(found);
    }

    /// Scans the next part of the descriptors, if a scan was requested and is not complete. Returns
    /// whether it has found tasks that were not [taken](Self::take) yet.
    pub fn look<M: Memory>(&mut self, layout: Layout<M>) -> Result<bool, PoolError> {
        let mut walk = match self.walk.take() {
            Some(walk) => walk,
            None => match layout.calls() {
                (_, true) => return Ok(false),
                (calls, false) => Walk {
                    calls,
                    found: false,
                    slot: 0,
                    chunk: 0,
                },
            },
        };
        let is_through = self.walk_on(layout, &mut walk)?;
        walk.found |= !self.found.is_empty();
        if !is_through {
            self.walk = Some(walk);
        } else if !walk.found {
            layout.answer(walk.calls);
        }
        Ok(!self.found.is_empty())
    }

    /// Scans the next part. Returns whether it was the last.
    fn walk_on<M: Memory>(
        &mut self,
        layout: Layout<M>,
        walk: &mut Walk,
    ) -> Result<bool, PoolError> {
        let memory = layout.memory;
        let mut left = PART;
        while walk.slot < layout.slots.used() {
            let slot = layout.slots.slot(walk.slot);
            if walk.chunk == 0 {
                walk.chunk = slot.chunks();
            }
            while walk.chunk != 0 {
                if left == 0 {
                    return Ok(false);
                }
                left -= 1;
                let bytes = layout.slots.settings().chunk;
                let mut look = |task| self.check_task(memory, task);
                walk.chunk = supply::each_of(memory, slot, walk.chunk, bytes, &mut look)?;
            }
            walk.slot += 1;
        }
        for number in 0..layout.roots {
            let root = Root::of(layout, number);
            if root.life() != 0 {
                self.check_task(memory, root.task())?;
            }
        }
        Ok(true)
    }

    fn check_task<M: Memory>(&mut self, memory: M, task: Task<M>) -> Result<(), PoolError> {
        self.looked += 1;
        let status = task.status()?;
        if status.state() == State::Waiting && has_all(memory, task, status) {
            self.found.push((task.offset(), status.sequence()));
        }
        Ok(())
    }
}

/// Returns whether all inputs of the waiting task `task` with the status `status` exist. The result
/// is valid only if the caller then changes the task from that same status.
pub fn has_all<M: Memory>(memory: M, task: Task<M>, status: Status) -> bool {
    let stands = || task.status().is_ok_and(|now| now == status);
    // A task without inputs waits only because no deque had space for it.
    ports_of(memory, task).is_none_or(|ports| ports.seem_complete(stands))
}
