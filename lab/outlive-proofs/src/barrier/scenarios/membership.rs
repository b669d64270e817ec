//! Members join, leave and are removed, each by one change, while others do the same or wait.

use super::{act_as, barrier, changes_of, members, settle};
use outlive::sync::Waiting;
use outlive_memory::Memory;
use outlive_prove::schedule::{Scenario, Scheduled};

/// Any number of threads remove dead members, and die meanwhile: one change for each removal.
pub(super) fn two_buriers<M: Memory>(wrap: fn(Scheduled) -> M) -> Scenario {
    let bury = move |id| {
        move |m: Scheduled| {
            let weak = wrap(m);
            let member = act_as(weak, id);
            barrier(weak).bury(&member).unwrap();
        }
    };
    members("barrier, two buriers", 3)
        .mortal("t0", |m| {
            let member = act_as(m, 0);
            let mut seat = barrier(m).seat_of(&member).unwrap();
            seat.arrive().unwrap();
            seat.leave().unwrap();
        })
        .mortal_after_death("b1", bury(1))
        .after_death("b2", bury(2))
        .check(|m, end| {
            let deaths = end.deaths() as u32;
            // The first has left, or died and was removed: one change.
            settle(m, 2 - deaths.saturating_sub(1), changes_of(3, 1, deaths));
        })
}

/// Members join at the same time, and may die meanwhile.
pub(super) fn joining<M: Memory>(
    wrap: impl Fn(Scheduled) -> M + Copy + Send + Sync + 'static,
) -> Scenario {
    let join = move |id| {
        move |m: Scheduled| {
            let weak = wrap(m);
            let member = act_as(weak, id);
            let seat = barrier(weak).join(&member).unwrap();
            core::mem::forget(seat);
        }
    };
    members("barrier, joining", 0)
        .mortal("t0", join(0))
        .mortal("t1", join(1))
        .check(|m, end| {
            let member = act_as(m, 3);
            barrier(m).bury(&member).unwrap();
            let living = (0..2).filter(|id| !end.died(*id as usize)).count() as u32;
            // Of each that died: it was not counted, or it was counted and removed.
            let view = barrier(m).view().unwrap();
            assert_eq!((view.changes - u64::from(living)) % 2, 0, "{view:?}");
            settle(m, living, 2 - end.deaths() as u64..=2 + end.deaths() as u64);
        })
}

/// A member leaves while another waits; if `joins`, a third one may take the seat.
pub(super) fn leaving(name: &str, joins: bool) -> Scenario {
    let scenario = members(name, 2)
        .mortal("leaver", |m| {
            let member = act_as(m, 0);
            barrier(m).seat_of(&member).unwrap().leave().unwrap();
        })
        .thread("waiter", |m| {
            let member = act_as(m, 1);
            let mut seat = barrier(m).seat_of(&member).unwrap();
            seat.enter(Waiting::DEFAULT).unwrap();
            seat.leave().unwrap();
        });
    if !joins {
        return scenario.check(|m, _| settle(m, 0, 4..=4));
    }
    scenario
        .mortal("joiner", |m| {
            let member = act_as(m, 2);
            let mut seat = barrier(m).join(&member).unwrap();
            seat.enter(Waiting::DEFAULT).unwrap();
            seat.leave().unwrap();
        })
        // A joiner that died before it was a member has changed nothing.
        .check(|m, end| settle(m, 0, 6 - 2 * u64::from(end.died(2))..=6))
}

/// Two members leave and come back to the same seats. Settling another's step may come late.
pub(super) fn coming_back(name: &str) -> Scenario {
    let body = |id| {
        move |m: Scheduled| {
            let member = act_as(m, id);
            barrier(m).seat_of(&member).unwrap().leave().unwrap();
            core::mem::forget(barrier(m).join(&member).unwrap());
        }
    };
    members(name, 2)
        .mortal("t0", body(0))
        .mortal("t1", body(1))
        .check(|m, end| {
            let deaths = end.deaths() as u64;
            // The living have left and joined; the dead are out, and may have rejoined in between.
            let least = 2 + 2 * (2 - deaths) + deaths;
            settle(m, 2 - deaths as u32, least..=least + 2 * deaths);
        })
}
