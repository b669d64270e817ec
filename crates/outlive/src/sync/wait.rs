//! Waiting for a live holder: spin, then yield, then sleep.
//!
//! Spinning is best while the holder runs on another core. With more waiters than cores the holder
//! may be waiting for the waiter's core, so the waiter yields. A yield costs whole time slices
//! where other programs want the core, so the clock ends the yielding, and not a count. If one
//! yield took all of that time, the thread does not yield for ten seconds. Then the waiter sleeps.
//! A waiter that competes for the lock first sleeps several times for 50 microseconds, checking the
//! lock by itself after each sleep (the kernel lets a short sleeper run soon, and the releaser
//! makes no system call), then for longer. Before a longer sleep it raises a flag. The releaser
//! reads and lowers the flag just before it releases the lock, and wakes the sleepers by the lock's
//! wake-up futex afterwards. To read the flag after the release would take a fence that costs as
//! much as the release itself. So a wake-up can be missed, which costs the sleeper the rest of its
//! time-out and nothing else. The flag is not a count, so a sleeper that dies causes at most one
//! needless wake-up.
//!
//! *A released lock is not accessed.* Its next owner may free the memory that it is in, so the
//! releaser neither reads nor writes the flag after the release, and it wakes the sleepers by the
//! futex's key alone. A survivor that releases a dead owner's lock cannot lower the flag before,
//! because the lock may belong to another owner by then; it leaves the flag and always wakes the
//! sleepers. A waiter raises the flag of a lock that it is about to acquire: to free that lock is
//! an error of the program, as it is with any lock. The node of a queue lock, which has a flag too,
//! is in a log and never freed.

use crate::membership::Member;
use core::any::TypeId;
use core::cell::Cell;
use core::time::Duration;
use outlive_memory::{Memory, Native, Offset, Ordering};
use std::time::Instant;

/// The time for which a waiter spins and yields before it sleeps, and the longest time of one
/// sleep.
///
/// Over a memory other than [`Native`] a waiter without wake-up futexes does nothing but
/// [`spin_hint`](outlive_memory::Memory::spin_hint), and each hint counts as a microsecond; so does
/// each yield of a waiter with wake-up futexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The number of spins. (During the first hundred the holder's liveness is not checked.)
    pub spins: u32,
    /// The time for which to yield the core after the spins. A yield that has begun is not cut
    /// short.
    pub yielding: Duration,
    /// The longest time of one sleep after the yields: the cost of a missed wake-up, and the
    /// longest time for which a sleeper does not notice a death.
    pub nap: Duration,
}

impl Waiting {
    /// The default: some microseconds of spinning, then 100 of yielding (or one yield, where that
    /// takes longer), then sleeps, of up to a millisecond after the first 100 sleeps.
    pub const DEFAULT: Self = Self {
        spins: 100,
        yielding: Duration::from_micros(100),
        nap: Duration::from_millis(1),
    };
    /// The largest number of spins before a waiter first checks whether the holder lives.
    const BLIND: u32 = 100;
    /// The smallest number of tries to take a lock that others take and release all the time.
    pub(super) const TRIES: u32 = 3;
    /// The number of short sleeps, which no wake-up ends, of a waiter that competes for a lock.
    const SHORT_NAPS: u32 = 100;
    const SHORT_NAP: Duration = Duration::from_micros(50);
    /// The time for which a thread does not yield after one yield took all the yielding time.
    const NO_YIELDS: Duration = Duration::from_secs(10);
}

impl Default for Waiting {
    fn default() -> Self {
        Self::DEFAULT
    }
}

thread_local! {
    /// The time until which this thread does not yield.
    static NO_YIELDS_UNTIL: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// One wait for one lock.
pub(super) struct Waiter<'m, M: Memory> {
    member: &'m Member<M>,
    waiting: Waiting,
    /// The flag that says that a waiter sleeps; its offset is also the key of the wake-up futex.
    /// `None` where no waiter is woken.
    flag: Option<Offset>,
    /// Whether the waiter is handed the lock, and does not compete for it.
    is_next: bool,
    round: u32,
    /// The time at which the yielding ends; set when it begins.
    yields_until: Option<Instant>,
    naps: u32,
    /// The number of times that another member was faster.
    tries: u32,
    until: Until,
}

enum Until {
    Forever,
    Time(Instant),
    Rounds(u32),
}

/// The result of [`Waiter::rest`].
pub(super) enum Rest {
    /// The time is up.
    Over,
    /// The waiter spun or yielded.
    Awake,
    /// The waiter must sleep, at most for this time.
    Sleep(Duration),
}

fn native<M: Memory>() -> bool {
    TypeId::of::<M>() == TypeId::of::<Native>()
}

impl<'m, M: Memory> Waiter<'m, M> {
    pub(super) fn new(
        member: &'m Member<M>,
        waiting: Waiting,
        flag: Option<Offset>,
        timeout: Option<Duration>,
    ) -> Self {
        let until = match timeout {
            None => Until::Forever,
            // A time that no clock reaches is forever.
            Some(timeout) if native::<M>() => Instant::now()
                .checked_add(timeout)
                .map_or(Until::Forever, Until::Time),
            Some(timeout) => Until::Rounds(u32::try_from(timeout.as_micros()).unwrap_or(u32::MAX)),
        };
        Self {
            member,
            waiting,
            flag,
            is_next: false,
            round: 0,
            yields_until: None,
            naps: 0,
            tries: 0,
            until,
        }
    }

    /// From now on, sleeps at this flag, whose owner hands it the lock: any wake-up ends a sleep.
    pub(super) fn watch(&mut self, flag: Offset) {
        (self.flag, self.is_next) = (Some(flag), true);
    }

    /// Spins if the waiter has not spun enough yet, and returns whether it did. The liveness of the
    /// holder is not checked during these spins, because most holders release soon. Never spins
    /// where time is counted, or in the memories of the proofs.
    #[inline(always)]
    pub(super) fn spins(&mut self) -> bool {
        let spins = native::<M>()
            && matches!(self.until, Until::Forever)
            && self.round < self.waiting.spins.min(Waiting::BLIND);
        if spins {
            self.round += 1;
            self.member.memory().spin_hint();
        }
        spins
    }

    /// Waits for a moment, as long as `still` returns that there is something to wait for. Returns
    /// `false` when the time is up.
    pub(super) fn pause(&mut self, still: impl FnOnce() -> bool) -> bool {
        match self.rest() {
            Rest::Over => return false,
            Rest::Awake => {}
            Rest::Sleep(nap) => self.sleep(nap, still),
        }
        true
    }

    /// Returns whether to try once more, without a pause, because another member was faster. A
    /// waiter without time tries three times.
    pub(super) fn tries_again(&mut self) -> bool {
        self.tries = self.tries.saturating_add(1);
        self.tries < Waiting::TRIES || !self.is_over()
    }

    fn is_over(&self) -> bool {
        match self.until {
            Until::Forever => false,
            Until::Time(end) => Instant::now() >= end,
            Until::Rounds(most) => self.round.saturating_add(self.tries) >= most,
        }
    }

    /// Spins or yields, or returns that it is time to sleep: for a caller that sleeps differently.
    pub(super) fn rest(&mut self) -> Rest {
        let Waiting { spins, nap, .. } = self.waiting;
        let round = self.round;
        // The clock is read seldom: sixteen spins are a microsecond or two.
        let looks = !native::<M>() || round.is_multiple_of(16) || round >= spins;
        if looks && self.is_over() {
            return Rest::Over;
        }
        self.round = round.saturating_add(1);
        // Wake-up futexes over a memory other than native belong to a proof.
        let sleeps = native::<M>() || self.member.bells().is_some();
        if !sleeps || round < spins {
            self.member.memory().spin_hint();
        } else if self.yields(round - spins) {
            std::thread::yield_now();
        } else {
            self.naps = self.naps.saturating_add(1);
            return Rest::Sleep(match self.until {
                Until::Time(end) => nap.min(end.saturating_duration_since(Instant::now())),
                _ => nap,
            });
        }
        Rest::Awake
    }

    /// Returns whether to yield once more, after `yields` times.
    fn yields(&mut self, yields: u32) -> bool {
        let most = self.waiting.yielding;
        if !native::<M>() {
            return u128::from(yields) < most.as_micros();
        }
        if self.naps > 0 || most.is_zero() {
            return false;
        }
        let now = Instant::now();
        if yields == 0 {
            // A time that the clock cannot represent means no limit.
            self.yields_until = now.checked_add(most);
            return self.yields_until.is_none()
                || NO_YIELDS_UNTIL.get().is_none_or(|end| now >= end);
        }
        let more = self.yields_until.is_none_or(|end| now < end);
        if !more && yields == 1 {
            NO_YIELDS_UNTIL.set(now.checked_add(Waiting::NO_YIELDS));
        }
        more
    }

    /// Returns whether a check of the members is worth while: after all spins, at every 64th pause.
    pub(super) fn looks_about(&self) -> bool {
        !native::<M>() || self.round >= self.waiting.spins && self.round.is_multiple_of(64)
    }

    /// Sleeps without a wake-up futex, and for longer the more often it has slept.
    pub(super) fn nap_unheard(&self, nap: Duration) {
        let times = self
            .naps
            .saturating_sub(Waiting::SHORT_NAPS)
            .clamp(1, 1 << 16);
        std::thread::sleep(nap.min(Waiting::SHORT_NAP * times));
    }

    #[cold]
    fn sleep(&self, nap: Duration, still: impl FnOnce() -> bool) {
        // A waiter that is handed the lock must be woken: all others wait for it.
        let short = native::<M>() && !self.is_next && self.naps <= Waiting::SHORT_NAPS;
        let (Some(bells), Some(flag), false) = (self.member.bells(), self.flag, short) else {
            return self.nap_unheard(nap);
        };
        let (memory, key) = (self.member.memory(), flag.raw());
        let seen = bells.read(key);
        memory.store(flag, 1u32, Ordering::Relaxed);
        // SeqCst: the flag is up before the last check. (The releaser's side has no such fence.)
        memory.fence(Ordering::SeqCst);
        if still() {
            bells.wait(key, seen, nap);
        }
    }
}

/// Lowers `flag` before the release. Returns whether the flag was up; if it was, the caller calls
/// [`ring`] after the release.
pub(super) fn lower<M: Memory>(memory: M, flag: Offset) -> bool {
    // Relaxed: the release orders both before the next owner's accesses.
    let asleep = memory.load::<u32>(flag, Ordering::Relaxed) != 0;
    if asleep {
        memory.store(flag, 0u32, Ordering::Relaxed);
    }
    asleep
}

/// Wakes the waiters that sleep at `flag`, after the release. Accesses no memory of the lock.
pub(super) fn ring<M: Memory>(member: &Member<M>, flag: Offset) {
    if let Some(bells) = member.bells() {
        bells.ring(flag.raw());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::{Generations, Instance};
    use crate::recovery::Logs;
    use outlive_memory::PersistenceDomain;

    /// Returns whether a waiter that does not spin sleeps at first, and whether it sleeps when
    /// `between` has passed.
    fn rests(yielding: Duration, between: Duration) -> [bool; 2] {
        let memory = Native::leaked(1 << 16, PersistenceDomain::Flushed);
        let generations = Generations::new(memory, Offset::new(0), 1);
        let log = Logs::new(memory, Offset::new(4096), 1).at(0);
        // SAFETY: no other code knows this memory.
        let member = unsafe { Member::assume(memory, generations, Instance::new(0, 1), log, None) };
        let waiting = Waiting {
            spins: 0,
            yielding,
            nap: Duration::from_micros(1),
        };
        let mut waiter = Waiter::new(&member, waiting, None, None);
        let mut sleeps = || matches!(waiter.rest(), Rest::Sleep(_));
        let first = sleeps();
        std::thread::sleep(between);
        [first, sleeps()]
    }

    #[test]
    fn the_clock_ends_the_yielding() {
        let (short, long) = (Duration::from_millis(1), Duration::from_secs(1000));
        assert_eq!(rests(long, short * 2), [false, false]);
        assert_eq!(rests(Duration::MAX, short * 2), [false, false]);
        assert_eq!(rests(Duration::ZERO, Duration::ZERO), [true, true]);
        assert_eq!(rests(short, short * 2), [false, true]);
        // The one yield has taken all the time: this thread does not yield for a while.
        assert_eq!(rests(short, short * 2), [true, true]);
        // A waiter that is to yield forever yields nevertheless.
        assert_eq!(rests(Duration::MAX, short * 2), [false, false]);
    }
}
