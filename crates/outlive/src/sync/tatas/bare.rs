//! The word of both locks, and the lock that is nothing more. Its next owner takes it from a dead
//! one.

use super::{POISON, SLEEPERS, TatasLockPoint, release};
use crate::membership::{Instance, Member};
use crate::recovery::{Listed, LockKind, OwnLog};
use crate::sync::wait::{Waiter, Waiting};
use crate::sync::{LockError, Poison, owner};
use core::time::Duration;
use outlive_memory::{Memory, Native, Offset, Ordering, PersistenceDomain};

/// A recoverable lock without a log entry: a member that takes it from a dead owner is notified of
/// that, and repairs the data that the dead owner left.
///
/// Fast path: one compare-and-swap, one store with release. Waits for a live holder, never for a
/// dead one. Not fair.
#[derive(Clone, Copy, Debug)]
pub struct BareTatas<M: Memory = Native> {
    pub(super) memory: M,
    pub(super) at: Offset,
    waiting: Waiting,
}

impl<M: Memory> BareTatas<M> {
    /// The number of bytes of the lock.
    pub const BYTES: u64 = 16;

    /// Returns the lock at `at` (aligned to 16). The memory is zeroed at first: free.
    ///
    /// # Panics
    /// If the place is not inside the memory, or not aligned.
    #[inline]
    pub fn new(memory: M, at: Offset) -> Self {
        if !memory.has_word::<u128>(at) {
            no_place(at, memory.size());
        }
        Self {
            memory,
            at,
            waiting: Waiting::DEFAULT,
        }
    }

    /// Returns the same lock with another way of waiting.
    pub fn waiting(self, waiting: Waiting) -> Self {
        Self { waiting, ..self }
    }

    /// Returns the offset of the lock.
    pub fn at(self) -> Offset {
        self.at
    }

    /// Returns the holder. A dead owner counts until another member has taken the lock from it.
    pub fn holder(self) -> Option<Instance> {
        Instance::from_word(self.memory.load(self.at, Ordering::Acquire))
    }

    /// Acquires the lock.
    ///
    /// # Errors
    /// See [`LockError`].
    #[inline(always)]
    pub fn lock<'m>(&self, member: &'m Member<M>) -> Result<BareTatasGuard<'m, M>, LockError> {
        if self.take_at_once(member) {
            return Ok(self.guard(member, Taken::AT_ONCE));
        }
        match self.lock_slowly(member) {
            Ok(taken) => Ok(self.guard(member, taken)),
            Err(error) => Err(error),
        }
    }

    /// Acquires the lock if no live member holds it. Returns `None` also after three tries at each
    /// of which another member was faster.
    ///
    /// # Errors
    /// See [`LockError`].
    #[inline]
    pub fn try_lock<'m>(
        &self,
        member: &'m Member<M>,
    ) -> Result<Option<BareTatasGuard<'m, M>>, LockError> {
        self.lock_for(member, Duration::ZERO)
    }

    /// Acquires the lock unless that takes longer than `timeout`.
    ///
    /// # Errors
    /// See [`LockError`].
    #[inline]
    pub fn lock_for<'m>(
        &self,
        member: &'m Member<M>,
        timeout: Duration,
    ) -> Result<Option<BareTatasGuard<'m, M>>, LockError> {
        if self.take_at_once(member) {
            return Ok(Some(self.guard(member, Taken::AT_ONCE)));
        }
        match self.wait(member, Some(timeout)) {
            Ok(taken) => Ok(taken.map(|taken| self.guard(member, taken))),
            Err(error) => Err(error),
        }
    }

    #[inline(always)]
    fn guard<'m>(&self, member: &'m Member<M>, taken: Taken) -> BareTatasGuard<'m, M> {
        BareTatasGuard {
            memory: self.memory,
            at: self.at,
            member,
            taken,
        }
    }

    /// Takes a free lock on the fast path, where it need not be listed.
    #[inline(always)]
    fn take_at_once(&self, member: &Member<M>) -> bool {
        self.memory.domain() == PersistenceDomain::Flushed && self.take(member)
    }

    /// Takes the lock if the word is `from`.
    #[inline(always)]
    pub(super) fn take_from(&self, member: &Member<M>, from: u64) -> bool {
        // Acquire: the last owner's work under the lock. Release: the log's entry is written before
        // the lock is taken.
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        let (memory, word) = (self.memory, member.instance().to_word());
        let taken = memory
            .compare_exchange(self.at, from, word, order.0, order.1)
            .is_ok();
        if taken {
            memory.persist(self.at, 8);
            memory.crash_point(TatasLockPoint::Taken);
        }
        taken
    }

    #[inline(always)]
    pub(super) fn take(&self, member: &Member<M>) -> bool {
        self.take_from(member, Instance::NONE)
    }

    fn waiter<'m>(&self, member: &'m Member<M>, timeout: Option<Duration>) -> Waiter<'m, M> {
        Waiter::new(member, self.waiting, Some(self.at + SLEEPERS), timeout)
    }

    #[cold]
    #[inline(never)]
    fn lock_slowly(&self, member: &Member<M>) -> Result<Taken, LockError> {
        let taken = self.wait(member, None)?;
        Ok(taken.expect("a wait without a limit does not end without the lock"))
    }

    #[cold]
    #[inline(never)]
    fn wait(
        &self,
        member: &Member<M>,
        timeout: Option<Duration>,
    ) -> Result<Option<Taken>, LockError> {
        let listed = match self.memory.domain() {
            PersistenceDomain::Flushed => None,
            PersistenceDomain::WriteBack => Some(OwnLog::of(member).list(self.at, LockKind::BARE)?),
        };
        let acquired = self.acquire(member, timeout, |held, _| {
            Ok(if self.take_from(member, held) {
                FromDead::Taken
            } else {
                FromDead::Changed
            })
        });
        match acquired {
            Ok(Some(abandoned_by)) => Ok(Some(Taken {
                listed,
                abandoned_by: abandoned_by.map_or(Instance::NONE, Instance::to_word),
            })),
            Ok(None) | Err(_) => {
                if let Some(listed) = listed {
                    OwnLog::of(member).unlist(listed);
                }
                acquired.map(|_| None)
            }
        }
    }

    /// Acquires on the slow path of both locks. `from_dead` gets the word and the dead owner in it.
    /// Returns the dead owner that the lock was taken from, if there was one; `None` if time is up.
    pub(super) fn acquire(
        &self,
        member: &Member<M>,
        timeout: Option<Duration>,
        mut from_dead: impl FnMut(u64, Instance) -> Result<FromDead, LockError>,
    ) -> Result<Option<Option<Instance>>, LockError> {
        let (me, generations) = (member.instance(), member.generations());
        let mut waiter = self.waiter(member, timeout);
        loop {
            // Acquire: a thread that sees an owner's name sees the generation that the owner joined
            // with, and does not take a later incarnation for a dead one.
            let held: u64 = self.memory.load(self.at, Ordering::Acquire);
            if held == Instance::NONE {
                if self.take(member) {
                    return Ok(Some(None));
                }
                if !waiter.tries_again() {
                    return Ok(None);
                }
                self.memory.spin_hint();
                continue;
            }
            if waiter.spins() {
                continue;
            }
            let holder = owner(generations, self.at, held)?;
            if holder == me {
                let (instance, lock) = (me, self.at);
                return Err(LockError::AlreadyHeld { instance, lock });
            }
            if generations.is_gone(holder) {
                match from_dead(held, holder)? {
                    FromDead::Taken => return Ok(Some(Some(holder))),
                    FromDead::Changed if waiter.tries_again() => continue,
                    FromDead::Changed => return Ok(None),
                    FromDead::InRecovery => {}
                }
            }
            let still = || self.memory.load::<u64>(self.at, Ordering::Relaxed) == held;
            if !waiter.pause(still) {
                return Ok(None);
            }
        }
    }
}

/// The result of handling a lock whose word names a dead instance.
pub(super) enum FromDead {
    /// The caller has taken the lock.
    Taken,
    /// The word has changed since.
    Changed,
    /// A live instance is recovering the dead one.
    InRecovery,
}

/// The right that a held [`BareTatas`] gives. Dropping it releases the lock.
#[derive(Debug)]
#[must_use = "the lock is released when this is dropped"]
pub struct BareTatasGuard<'m, M: Memory = Native> {
    memory: M,
    at: Offset,
    member: &'m Member<M>,
    taken: Taken,
}

/// The way in which a bare lock was taken. The slow path returns this and its caller makes the
/// guard: a guard returned from a call would be in memory, also on the fast path beside the call.
#[derive(Clone, Copy, Debug)]
struct Taken {
    /// `None` in the flushed domain.
    listed: Option<Listed>,
    /// The dead owner's word, or [`Instance::NONE`]: one word where an option would be three.
    abandoned_by: u64,
}

impl Taken {
    const AT_ONCE: Self = Self {
        listed: None,
        abandoned_by: Instance::NONE,
    };
}

impl<'m, M: Memory> BareTatasGuard<'m, M> {
    /// Returns the dead owner that the lock was taken from. The data that the lock protects may be
    /// inconsistent then.
    #[inline]
    pub fn abandoned_by(&self) -> Option<Instance> {
        Instance::from_word(self.taken.abandoned_by)
    }

    /// Returns the holder.
    #[inline]
    pub fn member(&self) -> &'m Member<M> {
        self.member
    }

    /// Returns the poison of the lock: the mark of an owner that panicked during a change.
    pub fn poison(&self) -> Poison<'_, M> {
        Poison::new(self.memory, self.at + POISON, self.member)
    }
}

impl<M: Memory> Drop for BareTatasGuard<'_, M> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: `BareTatas::new` has checked the word.
        unsafe { release::release(self.memory, self.member, self.at, self.taken.listed) };
    }
}

/// Panics, out of line and with plain values: a handle to which a message points is in memory on
/// the fast path too.
#[cold]
#[inline(never)]
#[track_caller]
fn no_place(at: Offset, size: u64) -> ! {
    panic!("a lock at {at} is outside a memory of {size} bytes, or not aligned to 16")
}
