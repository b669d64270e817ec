//! Sleepers are woken, through wake-up futexes of the scenarios' own that have no time-outs.

use super::{barrier, members, settle};
use crate::pod::{LOCK, Pod};
use core::time::Duration;
use outlive::host::Bells;
use outlive::membership::{Instance, Member};
use outlive::sync::Waiting;
use outlive_memory::{Memory, Offset, Ordering};
use outlive_prove::schedule::{Scenario, Scheduled};
use std::sync::OnceLock;

/// Wake-up futexes without time-outs: no sleeper wakes by itself.
#[derive(Debug)]
struct Woken(Scheduled);

const BELL: Offset = Offset::new(LOCK.raw() + 512);

impl Bells for Woken {
    fn read(&self, _key: u64) -> u32 {
        self.0.load(BELL, Ordering::Acquire)
    }

    fn wait(&self, _key: u64, seen: u32, _timeout: Duration) {
        while self.0.load::<u32>(BELL, Ordering::Relaxed) == seen {
            self.0.spin_hint();
        }
    }

    fn ring(&self, _key: u64) {
        self.0.fetch_add(BELL, 1u32, Ordering::AcqRel);
    }
}

/// Returns the member `id`, which sleeps at once when it waits.
fn sleeper<M: Memory>(m: Scheduled, memory: M, id: u32) -> Member<M> {
    let pod = Pod::new(memory);
    let instance = Instance::new(id, pod.generations.current(id));
    static BELLS: OnceLock<Woken> = OnceLock::new();
    let bells = BELLS.get_or_init(|| Woken(m));
    // SAFETY: as in the fixture: one thread acts as the instance, and it is dead when it has
    // stopped.
    unsafe {
        Member::assume(
            memory,
            pod.generations,
            instance,
            pod.logs.at(id),
            Some(bells as &dyn Bells),
        )
    }
}

const AT_ONCE: Waiting = Waiting {
    spins: 0,
    yielding: Duration::ZERO,
    nap: Duration::from_secs(1),
};

/// No wake-up is missed: by a release, a change or an interrupt.
pub(super) fn sleeping<M: Memory>(
    name: &str,
    wrap: impl Fn(Scheduled) -> M + Copy + Send + Sync + 'static,
) -> Scenario {
    let enter = move |id| {
        move |m: Scheduled| {
            let member = sleeper(m, wrap(m), id);
            let mut seat = barrier(wrap(m)).seat_of(&member).unwrap();
            seat.enter(AT_ONCE).unwrap();
            core::mem::forget(seat);
        }
    };
    members(name, 2)
        .thread("t0", enter(0))
        .thread("t1", enter(1))
        .thread("interrupter", move |m| {
            let member = sleeper(m, wrap(m), 2);
            barrier(wrap(m)).interrupt(&member).unwrap();
        })
        .check(|m, _| settle(m, 2, 3..=3))
}

/// A thread that removes a dead member wakes those that the dead member should have woken.
pub(super) fn unrung() -> Scenario {
    members("barrier, unrung", 2)
        .mortal("t0", |m| {
            let member = sleeper(m, m, 0);
            let mut seat = barrier(m).seat_of(&member).unwrap();
            seat.enter(AT_ONCE).unwrap();
            core::mem::forget(seat);
        })
        .thread("t1", |m| {
            let member = sleeper(m, m, 1);
            let mut seat = barrier(m).seat_of(&member).unwrap();
            seat.enter(AT_ONCE).unwrap();
            core::mem::forget(seat);
        })
        .after_death("burier", |m| {
            barrier(m).bury(&sleeper(m, m, 2)).unwrap();
        })
        .check(|m, end| {
            let deaths = end.deaths() as u64;
            settle(m, 2 - deaths as u32, 2 + deaths..=2 + deaths);
        })
}
