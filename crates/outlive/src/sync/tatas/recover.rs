//! Recovers test-and-test-and-set locks of dead members, and words that fell back with lost caches.

use super::{BareTatas, SLEEPERS, Tatas, TatasUnlockPoint};
use crate::membership::{Instance, Member};
use crate::recovery::{LockEntry, OwnLog, RecoverError, RecoverLock, Recovering};
use crate::sync::wait::{lower, ring};
use outlive_memory::{Memory, Offset, Ordering, PersistenceDomain};

/// Releases those of the `locks` whose word names `member` although its log does not list them;
/// returns their number. Each live instance runs this after the death of a host, on write-back
/// memory: see the comment at the top of the module `tatas`.
///
/// Only the member takes locks in its own name, and it is in this call; so a lock that its log does
/// not list is not held. For bare locks and mutexes see [`BareTatas::audit`] and
/// [`RecoverableMutex::audit`](crate::sync::RecoverableMutex::audit); queue locks do not live on
/// such memory.
///
/// # Crash
/// Each word is released by one step. A word that is not released then names a dead instance, and
/// is taken from it.
pub fn audit_own_locks<M: Memory>(
    member: &Member<M>,
    locks: impl IntoIterator<Item = Tatas<M>>,
) -> usize {
    let fallen = |lock: &Tatas<M>| release_fallen(lock.word.memory, lock.word.at, member);
    locks.into_iter().filter(fallen).count()
}

impl<M: Memory> BareTatas<M> {
    /// Releases a bare lock if its word names `member` although its log does not list it, and
    /// returns whether it did: [`audit_own_locks`] for a bare lock. On flushed memory a bare lock
    /// is not listed and its word does not fall back: nothing happens.
    ///
    /// # Crash
    /// The outcome is that of a crash in [`audit_own_locks`].
    pub fn audit(self, member: &Member<M>) -> bool {
        self.memory.domain() == PersistenceDomain::WriteBack
            && release_fallen(self.memory, self.at, member)
    }
}

/// Releases the lock at `at` if its word names `member` and its log does not.
fn release_fallen<M: Memory>(memory: M, at: Offset, member: &Member<M>) -> bool {
    let me = member.instance().to_word();
    let fallen = memory.load::<u64>(at, Ordering::Acquire) == me && !OwnLog::of(member).lists(at);
    if fallen {
        lower(memory, at + SLEEPERS);
        // Release: so as not to be weaker than any release of this word.
        memory.store(at, Instance::NONE, Ordering::Release);
        memory.persist(at, 8);
        memory.crash_point(TatasUnlockPoint::Released);
        ring(member, at + SLEEPERS);
    }
    fallen
}

/// The handler for [`LockKind::TATAS`].
pub(in crate::sync) struct ReleaseTatas;

impl<M: Memory> RecoverLock<M> for ReleaseTatas {
    fn release(&self, dead: &Recovering<'_, M>, entry: LockEntry) -> Result<(), RecoverError> {
        let (memory, at) = (dead.member().memory(), checked::<M>(dead, entry)?);
        let owner = dead.owner().to_word();
        // Release: the work redone under the lock. If the word is not the dead instance's, its
        // entry was intent, or it had released the lock already.
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        let freed = memory.compare_exchange(at, owner, Instance::NONE, order.0, order.1);
        if freed.is_ok() {
            memory.persist(at, 8);
        }
        // The dead owner may have lowered the flag, or released the lock, without a wake-up.
        ring(dead.member(), at + SLEEPERS);
        Ok(())
    }
}

/// The handler for [`LockKind::BARE`]: the word continues to name the dead instance, so that the
/// next owner learns that it has something to repair.
pub(in crate::sync) struct LeaveToTheNext;

impl<M: Memory> RecoverLock<M> for LeaveToTheNext {
    fn release(&self, _: &Recovering<'_, M>, _: LockEntry) -> Result<(), RecoverError> {
        Ok(())
    }
}

fn checked<M: Memory>(dead: &Recovering<'_, M>, entry: LockEntry) -> Result<Offset, RecoverError> {
    let size = dead.member().memory().size();
    Offset::checked(entry.lock.raw(), BareTatas::<M>::BYTES, 16, size).map_err(|_| {
        RecoverError::BadLock {
            lock: entry.lock,
            what: "the log's entry is not a valid offset of a lock",
        }
    })
}
