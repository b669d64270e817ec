//! The group barrier, with deaths; and broken variants, each of which an exploration must find.

mod asleep;
mod broken;
mod meeting;
mod membership;

use crate::barrier::fixture::forget_step;
use crate::pod::{DATA, IDS, LOCK, Pod, SIZE};
use asleep::{sleeping, unrung};
use broken::{blind_release, counts_the_dead, forget_sleepers, keep_waiting};
use meeting::{interrupted, judging, meeting, new_work, release, withdrawing};
use membership::{coming_back, joining, leaving, two_buriers};
use outlive::membership::Member;
use outlive::sync::GroupBarrier;
use outlive_memory::{Memory, Ordering};
use outlive_prove::proof::Proof;
use outlive_prove::schedule::{self, Bounds, Scenario, Scheduled};
use outlive_prove::weakened::{Weakened, Weakness};

/// The scenarios of this file.
pub fn all() -> Vec<Proof> {
    let every = |scenario, deaths| {
        let (quick, full) = (bounds().deaths(deaths), Bounds::default().deaths(deaths));
        Proof::of_every(scenario, quick, full)
    };
    let drawn = |scenario, executions| {
        let bounds = Bounds::default().preemptions(5).stale_reads(3).deaths(2);
        Proof::of_some(scenario, bounds, executions, 100 * executions)
    };
    vec![
        every(meeting("barrier, two meet", 2, sound), 2),
        drawn(meeting("barrier, three meet", 3, sound), 10_000),
        every(judging("barrier, the last one judges", sound), 1),
        drawn(judging("barrier, the last of some judges", sound), 10_000),
        every(interrupted("barrier, interrupted", release), 1),
        every(two_buriers(sound), 2),
        every(joining(sound), 2),
        every(leaving("barrier, leaving", false), 1),
        drawn(leaving("barrier, leaving and joining", true), 20_000),
        every(coming_back("barrier, coming back"), 2),
        // A late thread must be preempted twice to be late by a whole turn.
        Proof::of_every(
            coming_back("barrier, coming back, all alive"),
            bounds().preemptions(2).deaths(0),
            Bounds::default().preemptions(3).deaths(0),
        ),
        every(new_work(), 1),
        // One is preempted before it withdraws, the other while it judges.
        Proof::of_every(
            withdrawing(),
            bounds().preemptions(2),
            Bounds::default().preemptions(3),
        ),
        every(sleeping("barrier, asleep", sound), 0),
        every(unrung(), 1),
    ]
}

/// Returns scenarios that must fail within these bounds, each with a part of the message.
pub fn broken() -> Vec<(Scenario, Bounds, &'static str)> {
    let weak = |what| move |memory| Weakened::new(memory, what);
    let keeps = weak(Weakness::Rewrites(LOCK, keep_waiting));
    let forgets = weak(Weakness::Rewrites(LOCK, forget_step));
    let silent = weak(Weakness::Rewrites(LOCK, forget_sleepers));
    let no_release = weak(Weakness::Fences(Ordering::Release));
    let no_acquire = weak(Weakness::Fences(Ordering::Acquire));
    vec![
        (counts_the_dead(), bounds(), "no thread "),
        (
            meeting("barrier that keeps the waiting count", 3, keeps),
            bounds().executions(2_000_000),
            "",
        ),
        (
            // A member that is not released with the other one waits for it.
            interrupted("barrier with a blind release", blind_release),
            bounds().deaths(0),
            "no thread ",
        ),
        (joining(forgets), bounds(), ""),
        (
            sleeping("barrier, asleep and forgotten", silent),
            bounds(),
            "no thread ",
        ),
        (
            judging("barrier without release fences", no_release),
            bounds().preemptions(2).stale_reads(2),
            "judged wrongly",
        ),
        (
            judging("barrier without acquire fences", no_acquire),
            bounds().preemptions(2).stale_reads(2),
            "judged wrongly",
        ),
    ]
}

fn bounds() -> Bounds {
    Bounds::default()
        .preemptions(1)
        .stale_reads(1)
        .executions(400_000)
}

/// Returns the memory unchanged.
fn sound(memory: Scheduled) -> Scheduled {
    memory
}

fn barrier<M: Memory>(memory: M) -> GroupBarrier<M> {
    GroupBarrier::new(memory, LOCK, IDS)
}

fn act_as<M: Memory>(memory: M, id: u32) -> Member<M> {
    Pod::new(memory).act_as(id)
}

/// A scenario with threads that act as members, by number. The first `seated` of them have seats;
/// number 3 is for the check.
fn members(name: &str, seated: u32) -> Scenario<Scheduled> {
    schedule::scenario(name)
        .memory(SIZE)
        .prepare(move |m| {
            let pod = Pod::new(m);
            for id in 0..IDS {
                let member = pod.join(id);
                if id < seated {
                    core::mem::forget(barrier(m).join(&member).unwrap());
                }
            }
        })
        .on_death(|m, host| Pod::new(m).declare_dead(host as u32))
}

fn is_dead(m: Scheduled, id: u32) -> bool {
    !Pod::new(m).status(id).may_write()
}

fn get<M: Memory>(m: M, index: u64) -> u64 {
    m.load(DATA + index * 8, Ordering::Relaxed)
}

fn set<M: Memory>(m: M, index: u64, value: u64) {
    m.store(DATA + index * 8, value, Ordering::Relaxed);
}

/// Removes all dead members, and asserts a sound barrier with these members and changes.
fn settle(m: Scheduled, members: u32, changes: core::ops::RangeInclusive<u64>) {
    let member = act_as(m, 3);
    let barrier = barrier(m);
    barrier.bury(&member).unwrap();
    assert_eq!(barrier.bury(&member).unwrap(), 0);
    let report = barrier.check(member.generations());
    assert!(report.is_clean() && report.at_rest, "{report:?}");
    assert!(report.gone.is_empty(), "{report:?}");
    let view = barrier.view().unwrap();
    assert_eq!(view.members, members, "members");
    assert_eq!(barrier.occupants().count() as u32, members, "seats");
    let seen = view.changes;
    assert!(changes.contains(&seen), "{seen} changes, not {changes:?}");
}

/// The number of changes: one for each of `joined` members, `first` for the one that has left or
/// died first, and one for each other death.
fn changes_of(joined: u64, first: u64, deaths: u32) -> core::ops::RangeInclusive<u64> {
    let changes = joined + first + u64::from(deaths).saturating_sub(1);
    changes..=changes
}
