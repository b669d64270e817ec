//! Broken variants of the barrier.

use super::{act_as, barrier, members};
use crate::barrier::fixture::{ASLEEP, CHANGE, RELEASE, WAITING};
use crate::pod::LOCK;
use outlive::sync::{Arrival, Seat, Ticket};
use outlive_memory::{Memory, Ordering};
use outlive_prove::schedule::{Scenario, Scheduled};

/// Broken: a change that does not void the waiting.
pub(super) fn keep_waiting(before: u128, after: u128) -> u128 {
    if before / CHANGE == after / CHANGE {
        after
    } else {
        after & !WAITING | before & WAITING
    }
}

/// Broken: a release does not learn of sleepers.
pub(super) fn forget_sleepers(_: u128, after: u128) -> u128 {
    after & !ASLEEP
}

/// Broken: a barrier that counts dead members, and so waits for them.
pub(super) fn counts_the_dead() -> Scenario {
    let enter = |id| {
        move |m: Scheduled| {
            let member = act_as(m, id);
            let mut seat = barrier(m).seat_of(&member).unwrap();
            match seat.arrive().unwrap() {
                Arrival::Last(ticket) => assert!(seat.release(&ticket)),
                // In place of `wait`, which removes dead members.
                Arrival::Waiting(ticket) => {
                    while seat.still(&ticket) {
                        m.spin_hint();
                    }
                }
            }
            core::mem::forget(seat);
        }
    };
    members("barrier that counts the dead", 2)
        .mortal("t0", enter(0))
        .thread("t1", enter(1))
}

/// Broken: a release that does not check whether the membership sequence is that of the arrival.
pub(super) fn blind_release(m: Scheduled, _: &mut Seat<'_, Scheduled>, _: &Ticket) -> bool {
    let seen = m.load::<u128>(LOCK, Ordering::Acquire);
    let after = (seen & !WAITING & !ASLEEP) + RELEASE;
    let order = (Ordering::AcqRel, Ordering::Relaxed);
    m.compare_exchange(LOCK, seen, after, order.0, order.1)
        .is_ok()
}
