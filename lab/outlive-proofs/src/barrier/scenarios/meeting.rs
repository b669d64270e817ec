//! A released member has met all the living; a member that judges, judges while all wait.

use super::{act_as, barrier, changes_of, get, is_dead, members, set, settle};
use core::time::Duration;
use outlive::sync::{Arrival, Outcome, Seat, Ticket, Waiting, Withdrawal};
use outlive_memory::Memory;
use outlive_prove::schedule::{Ghost, Scenario, Scheduled};

/// A member that is through has met all the living, and sees their earlier writes.
pub(super) fn meeting<M: Memory>(
    name: &str,
    threads: u32,
    wrap: impl Fn(Scheduled) -> M + Copy + Send + Sync + 'static,
) -> Scenario {
    let there = Ghost::<Vec<u32>>::new();
    let mut scenario = members(name, threads);
    for id in 0..threads {
        let there = there.clone();
        let body = move |m: Scheduled| {
            let weak = wrap(m);
            let member = act_as(weak, id);
            let mut seat = barrier(weak).seat_of(&member).unwrap();
            set(m, u64::from(id), 1);
            there.with(|there| there.push(id));
            seat.enter(Waiting::DEFAULT).unwrap();
            for other in 0..threads {
                if !is_dead(m, other) {
                    let arrived = there.with(|there| there.contains(&other));
                    assert!(arrived, "{other} has not arrived, but is alive");
                    assert_eq!(get(m, other.into()), 1, "the write of {other} is not seen");
                }
            }
            core::mem::forget(seat);
        };
        scenario = match id {
            0 | 1 => scenario.mortal(&format!("t{id}"), body),
            _ => scenario.thread(&format!("t{id}"), body),
        };
    }
    scenario.check(move |m, end| {
        let deaths = end.deaths() as u64;
        let changes = u64::from(threads) + deaths;
        settle(m, threads - deaths as u32, changes..=changes);
    })
}

/// If the word is still the same, the last member read its values while all waited: none worked.
pub(super) fn judging<M: Memory>(
    name: &str,
    wrap: impl Fn(Scheduled) -> M + Copy + Send + Sync + 'static,
) -> Scenario {
    let body = move |id: u32| {
        move |m: Scheduled| {
            let weak = wrap(m);
            let member = act_as(weak, id);
            let mut seat = barrier(weak).seat_of(&member).unwrap();
            match seat.arrive().unwrap() {
                Arrival::Last(ticket) => {
                    let others = get(m, 1 - u64::from(id));
                    if seat.still(&ticket) {
                        assert_eq!(others, 0, "judged wrongly: the other works");
                        seat.release(&ticket);
                    }
                }
                Arrival::Waiting(ticket) => {
                    let outcome = seat.wait(&ticket, Waiting::DEFAULT, None).unwrap();
                    assert_ne!(outcome, Outcome::TimedOut);
                }
            }
            // It works, and then stops.
            set(m, u64::from(id), 1);
            set(m, u64::from(id), 0);
            seat.leave().unwrap();
        }
    };
    members(name, 2)
        .mortal("t0", body(0))
        .thread("t1", body(1))
        .thread("interrupter", move |m| {
            let weak = wrap(m);
            barrier(weak).interrupt(&act_as(weak, 2)).unwrap();
        })
        // Each has left or was removed.
        .check(|m, _| settle(m, 0, 5..=5))
}

pub(super) type Release = fn(Scheduled, &mut Seat<'_, Scheduled>, &Ticket) -> bool;

pub(super) fn release(_: Scheduled, seat: &mut Seat<'_, Scheduled>, ticket: &Ticket) -> bool {
    seat.release(ticket)
}

/// After its waiting was voided, a member is not released before it has arrived again.
pub(super) fn interrupted(name: &str, release: Release) -> Scenario {
    // Whether each member waits, as far as it knows.
    let there = Ghost::<[bool; 2]>::new();
    let body = |id: usize| {
        let there = there.clone();
        move |m: Scheduled| {
            let member = act_as(m, id as u32);
            let mut seat = barrier(m).seat_of(&member).unwrap();
            let waits = |waits| there.with(|there| there[id] = waits);
            loop {
                waits(true);
                match seat.arrive().unwrap() {
                    Arrival::Last(ticket) if release(m, &mut seat, &ticket) => break,
                    Arrival::Last(_) => {}
                    Arrival::Waiting(ticket) => {
                        let outcome = seat.wait(&ticket, Waiting::DEFAULT, None).unwrap();
                        if outcome == Outcome::Released {
                            break;
                        }
                    }
                }
                waits(false);
            }
            let other = there.with(|there| there[1 - id]);
            assert!(other, "{} has not arrived, but is alive", 1 - id);
            core::mem::forget(seat);
        }
    };
    members(name, 2)
        .thread("t0", body(0))
        .thread("t1", body(1))
        .mortal("interrupter", |m| {
            barrier(m).interrupt(&act_as(m, 2)).unwrap();
        })
        .check(|m, end| settle(m, 2, 3 - end.deaths() as u64..=3))
}

/// No member overlooks new work for good, or waits for one that died while it searched for work.
pub(super) fn new_work() -> Scenario {
    let work = |id| {
        move |m: Scheduled| {
            let member = act_as(m, id);
            let mut seat = barrier(m).seat_of(&member).unwrap();
            loop {
                let moment = barrier(m).moment().unwrap();
                if get(m, 0) == 1 {
                    break;
                }
                if let Some(Arrival::Waiting(ticket) | Arrival::Last(ticket)) =
                    seat.arrive_since(moment).unwrap()
                {
                    seat.wait(&ticket, Waiting::DEFAULT, None).unwrap();
                }
            }
            core::mem::forget(seat);
        }
    };
    members("barrier, new work", 2)
        .mortal("w0", work(0))
        .thread("w1", work(1))
        .thread("submitter", |m| {
            set(m, 0, 1);
            barrier(m).interrupt(&act_as(m, 2)).unwrap();
        })
        .check(|m, end| settle(m, 2 - end.deaths() as u32, 3..=3 + end.deaths() as u64))
}

/// After its patience a member withdraws alone, and comes back; the last can rely on all others.
pub(super) fn withdrawing() -> Scenario {
    // Whether each member works.
    let busy = Ghost::<[bool; 2]>::new();
    let body = |id: usize, busy: Ghost<[bool; 2]>| {
        move |m: Scheduled| {
            let member = act_as(m, id as u32);
            let mut seat = barrier(m).seat_of(&member).unwrap();
            let works = |works| busy.with(|busy| busy[id] = works);
            let mut patience = Some(Duration::ZERO);
            loop {
                works(false);
                match seat.arrive().unwrap() {
                    Arrival::Last(ticket) => {
                        let works = busy.with(|busy| busy[1 - id]);
                        let other_works = works && !is_dead(m, 1 - id as u32);
                        if seat.still(&ticket) {
                            assert!(!other_works, "the other works");
                            assert!(
                                seat.release(&ticket),
                                "only the last member can release the barrier"
                            );
                            break;
                        }
                    }
                    Arrival::Waiting(ticket) => {
                        let mut outcome = seat.wait(&ticket, Waiting::DEFAULT, patience).unwrap();
                        if outcome == Outcome::TimedOut {
                            patience = None;
                            outcome = match seat.withdraw(&ticket).unwrap() {
                                Withdrawal::Released => Outcome::Released,
                                Withdrawal::Complete => {
                                    seat.wait(&ticket, Waiting::DEFAULT, None).unwrap()
                                }
                                _ => Outcome::Changed,
                            };
                        }
                        if outcome == Outcome::Released {
                            break;
                        }
                    }
                }
                works(true);
            }
            core::mem::forget(seat);
        }
    };
    members("barrier, withdrawing", 2)
        .mortal("t0", body(0, busy.clone()))
        .thread("t1", body(1, busy))
        .check(|m, end| {
            let deaths = end.deaths() as u32;
            settle(m, 2 - deaths, changes_of(2, u64::from(deaths), deaths));
        })
}
