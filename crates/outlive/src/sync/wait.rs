//! How one waits for the living: spin, then yield, then sleep.
//!
//! Spinning is best while the holder runs on another core; with more waiters than cores the holder may be
//! waiting for ours, so yield; and who has waited for long had better sleep. A sleeper raises a flag. The
//! releaser reads and lowers it just before it releases, and rings the lock's bell afterwards. To read the flag
//! after the release would take a fence that costs as much as the release itself. So a ring can be
//! missed, which costs the sleeper the rest of its nap and nothing else.
//! The flag is no count, so a sleeper that dies leaves at most one needless ring.
//!
//! *A released lock is not accessed.* Its next owner may free the memory that it is in, so the releaser neither
//! reads nor writes the flag after the release, and a bell is rung by its key alone. A survivor that releases a
//! dead owner's lock cannot lower the flag before, because the lock may be another's by then; it leaves the flag and
//! always rings. A waiter raises the flag of a lock that it is about to acquire: to free that lock is an error of
//! the program, as it is with any lock. The node of a queue lock, which has a flag too, is in a log and never freed.

use crate::membership::Member;
use core::any::TypeId;
use core::time::Duration;
use outlive_memory::{Memory, Native, Offset, Ordering};
use std::time::Instant;

/// How long one spins and yields before one sleeps, and for how long at most one sleeps at a time.
///
/// Over a memory other than [`Native`] a waiter without bells does nothing but
/// [`spin_hint`](outlive_memory::Memory::spin_hint), and each hint counts as a microsecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// How often to spin. (The first hundred times nobody looks whether the holder lives.)
    pub spins: u32,
    /// How often to give the core away, after that.
    pub yields: u32,
    /// How long to sleep at a time, after that: the cost of a missed ring, and the longest that a
    /// sleeper overlooks a death.
    pub nap: Duration,
}

impl Waiting {
    /// The default: some microseconds of spinning, then some hundred of yielding (or as many time slices,
    /// where cores are wanted), then naps of up to a millisecond.
    pub const DEFAULT: Self = Self {
        spins: 100,
        yields: 1000,
        nap: Duration::from_millis(1),
    };
    /// How often a waiter spins at most before it first looks whether the holder lives.
    const BLIND: u32 = 100;
    /// Where there are no bells nobody wakes a sleeper, so its first naps are short.
    const FIRST_UNHEARD_NAP: Duration = Duration::from_micros(20);
}

/// For what is held for a moment only.
pub(super) const NEVER_SLEEP: Waiting = Waiting {
    yields: u32::MAX,
    ..Waiting::DEFAULT
};

impl Default for Waiting {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// One wait for one lock.
pub(super) struct Waiter<'m, M: Memory> {
    member: &'m Member<M>,
    waiting: Waiting,
    /// The flag that says that somebody sleeps; its place is also the bell's key.
    flag: Offset,
    round: u32,
    until: Until,
}

enum Until {
    Forever,
    Time(Instant),
    Rounds(u32),
}

/// What a waiter did for a moment, or is to do.
pub(super) enum Rest {
    /// The time is up.
    Over,
    /// It span or yielded.
    Awake,
    /// It is to sleep, at most for so long.
    Sleep(Duration),
}

fn native<M: Memory>() -> bool {
    TypeId::of::<M>() == TypeId::of::<Native>()
}

impl<'m, M: Memory> Waiter<'m, M> {
    pub(super) fn new(
        member: &'m Member<M>,
        waiting: Waiting,
        flag: Offset,
        timeout: Option<Duration>,
    ) -> Self {
        let until = match timeout {
            None => Until::Forever,
            // A time that no clock reaches is for ever.
            Some(timeout) if native::<M>() => Instant::now()
                .checked_add(timeout)
                .map_or(Until::Forever, Until::Time),
            Some(timeout) => Until::Rounds(u32::try_from(timeout.as_micros()).unwrap_or(u32::MAX)),
        };
        Self {
            member,
            waiting,
            flag,
            round: 0,
            until,
        }
    }

    /// Sleeps from now on at this flag.
    pub(super) fn watch(&mut self, flag: Offset) {
        self.flag = flag;
    }

    /// Spins, if it is not yet time for more, and says so: whoever holds the lock for a moment only is waited
    /// for without a look at whether it lives. Never where time is counted, or in the memories of the proofs.
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

    /// Waits for a moment, as long as `still` finds that there is something to wait for. `false` when the
    /// time is up.
    pub(super) fn pause(&mut self, still: impl FnOnce() -> bool) -> bool {
        match self.rest() {
            Rest::Over => return false,
            Rest::Awake => {}
            Rest::Sleep(nap) => self.sleep(nap, still),
        }
        true
    }

    /// Spins or yields, or says that it is time to sleep, for whoever sleeps in a way of its own.
    pub(super) fn rest(&mut self) -> Rest {
        let Waiting { spins, yields, nap } = self.waiting;
        let round = self.round;
        self.round = round.saturating_add(1);
        match self.until {
            Until::Rounds(most) if round >= most => return Rest::Over,
            // The clock is read seldom: sixteen spins are a microsecond or two.
            Until::Time(end)
                if (round.is_multiple_of(16) || round >= spins) && Instant::now() >= end =>
            {
                return Rest::Over;
            }
            _ => {}
        }
        // Bells over another memory than native are a proof's own.
        let sleeps = native::<M>() || self.member.bells().is_some();
        if !sleeps || round < spins {
            self.member.memory().spin_hint();
        } else if round - spins < yields {
            std::thread::yield_now();
        } else {
            return Rest::Sleep(match self.until {
                Until::Time(end) => nap.min(end.saturating_duration_since(Instant::now())),
                _ => nap,
            });
        }
        Rest::Awake
    }

    /// Whether this many spins are over, so that it is worth while to look about; then at every 64th pause.
    pub(super) fn looks_about(&self) -> bool {
        !native::<M>() || self.round >= self.waiting.spins && self.round.is_multiple_of(64)
    }

    /// Sleeps where nobody rings: the longer, the longer it has slept.
    pub(super) fn nap_unheard(&self, nap: Duration) {
        let naps = self.round - self.waiting.spins - self.waiting.yields;
        let longer = Waiting::FIRST_UNHEARD_NAP.saturating_mul(naps.min(1 << 16));
        std::thread::sleep(nap.min(longer));
    }

    #[cold]
    fn sleep(&self, nap: Duration, still: impl FnOnce() -> bool) {
        let Some(bells) = self.member.bells() else {
            return self.nap_unheard(nap);
        };
        let (memory, key) = (self.member.memory(), self.flag.raw());
        let seen = bells.read(key);
        memory.store(self.flag, 1u64, Ordering::Relaxed);
        // SeqCst: the flag is up before we look a last time. (The releaser's side has no such fence.)
        memory.fence(Ordering::SeqCst);
        if still() {
            bells.wait(key, seen, nap);
        }
    }
}

/// Lowers `flag`, before the release, and returns whether it was up: then [`ring`] after the release.
pub(super) fn lower<M: Memory>(memory: M, flag: Offset) -> bool {
    // Relaxed: the release orders both before the next owner's accesses.
    let asleep = memory.load::<u64>(flag, Ordering::Relaxed) != 0;
    if asleep {
        memory.store(flag, 0u64, Ordering::Relaxed);
    }
    asleep
}

/// Wakes those that sleep at `flag`, after the release. Accesses no memory of the lock.
pub(super) fn ring<M: Memory>(member: &Member<M>, flag: Offset) {
    if let Some(bells) = member.bells() {
        bells.ring(flag.raw());
    }
}
