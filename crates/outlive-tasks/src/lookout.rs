//! The lookout of a worker that finds nothing to do: for tasks that wait though they have all that they wait for.
//!
//! Whoever readies a task pushes it to his deque. If that has no room, and there is none for a larger one, the task waits on
//! ([`Batch`](crate::Batch)); and who brings data from outside has no deque. The [judge](crate::judge) finds such tasks, but he judges when
//! nobody works, and somebody may for ever. So he who leaves one says so, by a *call*, and whoever finds nothing else to do and sees
//! that there was one walks through all descriptors: a part of them each time that he has looked for tasks in vain, so that he is not
//! away for long. What he finds he keeps in mind, one walk for all, and runs it one by one, as long as others are not faster: in
//! the pod nothing of it changes before he [starts](crate::Engine::start_waiting) one. So all who are idle walk, and share.
//!
//! Without a call all this costs two loads by those who are idle.
//!
//! # When a call needs no look any more
//!
//! When a walk has found nothing that began after it. It was made after the task was left (release, and the acquire of who begins to walk),
//! and who leaves a task and dies before he calls is in a commit, which is begun again; so a task that was called for is seen waiting, or
//! somebody has it. A walk that found some says nothing, for he who made it may die with them in mind.
//!
//! (Who brings data calls as he clears his desk. If he dies before, whoever next has the desk does; or the judge finds who waits.)
//!
//! # Why this may look while others work
//!
//! It reads a status, then the words that belong to it, and what it says counts if the status is moved on from that very value: of
//! that life of the descriptor, for one that has been left has another sequence ([`status`](crate::status)). Ports of a task that has ended
//! meanwhile may be free and anything. They are checked as they are read, and a cell is followed if the task is still what it was after the word was read.
//!
//! A task whose job has failed is found as any: it is skipped when it is run, and its descriptor is free. (Others of such a job, which wait
//! for what is not there, have their descriptors and ports until somebody writes it, or the job is removed: no more than it had spawned
//! when it failed.)

use crate::crew::ports_of;
use crate::jobs::Root;
use crate::layout::Layout;
use crate::{PoolError, State, Status, Task, supply};
use outlive::memory::{Memory, Offset};

/// How many chunks of descriptors are looked through at a time: about a thousand descriptors.
const PART: u32 = 16;

/// What a worker's lookout knows.
#[derive(Debug, Default)]
pub(crate) struct Lookout {
    /// Tasks that can be run unless others have begun them, by their lives.
    found: Vec<(Offset, u64)>,
    /// The walk that it is on.
    walk: Option<Walk>,
    /// How many descriptors it has looked at.
    pub looked: u64,
    /// Wrong: answers all calls that there are at the end of a walk. For the proofs that see it.
    pub answers_late: bool,
}

#[derive(Debug)]
struct Walk {
    /// How many calls there were when it began.
    calls: u64,
    /// Whether it has found any.
    found: bool,
    /// The slot that it is at, and the word that leads to the chunk; 0 before the first one.
    slot: u32,
    chunk: u64,
}

impl Lookout {
    /// The next of those that were found.
    pub fn next(&mut self) -> Option<(Offset, u64)> {
        self.found.pop()
    }

    /// Keeps in mind what another walk has found.
    pub fn keep(&mut self, found: Vec<(Offset, u64)>) {
        self.found.extend(found);
    }

    /// Looks, if there was a call, through the next part of the descriptors; whether there is something in mind now.
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
            let calls = match self.answers_late {
                true => layout.calls().0,
                false => walk.calls,
            };
            layout.answer(calls);
        }
        Ok(!self.found.is_empty())
    }

    /// Looks at the next part; whether that was the last.
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
                let mut look = |task| self.look_at(memory, task);
                walk.chunk = supply::each_of(memory, slot, walk.chunk, bytes, &mut look)?;
            }
            walk.slot += 1;
        }
        for number in 0..layout.roots {
            let root = Root::of(layout, number);
            if root.life() != 0 {
                self.look_at(memory, root.task())?;
            }
        }
        Ok(true)
    }

    fn look_at<M: Memory>(&mut self, memory: M, task: Task<M>) -> Result<(), PoolError> {
        self.looked += 1;
        let status = task.status()?;
        if status.state() == State::Waiting && has_all(memory, task, status) {
            self.found.push((task.offset(), status.sequence()));
        }
        Ok(())
    }
}

/// Whether `task`, which waits by `status`, has all that it waits for: if it still waits, in that life, when it is moved on.
pub(crate) fn has_all<M: Memory>(memory: M, task: Task<M>, status: Status) -> bool {
    let stands = || task.status().is_ok_and(|now| now == status);
    // Without inputs it waits only because no deque had room for it.
    ports_of(memory, task).is_none_or(|ports| ports.seem_complete(stands))
}
