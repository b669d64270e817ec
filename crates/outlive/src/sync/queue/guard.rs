//! The guard of a queue lock, which passes the lock on when it is dropped.

use super::{DONE, POISON, QueuePoint, SLEEPER, TURN};
use crate::membership::Member;
use crate::recovery::{Listed, OwnLog, Redo, RedoError};
use crate::sync::Poison;
use crate::sync::wait::{lower, ring};
use outlive_memory::{Memory, Native, Offset, Ordering};

/// The right that a held [`QueueLock`](super::QueueLock) gives: under it, the owner's
/// [redo](Self::redo) transactions are safe. Dropping it passes the lock on.
#[derive(Debug)]
#[must_use = "the lock is released when this is dropped"]
pub struct QueueGuard<'m, M: Memory = Native> {
    pub(super) memory: M,
    pub(super) member: &'m Member<M>,
    pub(super) listed: Listed,
    /// The offsets of the node and the entry, looked up before the lock was taken, so that the
    /// release loads nothing to find them.
    pub(super) node: Offset,
    pub(super) entry: Offset,
    pub(super) turn: u64,
}

impl<'m, M: Memory> QueueGuard<'m, M> {
    /// Returns the holder.
    #[inline]
    pub fn member(&self) -> &'m Member<M> {
        self.member
    }

    /// Returns the poison of the lock: the mark of an owner that panicked during a change.
    pub fn poison(&self) -> Poison<'_, M> {
        let lock = OwnLog::of(self.member).lock_of(self.listed);
        Poison::new(self.memory, lock + POISON, self.member)
    }

    /// Begins a redo transaction, which ends before the lock is released:
    ///
    /// ```compile_fail,E0505
    /// # use outlive::memory::Offset;
    /// # use outlive::sync::QueueGuard;
    /// fn late(guard: QueueGuard, at: Offset) {
    ///     let mut change = guard.redo().unwrap();
    ///     change.store(at, 1u64).unwrap();
    ///     drop(guard); // another owner may store there from here on
    ///     change.commit();
    /// }
    /// ```
    ///
    /// For more than one lock see [`OwnLog::redo_under`].
    ///
    /// # Errors
    /// If another one is open.
    #[inline]
    pub fn redo(&self) -> Result<Redo<'_, M>, RedoError> {
        OwnLog::of(self.member).redo_under(self)
    }
}

impl<M: Memory> Drop for QueueGuard<'_, M> {
    #[inline(always)]
    fn drop(&mut self) {
        let memory = self.memory;
        // Relaxed, and read before the lock is passed on, as in `tatas/release.rs`. SAFETY:
        // `Place::take` has checked the node's words and the entry's, in this memory; this holds
        // for the next two too.
        let asleep: u32 = unsafe { memory.load_unchecked(self.node + SLEEPER, Ordering::Relaxed) };
        if asleep != 0 {
            return pass_on_and_wake(self.member, self.listed);
        }
        // Release: the work done under the lock.
        // SAFETY: as above.
        unsafe { memory.store_unchecked(self.node + DONE, self.turn, Ordering::Release) };
        memory.crash_point_before_release(QueuePoint::Released);
        // Release: as in `OwnLog::unlist`; in this domain nothing has to be written back.
        // SAFETY: as above.
        unsafe { memory.store_unchecked(self.entry, 0u64, Ordering::Release) };
        memory.crash_point(QueuePoint::Struck);
    }
}

/// Passes the lock on and wakes the successor, which sleeps.
#[cold]
#[inline(never)]
fn pass_on_and_wake<M: Memory>(member: &Member<M>, listed: Listed) {
    // In the member's memory, as in `tatas/release.rs`. Relaxed: this thread wrote the turn.
    let (memory, log) = (member.memory(), OwnLog::of(member));
    let turn: u64 = memory.load(log.node(listed) + TURN, Ordering::Relaxed);
    let flag = log.node(listed) + SLEEPER;
    let asleep = lower(memory, flag);
    // Release: the work done under the lock.
    memory.store(log.node(listed) + DONE, turn, Ordering::Release);
    memory.crash_point(QueuePoint::Released);
    log.unlist(listed);
    memory.crash_point(QueuePoint::Struck);
    if asleep {
        ring(member, flag);
    }
}
