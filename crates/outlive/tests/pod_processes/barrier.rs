//! Processes meet at a barrier, and are killed while others wait for them.

use crate::{Scene, await_that, settings};
use outlive::membership::Process;
use outlive::memory::{Memory, Offset, Ordering};
use outlive::pod::Pod;
use outlive::sync::{Arrival, GroupBarrier, Outcome, Waiting};
use std::time::{Duration, Instant};

const SEATS: u32 = 8;

fn barrier_at(pod: &Pod) -> GroupBarrier {
    let at = pod.payload().expect("payload").offset + 16384;
    GroupBarrier::open(pod.segment().memory(), at, SEATS).expect("enough free space")
}

/// Where the child on `host` counts the rounds that it has begun.
fn rounds_at(pod: &Pod, host: u32) -> Offset {
    pod.payload().expect("payload").offset + 8192 + u64::from(host) * 128
}

/// Meets the others again and again, until it is killed.
pub fn meet(pod: &Pod, process: &Process) {
    let member = process.enter(None, "guest").expect("a thread joins");
    let mut seat = barrier_at(pod).join(&member).expect("a seat");
    let at = rounds_at(pod, process.host().id);
    loop {
        member.memory().fetch_add(at, 1u64, Ordering::Relaxed);
        seat.enter(Waiting::DEFAULT).expect("a sound barrier");
    }
}

/// Takes a seat and never arrives.
pub fn sit(pod: &Pod, process: &Process) {
    let member = process.enter(None, "idler").expect("a thread joins");
    let _seat = barrier_at(pod).join(&member).expect("a seat");
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}

#[test]
fn who_waits_for_a_killed_process_is_told_to_help() {
    let mut scene = Scene::new(settings());
    let process = scene.join(0);
    let member = process.enter(None, "waiter").expect("a thread joins");
    let barrier = barrier_at(&scene.pod);
    let mut seat = barrier.join(&member).expect("a seat");
    let mut longest = Duration::ZERO;
    for host in 1..=5 {
        let child = scene.child("sit", host);
        await_that("the child has a seat", || {
            barrier.view().is_ok_and(|view| view.members == 2)
        });
        let Arrival::Waiting(ticket) = seat.arrive().expect("a sound barrier") else {
            panic!("the child has not arrived");
        };
        // The others wait for it while it lives, in vain, and asleep.
        let patience = Some(Duration::from_millis(20));
        let outcome = seat.wait(&ticket, Waiting::DEFAULT, patience);
        assert_eq!(outcome, Ok(Outcome::TimedOut));
        let killed = Instant::now();
        scene.kill(child);
        let outcome = seat.wait(&ticket, Waiting::DEFAULT, None);
        assert_eq!(outcome, Ok(Outcome::Changed));
        longest = longest.max(killed.elapsed());
        let Arrival::Last(ticket) = seat.arrive().expect("a sound barrier") else {
            panic!("a dead member is waited for");
        };
        assert!(seat.release(&ticket));
        scene.children[child].wait().expect("it is dead");
    }
    println!("from the kill to the end of the wait: at most {longest:?}");
    let view = barrier.view().expect("a sound barrier");
    assert_eq!((view.members, view.changes, view.releases), (1, 11, 5));
    assert!(barrier.check(member.generations()).is_clean());
    seat.leave().expect("a sound barrier");
    scene.assert_sound();
}

#[test]
fn a_party_goes_on_although_its_guests_are_killed() {
    const HOSTS: u32 = 3;
    const KILLS: u32 = 12;
    let mut scene = Scene::new(settings());
    let process = scene.join(0);
    let member = process.enter(None, "host").expect("a thread joins");
    let memory = member.memory();
    let barrier = barrier_at(&scene.pod);
    let mut seat = barrier.join(&member).expect("a seat");
    let mut guests: Vec<_> = (1..=HOSTS).map(|host| scene.child("meet", host)).collect();
    let mut rounds = 0u64;
    let mut meet_until = |what: &str, holds: &dyn Fn() -> bool| {
        let until = Instant::now() + crate::PATIENCE;
        while !holds() {
            assert!(Instant::now() < until, "not in time: {what}");
            seat.enter(Waiting::DEFAULT).expect("a sound barrier");
            rounds += 1;
        }
    };
    let members = || barrier.view().expect("a sound barrier").members;
    for kill in 0..KILLS {
        meet_until("all are there", &|| members() == HOSTS + 1);
        let host = 1 + kill % HOSTS;
        let begun = || memory.load::<u64>(rounds_at(&scene.pod, host), Ordering::Relaxed);
        // Some meetings later, at an arbitrary instruction.
        let target = begun() + 50 + u64::from(kill);
        meet_until("the victim takes part", &|| begun() >= target);
        let victim = guests[host as usize - 1];
        scene.kill(victim);
        meet_until("the victim's death is finalised", &|| members() <= HOSTS);
        scene.children[victim].wait().expect("it is dead");
        guests[host as usize - 1] = scene.child("meet", host);
    }
    meet_until("all are there", &|| members() == HOSTS + 1);
    for guest in guests {
        scene.kill(guest);
    }
    meet_until("all guests are gone", &|| members() == 1);
    println!("{rounds} rounds, {KILLS} kills");
    let view = barrier.view().expect("a sound barrier");
    // Each guest came once and went once, and the last of them too.
    let guests = u64::from(HOSTS + KILLS);
    assert_eq!(view.changes, 1 + 2 * guests, "{view:?}");
    let report = barrier.check(member.generations());
    assert!(report.is_clean() && report.at_rest, "{report:?}");
    seat.leave().expect("a sound barrier");
    scene.assert_sound();
}
