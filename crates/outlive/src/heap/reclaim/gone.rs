//! The lists of those that are gone, and how an instance goes.

use super::retired::{HEAD, KEEPER, ReclaimPoint};
use super::{Heap, LocalHeap};
use crate::heap::room;
use crate::membership::{Instance, Status};
use crate::recovery::{Log, Recovering};
use outlive_memory::{Memory, Ordering};

/// Ends what the dead instance read and retired: at the end of its recovery, or when somebody looks after
/// what it has left.
///
/// # Crash
/// Every block is free or in the list of the dead, and another recoverer does this again.
pub(in crate::heap) fn release<M: Memory>(dead: &Recovering<'_, M>, heap: Heap<M>) {
    LocalHeap::of_the_dead(heap, dead).end_reclamation();
}

/// The word of the instance whose way to the heap looks after the list in `log`.
fn keeper<M: Memory>(heap: Heap<M>, log: Log<M>) -> u64 {
    // Relaxed: asked by the member itself, whose word it is.
    let at = room::retired(log) + KEEPER;
    heap.memory().load(at, Ordering::Relaxed)
}

/// A member asked for a second way to a heap. It has one at a time: another one would not know the pins of the first, and
/// its end would take them back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{member} has a LocalHeap already; pass it on by reference, or drop it first")]
pub struct SecondWay {
    /// Who has one.
    pub member: Instance,
}

/// Refuses a second way to the heap.
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
    /// Whether the list that stands in the member's log is this way's to look after.
    pub(in crate::heap) fn keeps_the_list(&self) -> bool {
        keeper(self.heap(), self.log()) == self.instance().to_word()
    }

    /// Takes over the list that stands in the member's log, whoever made it.
    pub(in crate::heap) fn begin_reclamation(&self) {
        let (memory, list) = (self.memory(), room::retired(self.log()));
        // A pin that was never dropped.
        self.unreserve();
        if memory.load::<u64>(list + HEAD, Ordering::Relaxed) != 0 {
            self.reclaimer.due.set(0);
        }
        // Relaxed: whoever reads it looks at what comes next in any event.
        memory.store(list + KEEPER, self.instance().to_word(), Ordering::Relaxed);
    }

    /// Frees what can be freed and leaves the rest to whoever looks after those that are gone.
    pub(in crate::heap) fn end_reclamation(&self) {
        let (memory, list) = (self.memory(), room::retired(self.log()));
        self.unreserve();
        memory.crash_point(ReclaimPoint::Unreserved);
        // On unwinding, whatever went wrong may have gone wrong here.
        if !std::thread::panicking() {
            self.free_retired();
        }
        memory.store(list + KEEPER, Instance::NOBODY, Ordering::Relaxed);
        memory.crash_point(ReclaimPoint::Unkept);
        if memory.load::<u64>(list + HEAD, Ordering::Relaxed) != 0 {
            // Release: who sees the counter finds the list without a keeper.
            memory.fetch_add(self.heap().left_at(), 1u64, Ordering::Release);
            memory.crash_point(ReclaimPoint::Left);
        }
    }

    /// Frees what can be freed of the lists of those that are gone, if any have left some since none was
    /// there.
    pub(super) fn look_after_the_gone(&self) {
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
            let list = room::retired(logs.of(id));
            let empty = || memory.load::<u64>(list + HEAD, Ordering::Acquire) == 0;
            // Whoever has claimed the log frees the list, or died at that.
            let at_rest = || empty() && logs.of(id).claimant().is_none();
            if id == self.instance().id {
                continue;
            }
            remaining |= match generations.state(id) {
                Ok(state) => match state.status {
                    Status::Free | Status::Recovered | Status::Left | Status::Retired => {
                        // What fails is tried again, by us or by another, and `pod check` says what is wrong.
                        !at_rest() && (recoverers.revisit(member, id).is_err() || !at_rest())
                    }
                    // It will be left when it is recovered; then it is counted, and is counted on here already.
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
