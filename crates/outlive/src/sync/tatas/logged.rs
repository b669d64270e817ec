//! The lock that is listed in its owner's log.
//!
//! The log's entry is written before the word is taken and cleared after it is released. So an
//! owned lock is listed at whatever instruction the owner dies. An entry does no harm if its lock
//! was not taken, or was taken by another member since, because the lock is released by a
//! compare-and-swap from the dead instance. On x86 that takes two plain stores to a line of its
//! own.

use super::bare::{BareTatas, FromDead};
use super::{POISON, TatasLockPoint, release};
use crate::membership::{Instance, Member};
use crate::recovery::{Listed, LockKind, OwnLog, Recovered, Recoverers, Redo, RedoError};
use crate::sync::wait::Waiting;
use crate::sync::{LockError, Poison};
use core::time::Duration;
use outlive_memory::{Memory, Native, Offset, PersistenceDomain};

/// A recoverable lock that is listed in its owner's log: it leaves a dead owner only after the
/// owner has been recovered.
///
/// Waits for a live holder, or for a live member that recovers a dead one. Not fair.
///
/// ```
/// # use outlive::membership::{Generations, Instance, Level, Member, State, Status};
/// # use outlive::memory::{Memory, Native, Offset, Ordering, PersistenceDomain};
/// # use outlive::recovery::{Logs, OwnLog};
/// # use outlive::sync::{self, Tatas};
/// # let memory = Native::leaked(1 << 16, PersistenceDomain::Flushed);
/// # let generations = Generations::new(memory, Offset::new(0), 4);
/// # let logs = Logs::new(memory, Offset::new(4096), 4);
/// # let live = State { generation: 1, host: 0, level: Some(Level::Thread), status: Status::Live };
/// # // SAFETY: no thread acts as the incarnation that this ends; one acts as what it begins.
/// # assert!(unsafe { generations.assume_state(0, State::FREE, live) });
/// # // SAFETY: this thread alone acts as 0.1, and no thread raises its generation.
/// # let member = unsafe { Member::assume(memory, generations, Instance::new(0, 1), logs.at(0), None) };
/// let recoverers = sync::recoverers(logs);
/// OwnLog::open(&member).unwrap();
/// let lock = Tatas::new(memory, Offset::new(1024));
/// let (left, right) = (Offset::new(1088), Offset::new(1096));
/// {
///     let held = lock.lock(&member, &recoverers)?;
///     let mut change = held.redo().unwrap();
///     let sum: u64 = change.load::<u64>(left) + 1;
///     change.store(left, sum).unwrap();
///     change.store(right, sum).unwrap();
///     change.commit(); // both or none, whenever this thread dies
/// }
/// assert_eq!(memory.load::<u64>(right, Ordering::Relaxed), 1);
/// # Ok::<(), sync::LockError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Tatas<M: Memory = Native> {
    pub(super) word: BareTatas<M>,
}

impl<M: Memory> Tatas<M> {
    /// The number of bytes of the lock.
    pub const BYTES: u64 = BareTatas::<M>::BYTES;

    /// Returns the lock at `at` (aligned to 16). The memory is zeroed at first: free. A place is
    /// used by all members as a `Tatas`, or by all as a [`BareTatas`].
    ///
    /// # Panics
    /// If the place is not inside the memory, or not aligned.
    pub fn new(memory: M, at: Offset) -> Self {
        Self {
            word: BareTatas::new(memory, at),
        }
    }

    /// Returns the same lock with another way of waiting.
    pub fn waiting(self, waiting: Waiting) -> Self {
        Self {
            word: self.word.waiting(waiting),
        }
    }

    /// Returns the offset of the lock.
    pub fn at(self) -> Offset {
        self.word.at
    }

    /// Returns the holder. A dead owner counts until it has been recovered.
    pub fn holder(self) -> Option<Instance> {
        self.word.holder()
    }

    /// Acquires the lock, recovering a dead owner first.
    ///
    /// # Errors
    /// See [`LockError`].
    #[inline(always)]
    pub fn lock<'m>(
        &self,
        member: &'m Member<M>,
        recoverers: &Recoverers<M>,
    ) -> Result<TatasGuard<'m, M>, LockError> {
        self.ask_for_entries(member);
        let (listed, taken) = self.take_at_once(member);
        if let (Some(listed), true) = (listed, taken) {
            return Ok(self.guard(member, listed));
        }
        match self.lock_slowly(member, recoverers, listed) {
            Ok(listed) => Ok(self.guard(member, listed)),
            Err(error) => Err(error),
        }
    }

    /// Acquires the lock if no live member holds it. A dead owner is recovered. Returns `None` also
    /// after three tries at each of which another member was faster.
    ///
    /// # Errors
    /// See [`LockError`].
    #[inline]
    pub fn try_lock<'m>(
        &self,
        member: &'m Member<M>,
        recoverers: &Recoverers<M>,
    ) -> Result<Option<TatasGuard<'m, M>>, LockError> {
        self.lock_for(member, recoverers, Duration::ZERO)
    }

    /// Acquires the lock unless that takes longer than `timeout`. (A begun recovery is completed.)
    ///
    /// # Errors
    /// See [`LockError`].
    #[inline]
    pub fn lock_for<'m>(
        &self,
        member: &'m Member<M>,
        recoverers: &Recoverers<M>,
        timeout: Duration,
    ) -> Result<Option<TatasGuard<'m, M>>, LockError> {
        self.ask_for_entries(member);
        let (listed, taken) = self.take_at_once(member);
        if let (Some(listed), true) = (listed, taken) {
            return Ok(Some(self.guard(member, listed)));
        }
        match self.wait(member, recoverers, listed, Some(timeout)) {
            Ok(taken) => Ok(taken.map(|listed| self.guard(member, listed))),
            Err(error) => Err(error),
        }
    }

    /// Checks what a guard's drop relies on: the entries of the member's log are in the lock's
    /// memory too. This is checked before the lock is taken, because anything between its
    /// compare-and-swap and the user's work costs time.
    #[inline(always)]
    fn ask_for_entries(&self, member: &Member<M>) {
        let (memory, last) = (self.word.memory, OwnLog::of(member).last_entry());
        if !memory.has_word::<u64>(last) {
            no_entry(last, memory.size());
        }
    }

    /// Returns the guard; call it after [`ask_for_entries`](Self::ask_for_entries).
    #[inline(always)]
    fn guard<'m>(&self, member: &'m Member<M>, listed: Listed) -> TatasGuard<'m, M> {
        let (memory, entry) = (self.word.memory, OwnLog::of(member).entry(listed));
        TatasGuard {
            memory,
            at: self.word.at,
            member,
            entry,
            written_back: (memory.domain() == PersistenceDomain::WriteBack).into(),
        }
    }

    /// Lists the lock if the first entry is free, then takes it if free; returns both results.
    #[inline(always)]
    fn take_at_once(&self, member: &Member<M>) -> (Option<Listed>, bool) {
        let Some(listed) = OwnLog::of(member).list_at_once(self.word.at, LockKind::TATAS) else {
            return (None, false);
        };
        self.word.memory.crash_point(TatasLockPoint::Listed);
        (Some(listed), self.word.take(member))
    }

    #[cold]
    #[inline(never)]
    fn lock_slowly(
        &self,
        member: &Member<M>,
        recoverers: &Recoverers<M>,
        listed: Option<Listed>,
    ) -> Result<Listed, LockError> {
        let taken = self.wait(member, recoverers, listed, None)?;
        Ok(taken.expect("a wait without a limit does not end without the lock"))
    }

    #[cold]
    #[inline(never)]
    fn wait(
        &self,
        member: &Member<M>,
        recoverers: &Recoverers<M>,
        listed: Option<Listed>,
        timeout: Option<Duration>,
    ) -> Result<Option<Listed>, LockError> {
        let word = &self.word;
        let listed = match listed {
            Some(listed) => listed,
            None => {
                let listed = OwnLog::of(member).list(word.at, LockKind::TATAS)?;
                word.memory.crash_point(TatasLockPoint::Listed);
                listed
            }
        };
        let acquired = word.acquire(member, timeout, |held, dead| {
            match recoverers.recover(member, dead.id) {
                // If it was recovered before and the word still names it, the word fell back with
                // lost caches. No recovery will release it any more, so it is free for the taking.
                Ok(Recovered::NothingLeft) if word.take_from(member, held) => Ok(FromDead::Taken),
                Ok(Recovered::NothingLeft | Recovered::Completed { .. }) => Ok(FromDead::Changed),
                Ok(Recovered::ByAnother(_)) => Ok(FromDead::InRecovery),
                Err(source) => Err(LockError::Unrecovered {
                    lock: word.at,
                    source,
                }),
            }
        });
        match acquired {
            Ok(Some(_)) => Ok(Some(listed)),
            Ok(None) | Err(_) => {
                OwnLog::of(member).unlist(listed);
                acquired.map(|_| None)
            }
        }
    }
}

/// The right that a held [`Tatas`] gives: under it, the owner's [redo](Self::redo) transactions are
/// safe. Dropping it releases the lock.
#[derive(Debug)]
#[must_use = "the lock is released when this is dropped"]
pub struct TatasGuard<'m, M: Memory = Native> {
    memory: M,
    at: Offset,
    member: &'m Member<M>,
    entry: Offset,
    /// Not 0 where the release has to be written back. (One instruction less than to ask the
    /// memory: see the module `release`.)
    written_back: u64,
}

impl<'m, M: Memory> TatasGuard<'m, M> {
    /// Returns the holder.
    #[inline]
    pub fn member(&self) -> &'m Member<M> {
        self.member
    }

    /// Returns the poison of the lock: the mark of an owner that panicked during a change.
    pub fn poison(&self) -> Poison<'_, M> {
        Poison::new(self.memory, self.at + POISON, self.member)
    }

    /// Begins a redo transaction, which ends before the lock is released:
    ///
    /// ```compile_fail,E0505
    /// # use outlive::memory::Offset;
    /// # use outlive::sync::TatasGuard;
    /// fn late(guard: TatasGuard, at: Offset) {
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

impl<M: Memory> Drop for TatasGuard<'_, M> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: `BareTatas::new` has checked the lock's word, and `ask_for_entries` the last
        // entry's, in this memory.
        unsafe {
            release::release_listed(
                self.memory,
                self.member,
                self.at,
                self.entry,
                self.written_back,
            );
        }
    }
}

/// Panics: the member is of another pod, whose memory is larger.
#[cold]
#[inline(never)]
fn no_entry(at: Offset, size: u64) -> ! {
    panic!(
        "the member's log has an entry at {at}, outside this pod of {size} bytes: the lock is \
         another pod's"
    )
}
