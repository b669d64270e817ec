//! Recoverable test-and-test-and-set locks (LUPIN §3.5).
//!
//! ```text
//!  0  the owner's instance, or 0
//!  8  whether somebody sleeps
//! ```
//!
//! To take the lock is one compare-and-swap from 0 to one's own instance, to release it is one store of
//! 0. Since the word names the owner, whoever finds it taken can tell whether the owner lives. No word
//! names the same instance again after that has died, so a compare-and-swap from a dead instance
//! succeeds for exactly one survivor.
//!
//! What happens to a dead owner's lock differs. A [`BareTatas`] is taken by whoever comes next, from the
//! dead. A [`Tatas`] stands in its owner's log, and only the holder of the claim on that log releases it,
//! after it has finished what the owner began under it: a survivor that wants the lock recovers the
//! owner, or waits for the live survivor that does.
//!
//! The log's entry is written before the word is taken and cleared after it is released, so at whatever
//! instruction the owner dies, an owned lock is listed; an entry whose lock was not taken, or taken by
//! another since, does no harm, because it is released by a compare-and-swap from the dead instance.
//! On x86 that makes two plain stores to a line that nobody else touches.
//!
//! *When a host's caches are lost* ([`PersistenceDomain::WriteBack`]) the word can fall back to an
//! earlier value. A taken word is written back before anything is done under the lock, so it cannot fall
//! back beneath an owner that did something. It can fall back to an earlier owner who lives, has released
//! it and would never do so again; the word is wrong then and that owner's log is right. So after a
//! host's death every live instance runs [`audit_own_locks`]. For the same reason a bare lock, too, is
//! listed on such memory.
//!
//! [`PersistenceDomain::WriteBack`]: outlive_memory::PersistenceDomain::WriteBack

mod recover;
mod release;

pub use recover::audit_own_locks;
pub(super) use recover::{LeaveToTheNext, ReleaseTatas};

use super::wait::{Waiter, Waiting};
use super::{LockError, owner};
use crate::membership::{Instance, Member};
use crate::recovery::{Listed, LockKind, OwnLog, Recovered, Recoverers};
use core::time::Duration;
use outlive_memory::{Memory, Native, Offset, Ordering, PersistenceDomain};

const SLEEPERS: u64 = 8;

outlive_memory::crash_points! {
    /// Where the acquisition of a test-and-test-and-set lock may be cut short.
    pub enum TatasLockPoint for "tatas.lock" {
        /// The log lists the lock; it is not taken.
        Listed,
        /// It is taken.
        Taken,
    }
}

outlive_memory::crash_points! {
    /// Where the release of a test-and-test-and-set lock may be cut short.
    pub enum TatasUnlockPoint for "tatas.unlock" {
        /// The lock is free and still listed.
        Released,
        /// It is struck out.
        Struck,
    }
}

/// A recoverable lock without a log entry: whoever takes it from a dead owner is told, and makes good
/// what the dead left.
///
/// Fast path: one compare-and-swap, one store with release. Waits for a live holder; never for a dead
/// one. Not fair.
#[derive(Clone, Copy, Debug)]
pub struct BareTatas<M: Memory = Native> {
    memory: M,
    at: Offset,
    waiting: Waiting,
}

/// A recoverable lock that is noted in its owner's log: nobody gets it from a dead owner before that
/// has been recovered.
///
/// Waits for a live holder, or for a live recoverer of a dead one. Not fair.
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
/// # assert!(generations.transition(0, State::FREE, live));
/// # // SAFETY: this thread alone acts as 0.1, and nobody raises its generation.
/// # let member = unsafe { Member::assume(memory, generations, Instance::new(0, 1), logs.at(0), None) };
/// let recoverers = sync::recoverers(logs);
/// let log = OwnLog::open(&member).unwrap();
/// let lock = Tatas::new(memory, Offset::new(1024));
/// let (left, right) = (Offset::new(1088), Offset::new(1096));
/// {
///     let _held = lock.lock(&member, &recoverers)?;
///     let mut change = log.redo().unwrap();
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
    word: BareTatas<M>,
}

impl<M: Memory> BareTatas<M> {
    /// How many bytes the lock takes.
    pub const BYTES: u64 = 16;

    /// The lock at `at` (aligned to 16), which is zeroed memory at first: free.
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

    /// The same lock, waited for differently.
    pub fn waiting(self, waiting: Waiting) -> Self {
        Self { waiting, ..self }
    }

    /// Where the lock is.
    pub fn at(self) -> Offset {
        self.at
    }

    /// Who holds it; a dead owner counts until somebody has taken the lock from it.
    pub fn holder(self) -> Option<Instance> {
        Instance::from_word(self.memory.load(self.at, Ordering::Acquire))
    }

    /// Acquires it.
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

    /// Acquires it if nobody alive holds it.
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

    /// Acquires it unless that takes longer than `timeout`.
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

    /// The fast path: takes the lock where it need not be listed, if it is free.
    #[inline(always)]
    fn take_at_once(&self, member: &Member<M>) -> bool {
        self.memory.domain() == PersistenceDomain::Flushed && self.take(member)
    }

    /// Takes the lock if the word is `from`.
    #[inline(always)]
    fn take_from(&self, member: &Member<M>, from: u64) -> bool {
        // Acquire: what the last owner did under the lock. Release: the log's entry is written before
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
    fn take(&self, member: &Member<M>) -> bool {
        self.take_from(member, Instance::NOBODY)
    }

    fn waiter<'m>(&self, member: &'m Member<M>, timeout: Option<Duration>) -> Waiter<'m, M> {
        Waiter::new(member, self.waiting, self.at + SLEEPERS, timeout)
    }

    #[cold]
    #[inline(never)]
    fn lock_slowly(&self, member: &Member<M>) -> Result<Taken, LockError> {
        let taken = self.wait(member, None)?;
        Ok(taken.expect("a wait without end does not end without the lock"))
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
                abandoned_by: abandoned_by.map_or(Instance::NOBODY, Instance::to_word),
            })),
            Ok(None) | Err(_) => {
                if let Some(listed) = listed {
                    OwnLog::of(member).unlist(listed);
                }
                acquired.map(|_| None)
            }
        }
    }

    /// The slow path of both locks. `from_dead` is told the word and the dead owner in it. Returns whom the
    /// lock was taken from, if from anybody; `None` if time is up.
    fn acquire(
        &self,
        member: &Member<M>,
        timeout: Option<Duration>,
        mut from_dead: impl FnMut(u64, Instance) -> Result<FromDead, LockError>,
    ) -> Result<Option<Option<Instance>>, LockError> {
        let (me, generations) = (member.instance(), member.generations());
        let mut waiter = self.waiter(member, timeout);
        loop {
            // Acquire: who sees an owner's name sees the generation that it joined with, and does not take
            // a later incarnation for a dead one.
            let held: u64 = self.memory.load(self.at, Ordering::Acquire);
            if held == Instance::NOBODY {
                if self.take(member) {
                    return Ok(Some(None));
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
                    FromDead::Changed => continue,
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

/// What came of a lock whose word names a dead instance.
enum FromDead {
    /// It is the caller's.
    Taken,
    /// The word is another by now.
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

/// How a bare lock was taken. The slow path answers with this and leaves it to its caller to make the
/// guard: one that comes out of a call is in memory, also on the fast path beside the call.
#[derive(Clone, Copy, Debug)]
struct Taken {
    /// `None` in the flushed domain.
    listed: Option<Listed>,
    /// The dead owner's word, or [`Instance::NOBODY`]: one word where an option would be three.
    abandoned_by: u64,
}

impl Taken {
    const AT_ONCE: Self = Self {
        listed: None,
        abandoned_by: Instance::NOBODY,
    };
}

impl<'m, M: Memory> BareTatasGuard<'m, M> {
    /// The dead owner that the lock was taken from: what it protects may be half-done.
    #[inline]
    pub fn abandoned_by(&self) -> Option<Instance> {
        Instance::from_word(self.taken.abandoned_by)
    }

    /// The holder.
    #[inline]
    pub fn member(&self) -> &'m Member<M> {
        self.member
    }
}

impl<M: Memory> Drop for BareTatasGuard<'_, M> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: `BareTatas::new` has asked for the word.
        unsafe { release::release(self.memory, self.member, self.at, self.taken.listed) };
    }
}

impl<M: Memory> Tatas<M> {
    /// How many bytes the lock takes.
    pub const BYTES: u64 = BareTatas::<M>::BYTES;

    /// The lock at `at` (aligned to 16), which is zeroed memory at first: free. A place is a `Tatas`
    /// for all, or a [`BareTatas`] for all.
    ///
    /// # Panics
    /// If the place is not inside the memory, or not aligned.
    pub fn new(memory: M, at: Offset) -> Self {
        Self {
            word: BareTatas::new(memory, at),
        }
    }

    /// The same lock, waited for differently.
    pub fn waiting(self, waiting: Waiting) -> Self {
        Self {
            word: self.word.waiting(waiting),
        }
    }

    /// Where the lock is.
    pub fn at(self) -> Offset {
        self.word.at
    }

    /// Who holds it; a dead owner counts until it has been recovered.
    pub fn holder(self) -> Option<Instance> {
        self.word.holder()
    }

    /// Acquires it, recovering a dead owner first.
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

    /// Acquires it if nobody alive holds it. A dead owner is recovered.
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

    /// Acquires it unless that takes longer than `timeout`. (A recovery that has begun is completed
    /// nevertheless.)
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

    /// What a guard's drop relies on: the entries of the member's log are in the lock's memory too. Asked before the
    /// lock is taken, for what comes between its compare-and-swap and the user's work takes time.
    #[inline(always)]
    fn ask_for_entries(&self, member: &Member<M>) {
        let (memory, last) = (self.word.memory, OwnLog::of(member).last_entry());
        if !memory.has_word::<u64>(last) {
            no_entry(last, memory.size());
        }
    }

    /// After [`ask_for_entries`](Self::ask_for_entries).
    #[inline(always)]
    fn guard<'m>(&self, member: &'m Member<M>, listed: Listed) -> TatasGuard<'m, M> {
        let (memory, entry) = (self.word.memory, OwnLog::of(member).entry(listed));
        TatasGuard {
            memory,
            at: self.word.at,
            member,
            listed,
            entry,
            written_back: (memory.domain() == PersistenceDomain::WriteBack).into(),
        }
    }

    /// The fast path: lists the lock if the first entry is free, and then takes it if it is free. Says
    /// how far it came.
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
        Ok(taken.expect("a wait without end does not end without the lock"))
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
                // If it was recovered before and yet the word names it, the word fell back with lost
                // caches. Nobody answers for it any more, so it is free for the taking.
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

/// The right that a held [`Tatas`] gives: under it, the owner's [redo](OwnLog::redo) transactions are
/// safe. Dropping it releases the lock.
#[derive(Debug)]
#[must_use = "the lock is released when this is dropped"]
pub struct TatasGuard<'m, M: Memory = Native> {
    memory: M,
    at: Offset,
    member: &'m Member<M>,
    listed: Listed,
    entry: Offset,
    /// Not 0 where the release has to be written back. (One instruction less than to ask the memory: see
    /// `release.rs`.)
    written_back: u64,
}

impl<'m, M: Memory> TatasGuard<'m, M> {
    /// The holder.
    #[inline]
    pub fn member(&self) -> &'m Member<M> {
        self.member
    }
}

impl<M: Memory> Drop for TatasGuard<'_, M> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: `BareTatas::new` has asked for the lock's word, and `ask_for_entries` for the last entry's, in this memory.
        unsafe {
            release::release_listed(
                self.memory,
                self.member,
                self.at,
                self.listed,
                self.entry,
                self.written_back,
            );
        }
    }
}

/// Out of line, and with plain values: a handle that a message points at is in memory on the fast path too.
#[cold]
#[inline(never)]
#[track_caller]
fn no_place(at: Offset, size: u64) -> ! {
    panic!("a lock at {at} is outside a memory of {size} bytes, or not aligned to 16")
}

/// The member is of another pod, whose memory is larger.
#[cold]
#[inline(never)]
fn no_entry(at: Offset, size: u64) -> ! {
    panic!(
        "a member whose log has an entry at {at} is none of a pod of {size} bytes: the lock is another pod's"
    )
}
