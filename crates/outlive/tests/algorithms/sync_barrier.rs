//! Threads meet at a barrier repeatedly, while some of them die, leave and come back; and errors of
//! a damaged barrier.

use crate::pod;
use crate::pod::{DATA, IDS, LOCK, Pod, native};
use outlive::membership::Instance;
use outlive::memory::{Memory, Native, Offset, Ordering, PersistenceDomain};
use outlive::sync::{Arrival, BarrierError, GroupBarrier, Outcome, Waiting, Withdrawal};
use proptest::prelude::*;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

fn barrier(memory: Native) -> GroupBarrier {
    GroupBarrier::new(memory, LOCK, IDS)
}

const SOON: Waiting = Waiting {
    spins: 50,
    yielding: Duration::from_micros(20),
    nap: Duration::from_micros(200),
};

/// All write, all meet, all read what all wrote; and meet again before any writes.
#[test]
fn who_has_met_sees_what_all_did() {
    const ROUNDS: u64 = 2000;
    let memory = native();
    let lasts = AtomicU64::new(0);
    let seated = std::sync::Barrier::new(IDS as usize);
    std::thread::scope(|scope| {
        for id in 0..IDS {
            let (lasts, seated) = (&lasts, &seated);
            scope.spawn(move || {
                let pod = Pod::new(memory);
                let member = pod.join(id);
                let mut seat = barrier(memory).join(&member).unwrap();
                seated.wait();
                for round in 1..=ROUNDS {
                    pod.set(id.into(), round);
                    lasts.fetch_add(seat.enter(SOON).unwrap().into(), SeqCst);
                    for other in 0..IDS {
                        assert_eq!(pod.get(other.into()), round, "{other} as {id} sees it");
                    }
                    lasts.fetch_add(seat.enter(SOON).unwrap().into(), SeqCst);
                }
                // Together, so that no thread waits for one that has left.
                seated.wait();
                seat.leave().unwrap();
                pod.leave(member);
            });
        }
    });
    let view = barrier(memory).view().unwrap();
    assert_eq!(lasts.into_inner(), 2 * ROUNDS, "one was the last each time");
    assert_eq!(
        (view.releases, view.changes),
        (2 * ROUNDS, 2 * u64::from(IDS))
    );
    assert_eq!((view.members, view.waiting), (0, 0));
}

/// Three meet forever while the fourth dies at the barrier, before it or after it, comes back and
/// dies again: the rounds go on, and every coming and going is one change.
#[test]
fn rounds_go_on_while_a_member_dies_and_comes_back() {
    const LIVES: u64 = 300;
    let memory = native();
    let pod = Pod::new(memory);
    let done = AtomicU64::new(0);
    let rounds = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for id in 0..3 {
            let (done, rounds) = (&done, &rounds);
            scope.spawn(move || {
                let pod = Pod::new(memory);
                let member = pod.join(id);
                let mut seat = barrier(memory).join(&member).unwrap();
                while done.load(SeqCst) == 0 {
                    rounds.fetch_add(u64::from(seat.enter(SOON).unwrap()), SeqCst);
                }
                seat.leave().unwrap();
            });
        }
        for life in 0..LIVES {
            let member = pod.join(3);
            let mut seat = barrier(memory).join(&member).unwrap();
            match life % 4 {
                // Before it arrives, while it waits (or is the last), and after it was released.
                0 => {}
                1 => drop(seat.arrive().unwrap()),
                2 => drop(seat.enter(SOON).unwrap()),
                _ => {
                    let moment = barrier(memory).moment().unwrap();
                    seat.interrupt().unwrap();
                    assert_eq!(seat.arrive_since(moment).unwrap(), None);
                }
            }
            core::mem::forget(seat);
            pod.declare_dead(3);
            // Waiters find and vacate its seat.
            let dead = member.instance();
            let until = Instant::now() + Duration::from_secs(20);
            while barrier(memory).occupants().any(|(_, who)| who == dead) {
                assert!(
                    Instant::now() < until,
                    "the death of {dead} is not finalised"
                );
                std::thread::yield_now();
            }
            pod.recoverers.recover(&pod.act_as(0), 3).unwrap();
        }
        done.store(1, SeqCst);
    });
    let view = barrier(memory).view().unwrap();
    let interrupts = LIVES / 4;
    assert_eq!(view.changes, 2 * (3 + LIVES) + interrupts, "{view:?}");
    assert_eq!((view.members, view.waiting), (0, 0));
    assert!(barrier(memory).check(pod.generations).is_clean());
    println!("{} rounds, {LIVES} deaths", rounds.into_inner());
}

/// Workers find submitted units, each once, and sleep in between; the last one to arrive finds
/// nothing left.
#[test]
fn what_is_submitted_is_done_before_the_last_one_says_so() {
    const UNITS: u64 = 2000;
    let memory = native();
    let judged = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for id in 0..3 {
            let judged = &judged;
            scope.spawn(move || {
                let pod = Pod::new(memory);
                let member = pod.join(id);
                let mut seat = barrier(memory).join(&member).unwrap();
                loop {
                    let moment = barrier(memory).moment().unwrap();
                    let [made, taken, done] = [DATA, DATA + 128, DATA + 256];
                    let next: u64 = memory.load(taken, Ordering::Acquire);
                    if next < memory.load(made, Ordering::Acquire) {
                        let order = (Ordering::AcqRel, Ordering::Relaxed);
                        let mine = memory.compare_exchange(taken, next, next + 1, order.0, order.1);
                        if mine.is_ok() {
                            memory.fetch_add(done, 1u64, Ordering::Relaxed);
                        }
                        continue;
                    }
                    let Some(arrival) = seat.arrive_since(moment).unwrap() else {
                        continue;
                    };
                    match arrival {
                        Arrival::Last(ticket) => {
                            let seen: [u64; 3] =
                                [taken, done, made].map(|at| memory.load(at, Ordering::Relaxed));
                            if seat.still(&ticket) {
                                assert_eq!(seen[0], seen[1], "a member still works");
                                judged.fetch_add(1, SeqCst);
                                if seen[2] == UNITS && seen[1] == UNITS {
                                    assert!(seat.release(&ticket));
                                    break;
                                }
                                // Nothing to do: all sleep until a unit is submitted.
                                let outcome = seat.wait(&ticket, SOON, None).unwrap();
                                assert_eq!(outcome, Outcome::Changed);
                            }
                        }
                        Arrival::Waiting(ticket) => {
                            let patience = Some(Duration::from_micros(300));
                            let mut outcome = seat.wait(&ticket, SOON, patience).unwrap();
                            while outcome == Outcome::TimedOut {
                                outcome = match seat.withdraw(&ticket).unwrap() {
                                    Withdrawal::Complete => {
                                        seat.wait(&ticket, SOON, patience).unwrap()
                                    }
                                    Withdrawal::Released => Outcome::Released,
                                    _ => Outcome::Changed,
                                };
                            }
                            if outcome == Outcome::Released {
                                break;
                            }
                        }
                    }
                }
                core::mem::forget(seat);
            });
        }
        let pod = Pod::new(memory);
        let submitter = pod.join(3);
        for unit in 0..UNITS {
            memory.fetch_add(DATA, 1u64, Ordering::Release);
            barrier(memory).interrupt(&submitter).unwrap();
            if unit % 16 == 0 {
                std::thread::sleep(Duration::from_micros(100));
            }
        }
    });
    assert_eq!(Pod::new(memory).get(32), UNITS);
    let view = barrier(memory).view().unwrap();
    assert_eq!((view.changes, view.releases), (3 + UNITS, 1));
    println!("judged {} times", judged.into_inner());
}

#[test]
fn a_seat_is_had_once_and_the_seats_of_the_gone_are_had_again() {
    let memory = native();
    let pod = Pod::new(memory);
    let members: Vec<_> = (0..IDS).map(|id| pod.join(id)).collect();
    let two = GroupBarrier::new(memory, LOCK, 2);
    let first = two.join(&members[0]).unwrap();
    let error = two.join(&members[0]).unwrap_err();
    assert!(matches!(error, BarrierError::AlreadySeated { seat: 0, .. }));
    let second = two.join(&members[1]).unwrap();
    let error = two.join(&members[2]).unwrap_err();
    assert_eq!(
        error,
        BarrierError::Full {
            barrier: LOCK,
            seats: 2
        }
    );
    core::mem::forget(second);
    pod.declare_dead(1);
    let third = two.join(&members[2]).unwrap();
    assert_eq!((third.number(), two.view().unwrap().members), (1, 2));
    // A panic leaves the barrier in good order.
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _third = third;
        std::panic::resume_unwind(Box::new(()));
    }));
    assert!(panicked.is_err());
    let seated: Vec<_> = two.occupants().collect();
    assert_eq!(seated, [(0, Instance::new(0, 1))]);
    drop(first);
    let view = two.view().unwrap();
    assert_eq!((view.members, view.changes), (0, 6));
}

#[test]
fn an_arrival_counts_once_and_only_the_last_can_go_away_when_all_wait() {
    let memory = native();
    let pod = Pod::new(memory);
    let members: Vec<_> = (0..2).map(|id| pod.join(id)).collect();
    let [mut a, mut b] = [0, 1].map(|id| barrier(memory).join(&members[id]).unwrap());
    let Arrival::Waiting(first) = a.arrive().unwrap() else {
        panic!("b has not arrived");
    };
    assert_eq!(a.arrive().unwrap(), Arrival::Waiting(first));
    assert!(!a.release(&first), "not the last");
    let at_once = Some(Duration::ZERO);
    assert_eq!(a.wait(&first, SOON, at_once).unwrap(), Outcome::TimedOut);
    let Arrival::Last(last) = b.arrive().unwrap() else {
        panic!("all have arrived");
    };
    assert_eq!(a.withdraw(&first).unwrap(), Withdrawal::Complete);
    assert!(b.still(&last) && a.still(&first));
    assert_eq!(b.withdraw(&last).unwrap(), Withdrawal::Withdrawn);
    assert!(
        !b.still(&last) && !b.release(&last),
        "it has not arrived any more"
    );
    assert_eq!(a.withdraw(&first).unwrap(), Withdrawal::Withdrawn);
    assert_eq!(barrier(memory).view().unwrap().waiting, 0);
    let Arrival::Waiting(_) = b.arrive().unwrap() else {
        panic!("a has not arrived");
    };
    let Arrival::Last(new) = a.arrive().unwrap() else {
        panic!("all have arrived");
    };
    assert!(!b.release(&last), "b was the last once, and is not now");
    assert!(a.release(&new) && !a.release(&new));
    assert_eq!(a.wait(&first, SOON, None).unwrap(), Outcome::Released);
    let view = barrier(memory).view().unwrap();
    assert_eq!((view.releases, view.waiting), (1, 0));
}

/// No content of a barrier's place makes it hang or reach elsewhere: it is refused by name.
#[test]
fn a_damaged_barrier_is_reported() {
    let memory = native();
    let pod = Pod::new(memory);
    let members: Vec<_> = (0..3).map(|id| pod.join(id)).collect();
    let sound = barrier(memory);
    let seats: Vec<_> = members[..2]
        .iter()
        .map(|member| sound.join(member).unwrap())
        .collect();
    assert!(sound.check(pod.generations).is_clean());
    let word: u128 = memory.load(LOCK, Ordering::Relaxed);
    for (bad, what) in [
        (word & !(0x1FFF << 13), "but 2 seats are taken"),
        (word | 0x1FFF << 13, "more members than it has seats"),
        (word | 3, "more waiting members than members"),
        (word | 0xFFF << 26, "a seat that does not exist"),
        (word | 3 << 38, "its last change of members is invalid"),
    ] {
        memory.store(LOCK, bad, Ordering::Relaxed);
        let report = sound.check(pod.generations);
        let said = report
            .findings
            .iter()
            .any(|finding| finding.what.contains(what));
        assert!(said, "{what}: {report:?}");
        if what != "but 2 seats are taken" {
            let error = sound.join(&members[2]).unwrap_err();
            assert!(error.to_string().contains(what), "{error}");
            assert!(sound.interrupt(&members[2]).is_err() && sound.view().is_err());
            assert_eq!(sound.occupants().count(), 2, "the claim is taken back");
        }
    }
    // All wait, but one member has not arrived.
    memory.store(LOCK, word | 2, Ordering::Relaxed);
    let [mut seat, _other] = <[_; 2]>::try_from(seats).unwrap();
    let error = seat.arrive().unwrap_err();
    assert!(error.to_string().contains("has not arrived"), "{error}");
    memory.store(LOCK, word, Ordering::Relaxed);
    let slot = LOCK + 128 + 16;
    let kept: u128 = memory.load(slot, Ordering::Relaxed);
    for (bad, what) in [
        (kept | 3 << 64, "neither vacant nor claimed nor taken"),
        (kept & !(3 << 64), "a vacant seat has an occupant"),
        (kept >> 64 << 64 | 7, "a seat's occupant is not an instance"),
        (kept | 77, "is not an instance of this pod"),
        (
            memory.load(slot + 16 - 32, Ordering::Relaxed),
            "has two seats",
        ),
    ] {
        memory.store(slot, bad, Ordering::Relaxed);
        let report = sound.check(pod.generations);
        let buried = sound.bury(&members[2]);
        let mut said: Vec<_> = report
            .findings
            .iter()
            .map(|finding| finding.what.clone())
            .collect();
        said.extend(buried.err().map(|error| error.to_string()));
        assert!(
            said.iter().any(|said| said.contains(what)),
            "{what}: {said:?}"
        );
        memory.store(LOCK, word, Ordering::Relaxed);
        memory.store(slot, kept, Ordering::Relaxed);
    }
    for (at, seats) in [
        (LOCK + 8, 4),
        (LOCK, 0),
        (LOCK, 4097),
        (Offset::new(pod::SIZE - 128), 1),
    ] {
        let error = GroupBarrier::open(memory, at, seats).unwrap_err();
        assert!(matches!(error, BarrierError::Misplaced { .. }), "{error}");
    }
    let write_back = Native::leaked(4096, PersistenceDomain::WriteBack);
    assert!(GroupBarrier::open(write_back, Offset::new(0), 4).is_err());
}

proptest! {
    /// With any words in that place, no thread hangs, and nothing outside is written.
    #[test]
    fn any_words_are_refused_or_used(
        word in prop_oneof![any::<u128>(), (0u128..1 << 41, 0u128..1 << 20).prop_map(|(low, high)| high << 81 | low)],
        members in 0u128..6, waiting in 0u128..6, counts: bool,
        slots in prop::collection::vec((0u128..6, 0u128..3, 0u128..3, 0u128..5), IDS as usize),
    ) {
        let memory = Native::leaked(pod::SIZE, PersistenceDomain::Flushed);
        let pod = Pod::new(memory);
        let members_of_pod: Vec<_> = (0..IDS).map(|id| pod.join(id)).collect();
        pod.declare_dead(2);
        let word = if counts { word & !((1 << 26) - 1) | members << 13 | waiting } else { word };
        memory.store(LOCK, word, Ordering::Relaxed);
        for (seat, (id, generation, phase, turn)) in slots.into_iter().enumerate() {
            let slot = (turn << 2 | phase) << 64 | generation << 32 | id;
            memory.store(LOCK + 128 + 16 * seat as u64, slot, Ordering::Relaxed);
        }
        let barrier = barrier(memory);
        let report = barrier.check(pod.generations);
        prop_assert!(report.at_rest);
        let member = &members_of_pod[0];
        let mut seat = barrier.seat_of(member).or_else(|| barrier.join(member).ok());
        let _ = barrier.bury(&members_of_pod[1]);
        if let Some(seat) = &mut seat
            && let Ok(Arrival::Waiting(ticket) | Arrival::Last(ticket)) = seat.arrive()
        {
            let _ = seat.still(&ticket);
            let _ = seat.wait(&ticket, SOON, Some(Duration::ZERO));
            let _ = seat.withdraw(&ticket);
            let _ = seat.release(&ticket);
        }
        let _ = barrier.interrupt(member);
        drop(seat);
        let end = LOCK + GroupBarrier::<Native>::bytes(IDS);
        prop_assert_eq!(memory.load::<u64>(end, Ordering::Relaxed), 0);
        prop_assert_eq!(memory.load::<u64>(Offset::new(LOCK.raw() - 8), Ordering::Relaxed), 0);
    }
}
