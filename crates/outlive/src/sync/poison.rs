//! Poison: an owner that panics in the middle of a change marks the lock, and the next owners can see that.
//!
//! A guard's drop cannot tell cheaply whether a panic drops it: with that question a guard does not stay in registers, and an
//! uncontended lock takes 1.4 times as long (`tatas/release.rs`). So whoever changes in place what a lock protects says so with a
//! value of its own, which borrows the guard and so is dropped before the lock is released.
//!
//! The mark stands until an owner clears it: if the next one dies before it has repaired anything, the one after it sees the
//! mark as well. Only owners write, read or clear it, so the lock orders all accesses to it.

use crate::membership::{InstanceId, Member};
use outlive_memory::{Memory, Native, Offset, Ordering};

outlive_memory::crash_points! {
    /// Where an owner that panics may be cut short.
    pub enum PoisonPoint for "lock.poison" {
        /// The lock is poisoned, and still held.
        Poisoned,
    }
}

/// A change in the making of what a lock protects: a panic that drops this poisons the lock.
///
/// It comes of the guards of [`BareTatas`](super::BareTatas), [`Tatas`](super::Tatas) and [`QueueLock`](super::QueueLock). What is
/// changed by redo transactions alone needs none: they are done as a whole or not at all.
#[derive(Debug)]
#[must_use = "a panic poisons the lock only while this lives"]
pub struct PoisonOnPanic<'g, M: Memory = Native> {
    memory: M,
    mark: Offset,
    member: &'g Member<M>,
    /// Whether a panic was under way when the change began: then its end is none.
    panicking: bool,
}

impl<'g, M: Memory> PoisonOnPanic<'g, M> {
    pub(super) fn new(memory: M, mark: Offset, member: &'g Member<M>) -> Self {
        Self {
            memory,
            mark,
            member,
            panicking: std::thread::panicking(),
        }
    }
}

impl<M: Memory> Drop for PoisonOnPanic<'_, M> {
    #[inline]
    fn drop(&mut self) {
        if std::thread::panicking() && !self.panicking {
            // Relaxed: see the top; so are the other two.
            let by = self.member.instance().id + 1;
            self.memory.store(self.mark, by, Ordering::Relaxed);
            self.memory.persist(self.mark, 4);
            self.memory.crash_point(PoisonPoint::Poisoned);
        }
    }
}

/// Returns the id of the owner that panicked last.
pub(super) fn poisoned_by<M: Memory>(memory: M, mark: Offset) -> Option<InstanceId> {
    memory.load::<u32>(mark, Ordering::Relaxed).checked_sub(1)
}

/// Removes the mark.
pub(super) fn clear<M: Memory>(memory: M, mark: Offset) {
    memory.store(mark, 0u32, Ordering::Relaxed);
    memory.persist(mark, 4);
}
