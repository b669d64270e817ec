//! A value and its lock: a new owner never sees a half-done update.
//!
//! ```text
//!   0  lock (a bare test-and-test-and-set lock)     16  selector: which copy counts
//!  32  copy 0                                           copy 1
//! ```
//!
//! The guard holds a private copy of the value and works on that; no reference to shared bytes
//! exists. A commit writes the unselected copy and then turns the selector by one store. At
//! whatever instruction the owner dies, the selected copy is whole: the old value or the new one,
//! never half of each. A panic has the same effect: the private copy is discarded.
//!
//! The memory cannot know whether a *committed* value is consistent: an owner that commits twice
//! under one lock may die between the two commits. The value's type defines the remedy: [`Repair`].
//! The repair works on a private copy too and is committed like any update, so it may be cut short
//! and begun again: the lock's word then names the member that died in the repair, and the next
//! owner repairs as well.

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
    /// The crash points of the commit of a mutex's value.
    pub enum MutexPoint for "mutex.commit" {
        /// The unselected copy is written; the old value is still the current one.
        Written,
        /// The new value is the current one.
        Selected,
    }
}

/// Returns the holder and the committed value in `bytes`, a copy of a mutex over a value of `size`
/// bytes. Returns `None` if the copy is too short.
pub(crate) fn parts_of(bytes: &[u8], size: usize) -> Option<(Option<Instance>, &[u8])> {
    let word = |at: u64| {
        let bytes = bytes.get(at as usize..)?.first_chunk()?;
        Some(u64::from_le_bytes(*bytes))
    };
    let copy = (word(SELECTOR)? & 1) as usize * size.next_multiple_of(8);
    let value = bytes.get(COPIES as usize + copy..)?.get(..size)?;
    Some((Instance::from_word(word(0)?), value))
}

/// The reason why a value has to be repaired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abandoned {
    /// The owner died while it held the lock.
    ByDeath(Instance),
    /// The owner panicked while it held the lock; the owner itself repairs.
    ByPanic,
}

/// Repairs a value that its owner abandoned between two commits.
///
/// The value is the last one committed, whole. A type for which every committed value is consistent
/// does nothing here, as the numbers do. An example:
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
    /// Repairs the value. It may be called again for the same abandonment, with the last committed
    /// value, if the repairing member dies too.
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
/// Waits for a live holder, never for a dead one. Not fair. Makes no system call if uncontended.
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
/// # // SAFETY: this thread alone acts as 0.1, and no thread raises its generation.
/// # let member = unsafe { Member::assume(memory, generations, Instance::new(0, 1), logs.at(0), None) };
/// let accounts = RecoverableMutex::<[u64; 2]>::create(memory, Offset::new(1024), [100, 0]);
/// {
///     let mut accounts = accounts.lock(&member)?;
///     accounts[0] -= 30; // were this thread to die or panic here, 30 would not be lost
///     accounts[1] += 30;
/// } // here both change atomically
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

    /// The number of bytes of a mutex.
    pub const BYTES: u64 = COPIES + 2 * Self::COPY;

    /// Returns the mutex at `at` (aligned to 16). It was [created](Self::create) there, or the
    /// memory is zeroed: free, with the value whose bytes are all zero.
    #[inline]
    pub fn at(memory: M, at: Offset) -> Self {
        Self {
            lock: BareTatas::new(memory, at),
            memory,
            value: PhantomData,
        }
    }

    /// Creates a mutex at `at` (aligned to 16). No mutex may exist there, and no other thread may
    /// know the place yet. Publish it with release.
    pub fn create(memory: M, at: Offset, value: T) -> Self {
        let mutex = Self::at(memory, at);
        memory.store(at, Instance::NONE, Ordering::Relaxed);
        for part in [8, 12] {
            memory.store(at + part, 0u32, Ordering::Relaxed);
        }
        memory.store(at + SELECTOR, 0u64, Ordering::Relaxed);
        memory.copy_in(mutex.copy(0), bytemuck::bytes_of(&value));
        memory.persist(at, Self::BYTES);
        mutex
    }

    /// Returns the same mutex with another way of waiting.
    pub fn waiting(self, waiting: Waiting) -> Self {
        Self {
            lock: self.lock.waiting(waiting),
            ..self
        }
    }

    /// Returns the holder. A dead owner counts until another member has taken the lock from it.
    pub fn holder(&self) -> Option<Instance> {
        self.lock.holder()
    }

    /// Releases the lock if its word fell back to `member`, which does not hold it, and returns
    /// whether it did: see [`audit_own_locks`](super::audit_own_locks). The value then needs no
    /// repair: each owner has the lock word written back before it touches the value, so the word
    /// did not fall back beneath a change.
    pub fn audit(&self, member: &Member<M>) -> bool {
        self.lock.audit(member)
    }

    /// Acquires the lock. If the owner has died, the value is repaired first.
    ///
    /// # Errors
    /// See [`LockError`].
    #[inline]
    pub fn lock<'m>(&self, member: &'m Member<M>) -> Result<MutexGuard<'m, T, M>, LockError> {
        Ok(self.guard(self.lock.lock(member)?))
    }

    /// Acquires the lock if no live member holds it.
    ///
    /// # Errors
    /// See [`LockError`].
    pub fn try_lock<'m>(
        &self,
        member: &'m Member<M>,
    ) -> Result<Option<MutexGuard<'m, T, M>>, LockError> {
        Ok(self.lock.try_lock(member)?.map(|held| self.guard(held)))
    }

    /// Acquires the lock unless that takes longer than `timeout`.
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
        // Relaxed, as for the copies: the lock orders them.
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
        // Release: the copy is written before it is selected. (Survivors acquire through the
        // generation.)
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

/// The held value: a private copy. If it was changed, it is committed as a whole when the guard is
/// dropped. During a panic it is discarded instead, and the value is [repaired](Repair).
#[must_use = "the lock is released when this is dropped"]
pub struct MutexGuard<'m, T: Repair, M: Memory = Native> {
    mutex: RecoverableMutex<T, M>,
    value: T,
    changed: bool,
    /// Whether a panic was under way when the lock was taken. That one does not abandon the value.
    panicking: bool,
    held: BareTatasGuard<'m, M>,
}

impl<T: Repair, M: Memory> MutexGuard<'_, T, M> {
    /// Atomically commits all changes made so far, and keeps the lock.
    #[inline]
    pub fn commit(&mut self) {
        if core::mem::take(&mut self.changed) {
            self.mutex.write(&self.value);
        }
    }

    /// Discards the changes made since the last commit.
    pub fn roll_back(&mut self) {
        self.value = self.mutex.read();
        self.changed = false;
    }

    /// Returns the dead owner that the lock was taken from, if any; the value has been repaired.
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
