//! The poison of a lock: the mark of an owner that panicked in the middle of a change.
//!
//! A panic releases a lock, since it drops the guard. The drop cannot find out cheaply that a panic
//! runs it: with that check the guard does not stay in registers, and an uncontended bare lock
//! takes 1.4 times as long (see the module `tatas::release`). So an owner that changes shared data
//! in place announces the change by [`Poison::on_panic`]. The value that it gets borrows the guard,
//! so it is dropped, and the mark written, before the lock is released.
//!
//! The mark remains until an owner clears it. If the next owner dies before it has repaired the
//! data, the owner after it still sees the mark. Only owners of the lock read and write the mark,
//! so the lock orders all accesses to it.
//!
//! Tests: tests/sync_cut.rs; proofs: lab/outlive-proofs/src/locks.

use crate::membership::{InstanceId, Member};
use outlive_memory::{Memory, Native, Offset, Ordering};

outlive_memory::crash_points! {
    /// The crash points of the poisoning of a lock.
    pub enum PoisonPoint for "lock.poison" {
        /// The lock is poisoned, and still held.
        Poisoned,
    }
}

/// The poison of a lock, for its owner: see the `poison` methods of the guards.
///
/// ```
/// # use outlive::membership::{Generations, Instance, Level, Member, State, Status};
/// # use outlive::memory::{Memory, Native, Offset, Ordering, PersistenceDomain};
/// # use outlive::recovery::Logs;
/// # use outlive::sync::{BareTatas, LockError};
/// # use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
/// # let memory = Native::leaked(1 << 16, PersistenceDomain::Flushed);
/// # let generations = Generations::new(memory, Offset::new(0), 4);
/// # let logs = Logs::new(memory, Offset::new(4096), 4);
/// # let live = State { generation: 1, host: 0, level: Some(Level::Thread), status: Status::Live };
/// # // SAFETY: no thread acts as the incarnation that this ends; one acts as what it begins.
/// # assert!(unsafe { generations.assume_state(0, State::FREE, live) });
/// # // SAFETY: this thread alone acts as 0.1, and no thread raises its generation.
/// # let member = unsafe { Member::assume(memory, generations, Instance::new(0, 1), logs.at(0), None) };
/// let lock = BareTatas::new(memory, Offset::new(1024));
/// let (one, two) = (Offset::new(1088), Offset::new(1096));
/// # let _ = catch_unwind(AssertUnwindSafe(|| {
/// let held = lock.lock(&member).unwrap();
/// let change = held.poison().on_panic();
/// memory.store(one, 7u64, Ordering::Relaxed);
/// # resume_unwind(Box::new(()));
/// // ... a panic here ...
/// memory.store(two, 7u64, Ordering::Relaxed);
/// drop(change);
/// # }));
///
/// // The next owner:
/// let held = lock.lock(&member)?;
/// if held.poison().set_by().is_some() {
///     let value: u64 = memory.load(one, Ordering::Relaxed);
///     memory.store(two, value, Ordering::Relaxed);
///     held.poison().clear();
/// }
/// # assert_eq!(memory.load::<u64>(two, Ordering::Relaxed), 7);
/// # Ok::<(), LockError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Poison<'g, M: Memory = Native> {
    memory: M,
    /// The offset of the mark, 32 bits: the id of the owner that panicked last plus 1, or 0.
    mark: Offset,
    member: &'g Member<M>,
}

impl<'g, M: Memory> Poison<'g, M> {
    #[inline]
    pub(super) fn new(memory: M, mark: Offset, member: &'g Member<M>) -> Self {
        Self {
            memory,
            mark,
            member,
        }
    }

    /// Begins a change in place. A panic that drops the returned value poisons the lock. A change
    /// that is made by redo transactions alone needs no mark: they take effect as a whole or not at
    /// all.
    ///
    /// The value is dropped before the lock is released:
    ///
    /// ```compile_fail,E0505
    /// # use outlive::sync::TatasGuard;
    /// fn late(guard: TatasGuard) {
    ///     let change = guard.poison().on_panic();
    ///     drop(guard); // another owner may change the data from here on
    ///     drop(change);
    /// }
    /// ```
    ///
    /// # Crash
    /// A death in the middle of the change is reported as every death of an owner is, with the mark
    /// or without it.
    #[inline]
    pub fn on_panic(self) -> PoisonOnPanic<'g, M> {
        PoisonOnPanic {
            poison: self,
            panicking: std::thread::panicking(),
        }
    }

    /// Returns the id of the owner that panicked last in the middle of a [change](Self::on_panic);
    /// `None` if the mark was [cleared](Self::clear) since, or never set.
    pub fn set_by(self) -> Option<InstanceId> {
        // Relaxed: the lock orders the accesses to the mark; so do the stores below.
        let mark: u32 = self.memory.load(self.mark, Ordering::Relaxed);
        mark.checked_sub(1)
    }

    /// Clears the mark: the data that the lock protects is valid again.
    ///
    /// # Crash
    /// The mark is cleared or not; the dead owner holds the lock.
    pub fn clear(self) {
        self.store(0);
    }

    fn store(self, mark: u32) {
        self.memory.store(self.mark, mark, Ordering::Relaxed);
        self.memory.persist(self.mark, 4);
    }
}

/// A change in place of the data that a lock protects: if a panic drops it, the lock is poisoned.
///
/// [`Poison::on_panic`] returns it.
#[derive(Debug)]
#[must_use = "a panic poisons the lock only while this value lives"]
pub struct PoisonOnPanic<'g, M: Memory = Native> {
    poison: Poison<'g, M>,
    /// Whether the thread was panicking already when the change began. Then the panic does not cut
    /// the change short: a destructor makes it.
    panicking: bool,
}

impl<M: Memory> Drop for PoisonOnPanic<'_, M> {
    #[inline]
    fn drop(&mut self) {
        if std::thread::panicking() && !self.panicking {
            self.poison.store(self.poison.member.instance().id + 1);
            self.poison.memory.crash_point(PoisonPoint::Poisoned);
        }
    }
}
