//! A value and its lock: a new owner never sees a half-done update.
//!
//! ```text
//!   0  lock (a bare test-and-test-and-set lock)     16  selector: which copy counts
//!  32  copy 0                                           copy 1
//! ```
//!
//! The guard holds a private copy of the value and works on that; no reference to shared bytes exists. A
//! commit writes the copy that does not count, and then turns the selector by one store. Whatever
//! instruction the owner dies at, the selected copy is whole: the old value or the new one, never half of
//! each. A panic is the same: the private copy is thrown away.
//!
//! What no memory can know is whether a *committed* value is one that should last: an owner that commits
//! twice under one lock may die between the two. The value's type says what then: [`Repair`]. The repair
//! works on a private copy too and is committed like any update, so that it may be cut short and begun
//! again: the lock's word names the one who died in it, and so the next owner repairs as well.

use super::tatas::{BareTatas, BareTatasGuard};
use super::{LockError, Waiting};
use crate::membership::{Instance, Member};
use bytemuck::Pod;
use core::fmt;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::time::Duration;
use outlive_memory::{Memory, Native, Offset, Ordering};

const SELECTOR: u64 = 16;
const COPIES: u64 = 32;

outlive_memory::crash_points! {
    /// Where the commit of a mutex's value may be cut short.
    pub enum MutexPoint for "mutex.commit" {
        /// The copy that does not count is written; the old value stands.
        Written,
        /// The new value stands.
        Selected,
    }
}

/// Why a value has to be repaired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abandoned {
    /// The owner died while it held the lock.
    ByDeath(Instance),
    /// The owner panicked while it held the lock; it is the one that repairs.
    ByPanic,
}

/// How a value is made good that its owner left between two commits.
///
/// The value is the last one committed, whole. A type all of whose committed values are good does nothing
/// here, as the numbers do:
///
/// ```
/// use bytemuck::{Pod, Zeroable};
/// use outlive::sync::{Abandoned, Repair};
///
/// /// A stock that is counted while goods are on the move: both numbers are committed one by one.
/// #[derive(Clone, Copy, Pod, Zeroable)]
/// #[repr(C)]
/// struct Stock { on_shelf: u64, moving: u64 }
///
/// impl Repair for Stock {
///     fn repair(&mut self, _: Abandoned) {
///         self.on_shelf += core::mem::take(&mut self.moving);
///     }
/// }
/// ```
pub trait Repair: Pod {
    /// Makes the value good. It may be called again for the same abandonment, if the one who repairs dies
    /// too; then with the value as it was committed last.
    fn repair(&mut self, abandoned: Abandoned);
}

macro_rules! good_whenever_committed {
    ($($number:ty)*) => { $(
        impl Repair for $number {
            fn repair(&mut self, _: Abandoned) {}
        }
    )* };
}
good_whenever_committed!(u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize f32 f64);

impl<T: Repair, const N: usize> Repair for [T; N]
where
    [T; N]: Pod,
{
    fn repair(&mut self, abandoned: Abandoned) {
        for value in self {
            value.repair(abandoned);
        }
    }
}

/// A value in shared memory that one member at a time works on.
///
/// Waits for a live holder; never for a dead one. Not fair. Uncontended it makes no system call.
///
/// ```
/// # use outlive::membership::{Generations, Instance, Level, Member, State, Status};
/// # use outlive::memory::{Native, Offset, PersistenceDomain};
/// # use outlive::recovery::{Logs, OwnLog};
/// # use outlive::sync::{LockError, RecoverableMutex};
/// # let memory = Native::leaked(1 << 16, PersistenceDomain::Flushed);
/// # let generations = Generations::new(memory, Offset::new(0), 4);
/// # let logs = Logs::new(memory, Offset::new(4096), 4);
/// # let live = State { generation: 1, host: 0, level: Some(Level::Thread), status: Status::Live };
/// # // SAFETY: no thread acts as the incarnation that this ends; one acts as what it begins.
/// # assert!(unsafe { generations.assume_state(0, State::FREE, live) });
/// # // SAFETY: this thread alone acts as 0.1, and nobody raises its generation.
/// # let member = unsafe { Member::assume(memory, generations, Instance::new(0, 1), logs.at(0), None) };
/// let accounts = RecoverableMutex::<[u64; 2]>::create(memory, Offset::new(1024), [100, 0]);
/// {
///     let mut accounts = accounts.lock(&member)?;
///     accounts[0] -= 30; // were this thread to die or panic here, 30 would not be lost
///     accounts[1] += 30;
/// } // here both change, at once
/// assert_eq!(*accounts.lock(&member)?, [70, 30]);
/// # Ok::<(), LockError>(())
/// ```
pub struct RecoverableMutex<T, M: Memory = Native> {
    lock: BareTatas<M>,
    memory: M,
    value: PhantomData<fn(T) -> T>,
}

impl<T: Repair, M: Memory> RecoverableMutex<T, M> {
    const COPY: u64 = (size_of::<T>() as u64).next_multiple_of(8);

    /// How many bytes the mutex takes.
    pub const BYTES: u64 = COPIES + 2 * Self::COPY;

    /// The mutex at `at` (aligned to 16), which was [created](Self::create) there, or is zeroed memory:
    /// free, with the value whose bytes are all zero.
    #[inline]
    pub fn at(memory: M, at: Offset) -> Self {
        Self {
            lock: BareTatas::new(memory, at),
            memory,
            value: PhantomData,
        }
    }

    /// Makes a mutex at `at` (aligned to 16), where there must be none, and nobody else may know the place
    /// yet. Publish it with release.
    pub fn create(memory: M, at: Offset, value: T) -> Self {
        let mutex = Self::at(memory, at);
        memory.store(at, Instance::NOBODY, Ordering::Relaxed);
        for part in [8, 12] {
            memory.store(at + part, 0u32, Ordering::Relaxed);
        }
        memory.store(at + SELECTOR, 0u64, Ordering::Relaxed);
        memory.copy_in(mutex.copy(0), bytemuck::bytes_of(&value));
        memory.persist(at, Self::BYTES);
        mutex
    }

    /// The same mutex, waited for differently.
    pub fn waiting(self, waiting: Waiting) -> Self {
        Self {
            lock: self.lock.waiting(waiting),
            ..self
        }
    }

    /// Who holds it; a dead owner counts until somebody has taken the lock from it.
    pub fn holder(&self) -> Option<Instance> {
        self.lock.holder()
    }

    /// Releases the lock if its word fell back to `member`, which does not hold it, and says so: see
    /// [`audit_own_locks`](super::audit_own_locks). The value needs no repair then: whoever took the lock
    /// had it written back before it touched the value, so the word did not fall back beneath a change.
    pub fn audit(&self, member: &Member<M>) -> bool {
        self.lock.audit(member)
    }

    /// Acquires it. If the owner has died, the value is repaired first.
    ///
    /// # Errors
    /// See [`LockError`].
    #[inline]
    pub fn lock<'m>(&self, member: &'m Member<M>) -> Result<MutexGuard<'m, T, M>, LockError> {
        Ok(self.guard(self.lock.lock(member)?))
    }

    /// Acquires it if nobody alive holds it.
    ///
    /// # Errors
    /// See [`LockError`].
    pub fn try_lock<'m>(
        &self,
        member: &'m Member<M>,
    ) -> Result<Option<MutexGuard<'m, T, M>>, LockError> {
        Ok(self.lock.try_lock(member)?.map(|held| self.guard(held)))
    }

    /// Acquires it unless that takes longer than `timeout`.
    ///
    /// # Errors
    /// See [`LockError`].
    pub fn lock_for<'m>(
        &self,
        member: &'m Member<M>,
        timeout: Duration,
    ) -> Result<Option<MutexGuard<'m, T, M>>, LockError> {
        Ok(self
            .lock
            .lock_for(member, timeout)?
            .map(|held| self.guard(held)))
    }

    #[inline]
    fn guard<'m>(&self, held: BareTatasGuard<'m, M>) -> MutexGuard<'m, T, M> {
        let mutex = Self::at(self.memory, self.lock.at());
        let abandoned_by = held.abandoned_by();
        let mut guard = MutexGuard {
            value: mutex.read(),
            changed: false,
            panicking: std::thread::panicking(),
            mutex,
            held,
        };
        if let Some(dead) = abandoned_by {
            guard.repair(Abandoned::ByDeath(dead));
        }
        guard
    }

    #[inline]
    fn copy(&self, index: u64) -> Offset {
        self.lock.at() + COPIES + (index & 1) * Self::COPY
    }

    #[inline]
    fn selected(&self) -> u64 {
        // Relaxed, as the copies: the lock orders them.
        let at = self.lock.at() + SELECTOR;
        self.memory.load::<u64>(at, Ordering::Relaxed) & 1
    }

    #[inline]
    fn read(&self) -> T {
        let mut value = T::zeroed();
        let from = self.copy(self.selected());
        self.memory
            .copy_out(from, bytemuck::bytes_of_mut(&mut value));
        value
    }

    #[inline]
    fn write(&self, value: &T) {
        let (memory, selected) = (self.memory, self.selected());
        let to = self.copy(selected ^ 1);
        memory.copy_in(to, bytemuck::bytes_of(value));
        memory.persist(to, Self::COPY);
        memory.crash_point(MutexPoint::Written);
        let at = self.lock.at() + SELECTOR;
        // Release: the copy is written before it counts. (A survivor acquires through the generation.)
        memory.store(at, selected ^ 1, Ordering::Release);
        memory.persist(at, 8);
        memory.crash_point(MutexPoint::Selected);
    }
}

impl<T, M: Memory> Clone for RecoverableMutex<T, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, M: Memory> Copy for RecoverableMutex<T, M> {}

impl<T, M: Memory> fmt::Debug for RecoverableMutex<T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = core::any::type_name::<T>();
        write!(f, "RecoverableMutex<{value}>({})", self.lock.at())
    }
}

/// The held value: a private copy that is committed as a whole when the guard is dropped, if it was
/// changed. During a panic it is thrown away instead, and the value [repaired](Repair).
#[must_use = "the lock is released when this is dropped"]
pub struct MutexGuard<'m, T: Repair, M: Memory = Native> {
    mutex: RecoverableMutex<T, M>,
    value: T,
    changed: bool,
    /// Whether a panic was under way when the lock was taken: then its end is not ours.
    panicking: bool,
    held: BareTatasGuard<'m, M>,
}

impl<T: Repair, M: Memory> MutexGuard<'_, T, M> {
    /// Commits what was changed so far, all at once, and goes on.
    #[inline]
    pub fn commit(&mut self) {
        if core::mem::take(&mut self.changed) {
            self.mutex.write(&self.value);
        }
    }

    /// Throws away what was changed since the last commit.
    pub fn roll_back(&mut self) {
        self.value = self.mutex.read();
        self.changed = false;
    }

    /// The dead owner that the lock was taken from, if it was; the value has been repaired.
    pub fn abandoned_by(&self) -> Option<Instance> {
        self.held.abandoned_by()
    }

    #[cold]
    fn repair(&mut self, abandoned: Abandoned) {
        let before = self.value;
        self.value.repair(abandoned);
        self.changed = bytemuck::bytes_of(&before) != bytemuck::bytes_of(&self.value);
        self.commit();
    }
}

impl<T: Repair, M: Memory> Deref for MutexGuard<'_, T, M> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: Repair, M: Memory> DerefMut for MutexGuard<'_, T, M> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.changed = true;
        &mut self.value
    }
}

impl<T: Repair, M: Memory> Drop for MutexGuard<'_, T, M> {
    #[inline]
    fn drop(&mut self) {
        if std::thread::panicking() && !self.panicking {
            self.roll_back();
            self.repair(Abandoned::ByPanic);
        } else {
            self.commit();
        }
        // Dropping `held` releases the lock.
    }
}

impl<T: Repair + fmt::Debug, M: Memory> fmt::Debug for MutexGuard<'_, T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.value, f)
    }
}
