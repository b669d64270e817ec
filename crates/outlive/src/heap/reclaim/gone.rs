//! The lists of departed instances, and the end of an instance's reclamation.

use super::retired::{HEAD, KEEPER, ReclaimPoint};
use super::{Heap, LocalHeap};
use crate::heap::scratch;
use crate::membership::{Instance, Status};
use crate::recovery::{Log, Recovering};
use outlive_memory::{Memory, Ordering};

/// Ends the reads and retirements of the dead instance: at the end of its recovery, or when another
/// member reclaims the blocks that it left.
///
/// # Crash
/// Every block is free or in the dead instance's list; the next recovering thread repeats this.
pub(in crate::heap) fn release<M: Memory>(dead: &Recovering<'_, M>, heap: Heap<M>) {
    LocalHeap::of_the_dead(heap, dead).end_reclamation();
}

/// Returns the word of the instance with the heap handle that keeps the list in `log`.
fn keeper<M: Memory>(heap: Heap<M>, log: Log<M>) -> u64 {
    // Relaxed: only the member itself reads it, and the word is its own.
    let at = scratch::retired(log) + KEEPER;
    heap.memory().load(at, Ordering::Relaxed)
}

/// The error if a member requests a second handle to a heap. A member has one at a time: a second
/// one would not know the pins of the first, and would clear them when it is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{member} has a LocalHeap already; pass it on by reference, or drop it first")]
pub struct SecondWay {
    /// The member that has a handle.
    pub member: Instance,
}

/// Refuses a second heap handle.
pub(in crate::heap) fn refuse_another<M: Memory>(
    heap: Heap<M>,
    log: Log<M>,
    member: Instance,
) -> Result<(), SecondWay> {
    if keeper(heap, log) == member.to_word() {
        return Err(SecondWay { member });
    }
    Ok(())
}

impl<M: Memory> LocalHeap<'_, M> {
    /// Returns whether this handle keeps the list in the member's log.
    pub(in crate::heap) fn keeps_the_list(&self) -> bool {
        keeper(self.heap(), self.log()) == self.instance().to_word()
    }

    /// Takes over the list in the member's log, no matter which instance made it.
    pub(in crate::heap) fn begin_reclamation(&self) {
        let (memory, list) = (self.memory(), scratch::retired(self.log()));
        // In case a pin was never dropped.
        self.unreserve();
        if memory.load::<u64>(list + HEAD, Ordering::Relaxed) != 0 {
            self.reclaimer.due.set(0);
        }
        // Relaxed: a reader that misses this store only checks the list again later.
        memory.store(list + KEEPER, self.instance().to_word(), Ordering::Relaxed);
    }

    /// Frees the blocks that can be freed; members that reclaim for departed ones free the rest.
    pub(in crate::heap) fn end_reclamation(&self) {
        let (memory, list) = (self.memory(), scratch::retired(self.log()));
        self.unreserve();
        memory.crash_point(ReclaimPoint::Unreserved);
        // While unwinding, the cause of the panic may be here.
        if !std::thread::panicking() {
            self.free_retired();
        }
        memory.store(list + KEEPER, Instance::NONE, Ordering::Relaxed);
        memory.crash_point(ReclaimPoint::Unkept);
        if memory.load::<u64>(list + HEAD, Ordering::Relaxed) != 0 {
            // Release: a thread that sees the counter finds the list without a keeper.
            memory.fetch_add(self.heap().left_at(), 1u64, Ordering::Release);
            memory.crash_point(ReclaimPoint::Left);
        }
    }

    /// Frees the blocks in departed instances' lists that can be freed, if a list has been left
    /// since there was none.
    pub(super) fn free_for_departed(&self) {
        let Some(recoverers) = self.recoverers else {
            return;
        };
        let (memory, member, logs) = (self.memory(), self.member(), self.logs());
        // Acquire: the lists that were counted.
        let left: u64 = memory.load(self.heap().left_at(), Ordering::Acquire);
        if left == self.reclaimer.seen.get() {
            return;
        }
        let generations = member.generations();
        let mut remaining = false;
        for id in 0..logs.capacity().min(generations.capacity()) {
            let list = scratch::retired(logs.of(id));
            let empty = || memory.load::<u64>(list + HEAD, Ordering::Acquire) == 0;
            // A claimant of the log frees the list, or died doing so.
            let at_rest = || empty() && logs.of(id).claimant().is_none();
            if id == self.instance().id {
                continue;
            }
            remaining |= match generations.state(id) {
                Ok(state) => match state.status {
                    Status::Free | Status::Recovered | Status::Left | Status::Retired => {
                        // A failure is retried, by this thread or another, and `pod check` reports
                        // the fault.
                        !at_rest() && (recoverers.revisit(member, id).is_err() || !at_rest())
                    }
                    // Its list will be left, and counted, when it is recovered; it is already
                    // expected here.
                    Status::Dead => !empty(),
                    Status::Joining | Status::Live | Status::Fencing => {
                        let kept: u64 = memory.load(list + KEEPER, Ordering::Relaxed);
                        !empty() && kept != Instance::new(id, state.generation).to_word()
                    }
                },
                Err(_) => false,
            };
        }
        if !remaining {
            self.reclaimer.seen.set(left);
        }
    }
}
