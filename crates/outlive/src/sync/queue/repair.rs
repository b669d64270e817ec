//! The repair of a queue.
//!
//! The recovering member cuts a dead instance out of the queue: the dead instance's predecessor
//! becomes the predecessor of its successor, or the tail. If the dead instance held the lock, its
//! predecessor is done and the successor holds the lock. If it waited, the successor waits for the
//! predecessor. If it was not in the queue yet, no entry names its ticket and nothing changes. The
//! successor is found among the locks listed in all logs: it recorded its predecessor before it
//! moved the tail, so once the tail is not the dead instance's, the record exists. A waiter that
//! runs out of time cuts itself out in the same way.
//!
//! Cuts of one queue exclude one another, because two neighbours that are cut concurrently could
//! each bring back the other. The exclusion is a word that is held for one scan of the logs and
//! taken from dead holders by compare-and-swap; its holder waits for nothing else. The next
//! recovering member begins a cut again if it was cut short.

use super::{DONE, PREDECESSOR, QueueLock, QueuePoint, SLEEPER, TURN, Ticket, is_over};
use crate::membership::{Instance, Member};
use crate::recovery::{LockEntry, Logs, RecoverError, RecoverLock, Recovering};
use crate::sync::wait::{Waiter, Waiting, ring};
use outlive_memory::{Memory, Offset, Ordering};

const REPAIRER: u64 = 64;

/// Takes `ticket` out of the queue. Its node is at `node`, and its link changes only by repairs. No
/// link names the ticket afterwards. Waits for other repairing members that live.
pub(super) fn cut<M: Memory>(
    lock: QueueLock<M>,
    member: &Member<M>,
    logs: Logs<M>,
    node: Offset,
    ticket: u64,
) {
    let (memory, at) = (lock.memory, lock.at);
    let repairing = Repairing::begin(lock, member);
    memory.crash_point(QueuePoint::Repairing);
    let before: u64 = memory.load(node + PREDECESSOR, Ordering::Acquire);
    // AcqRel: the work done under the lock passes to the successor; on failure acquire, because the
    // successor's record is searched for next.
    let order = (Ordering::AcqRel, Ordering::Acquire);
    let was_last = memory.compare_exchange(at, ticket, before, order.0, order.1);
    if was_last.is_err() {
        // Several members may have recorded the ticket; those that did not get into the queue
        // behind it write their link again before they try again.
        for id in 0..logs.capacity() {
            let log = logs.of(id);
            for entry in log.locks().filter(|entry| entry.lock == at) {
                let link = log.node(entry.slot) + PREDECESSOR;
                // A compare-and-swap, because the owner may be writing here.
                let _ = memory.compare_exchange(link, ticket, before, order.0, order.1);
            }
        }
    }
    memory.crash_point(QueuePoint::Cut);
    drop(repairing);
    // The dead member may have lowered the flag of its node without waking the sleeper.
    ring(member, node + SLEEPER);
}

/// The exclusive right to repair one queue.
struct Repairing<M: Memory> {
    memory: M,
    at: Offset,
    repairer: u64,
}

impl<M: Memory> Repairing<M> {
    fn begin(lock: QueueLock<M>, member: &Member<M>) -> Self {
        let (memory, at) = (lock.memory, lock.at + REPAIRER);
        let mut waiter = Waiter::new(member, Waiting::DEFAULT, None, None);
        loop {
            // Acquire, for the generation that the repairing member joined with.
            let held: u64 = memory.load(at, Ordering::Acquire);
            let free = Instance::from_word(held)
                .is_none_or(|repairer| member.generations().is_dead(repairer));
            let word = member.instance().to_word();
            // AcqRel: acquire the last repair; release nothing but our name.
            let order = (Ordering::AcqRel, Ordering::Relaxed);
            if free
                && memory
                    .compare_exchange(at, held, word, order.0, order.1)
                    .is_ok()
            {
                return Self {
                    memory,
                    at,
                    repairer: word,
                };
            }
            waiter.pause(|| true);
        }
    }
}

impl<M: Memory> Drop for Repairing<M> {
    fn drop(&mut self) {
        // Release: for the cut. By compare-and-swap, because the cut may have passed the lock to
        // its next owner, which may have freed it since: then the word does not name this member.
        let order = (Ordering::Release, Ordering::Relaxed);
        let (repairer, free) = (self.repairer, Instance::NONE);
        let _ = (self.memory).compare_exchange(self.at, repairer, free, order.0, order.1);
    }
}

/// The handler for [`LockKind::QUEUE`].
pub(in crate::sync) struct LeaveQueue<M: Memory> {
    pub(in crate::sync) logs: Logs<M>,
}

impl<M: Memory> RecoverLock<M> for LeaveQueue<M> {
    fn release(&self, dead: &Recovering<'_, M>, entry: LockEntry) -> Result<(), RecoverError> {
        let (member, node) = (dead.member(), dead.log().node(entry.slot));
        let (memory, size) = (member.memory(), member.memory().size());
        let (lock, what) = (
            entry.lock,
            "the log's entry is not a valid offset of a queue lock",
        );
        Offset::checked(lock.raw(), QueueLock::<M>::BYTES, 64, size)
            .map_err(|_| RecoverError::BadLock { lock, what })?;
        let turn: u64 = memory.load(node + TURN, Ordering::Relaxed);
        if is_over(memory.load(node + DONE, Ordering::Relaxed), turn) {
            // It had not begun to queue, or it had released the lock, perhaps without a wake-up.
            ring(member, node + SLEEPER);
            return Ok(());
        }
        let ticket = Ticket {
            id: dead.owner().id,
            slot: entry.slot,
            turn,
        };
        cut(
            QueueLock::new(memory, lock),
            member,
            self.logs,
            node,
            ticket.to_word(),
        );
        // No link names the ticket any more; the node is at rest for the next incarnation.
        memory.store(node + DONE, turn, Ordering::Release);
        Ok(())
    }
}
