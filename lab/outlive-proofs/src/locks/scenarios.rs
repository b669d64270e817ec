//! Locks, the mutex and recovery, with deaths; and broken variants, which an exploration must find.

use crate::pod::{DATA, LOCK, Pod, SIZE};
use core::time::Duration;
use outlive::recovery::Recovered;
use outlive::sync::{BareTatas, QueueLock, RecoverableMutex, Tatas};
use outlive_memory::{Memory, Ordering};
use outlive_prove::proof::{Proof, Reach};
use outlive_prove::schedule::{self, Bounds, End, Ghost, Scenario, Scheduled};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::OnceLock;

/// The scenarios of this file.
pub fn all() -> Vec<Proof> {
    let every = |scenario, deaths| Proof {
        scenario,
        quick: Reach::Every(bounds().deaths(deaths)),
        full: Reach::Every(Bounds::default().deaths(deaths)),
    };
    let drawn = |scenario, preemptions, stale_reads, seed, executions| {
        let bounds = Bounds::default()
            .preemptions(preemptions)
            .stale_reads(stale_reads)
            .deaths(2);
        Proof {
            scenario,
            quick: Reach::Drawn(bounds.clone(), seed, executions),
            full: Reach::Drawn(bounds, seed, 100 * executions),
        }
    };
    vec![
        every(bare_tatas(), 2),
        every(logged_tatas(), 2),
        drawn(logged_tatas_of_three(), 4, 2, 1, 20_000),
        every(two_recoverers(), 2),
        every(queue("queue of two", 2, None), 2),
        every(queue("queue of two, one impatient", 2, Some(1)), 1),
        drawn(queue("queue of three", 3, None), 5, 3, 1, 30_000),
        drawn(
            queue("queue of three, one impatient", 3, Some(1)),
            5,
            3,
            2,
            30_000,
        ),
        drawn(
            queue("queue of three, one less so", 3, Some(3)),
            5,
            3,
            3,
            30_000,
        ),
        every(mutex(), 2),
        every(freed("bare tatas, freed", Kind::Bare), 1),
        every(freed("logged tatas, freed", Kind::Logged), 1),
        every(freed("queue, freed", Kind::Queue), 1),
        every(freed("mutex, freed", Kind::Mutex), 1),
        every(poisoned("bare tatas, poisoned", panics), 1),
    ]
}

/// Returns scenarios that must fail within these bounds, each with a part of the message.
pub fn broken() -> Vec<(Scenario, Bounds, &'static str)> {
    vec![
        (relaxed_unlock(), bounds(), "half-done"),
        (unlogged(), bounds(), "held by a dead member"),
        (struck_early(), bounds(), "held by a dead member"),
        (
            no_claim(),
            bounds().preemptions(2).executions(2_000_000),
            "",
        ),
        (no_mending(), bounds(), "no thread "),
        (
            poisoned("poisoned after the release", poisons_late),
            bounds(),
            "half-done",
        ),
    ]
}

fn bounds() -> Bounds {
    Bounds::default()
        .preemptions(1)
        .stale_reads(1)
        .executions(200_000)
}

/// Returns the handles. Each execution has its own memory behind them.
fn pod(memory: Scheduled) -> &'static Pod<Scheduled> {
    static POD: OnceLock<Pod<Scheduled>> = OnceLock::new();
    POD.get_or_init(|| Pod::new(memory))
}

/// A scenario with threads that act as members, by number; number 3 is for the check.
fn members(name: &str) -> Scenario<Scheduled> {
    schedule::scenario(name)
        .memory(SIZE)
        .prepare(|m| {
            for id in 0..4 {
                drop(pod(m).join(id));
            }
        })
        .on_death(|m, host| pod(m).declare_dead(host as u32))
}

fn is_dead(m: Scheduled, id: u32) -> bool {
    !pod(m).status(id).may_write()
}

/// Recovers all dead members, as member 3, and asserts that nothing of them is left.
fn recover_rest(m: Scheduled) {
    pod(m).recoverers.recover_all(&pod(m).act_as(3)).unwrap();
    for id in (0..3).filter(|&id| is_dead(m, id)) {
        pod(m).assert_settled(id);
    }
}

fn get(m: Scheduled, index: u64) -> u64 {
    m.load(DATA + index * 8, Ordering::Relaxed)
}

fn set(m: Scheduled, index: u64, value: u64) {
    m.store(DATA + index * 8, value, Ordering::Relaxed);
}

/// The member inside a critical section.
type Inside = Ghost<Option<u32>>;

/// Enters and leaves; a member found inside must be dead.
fn pass(m: Scheduled, inside: &Inside, me: u32) {
    let before = inside.with(|inside| inside.replace(me));
    assert!(
        before.is_none_or(|id| is_dead(m, id)),
        "{before:?} is inside, and alive"
    );
    inside.with(|inside| *inside = None);
}

/// Increments the two plain words of a critical section.
fn two_steps(m: Scheduled) {
    let (a, b) = (get(m, 0), get(m, 1));
    set(m, 0, a + 1);
    set(m, 1, b + 1);
}

/// Exclusion holds, and a lock is taken over from a dead owner once.
fn bare_tatas() -> Scenario {
    let inside = Inside::new();
    let body = move |id| {
        let inside = inside.clone();
        move |m: Scheduled| {
            let member = pod(m).act_as(id);
            let held = BareTatas::new(m, LOCK).lock(&member).unwrap();
            if held.abandoned_by().is_some() {
                // Repairs the words: the second follows the first.
                set(m, 1, get(m, 0));
            }
            assert_eq!(get(m, 0), get(m, 1));
            pass(m, &inside, id);
            two_steps(m);
        }
    };
    members("bare tatas")
        .mortal("t0", body(0))
        .mortal("t1", body(1))
        .thread("t2", body(2))
        .check(|m, end| {
            let member = pod(m).act_as(3);
            let held = BareTatas::new(m, LOCK).lock(&member).unwrap();
            if held.abandoned_by().is_some() {
                set(m, 1, get(m, 0));
            }
            assert_eq!(get(m, 0), get(m, 1));
            assert!((3 - end.deaths() as u64..=3).contains(&get(m, 0)));
        })
}

/// Updates two words by a redo under a logged lock.
fn logged_update(m: Scheduled, id: u32, inside: Option<&Inside>) {
    let member = pod(m).act_as(id);
    let held = Tatas::new(m, LOCK)
        .lock(&member, &pod(m).recoverers)
        .unwrap();
    assert_eq!(get(m, 0), get(m, 1), "a half-done update");
    if let Some(inside) = inside {
        pass(m, inside, id);
    }
    let mut redo = held.redo().unwrap();
    for word in [DATA, DATA + 8] {
        let sum = redo.load::<u64>(word) + 1;
        redo.store(word, sum).unwrap();
    }
    redo.commit();
    drop(held);
}

fn check_updates(threads: u64) -> impl Fn(Scheduled, &End<()>) {
    move |m, end| {
        recover_rest(m);
        assert_eq!(Tatas::new(m, LOCK).holder(), None, "held by a dead member");
        assert_eq!(get(m, 0), get(m, 1), "a half-done update");
        let returned = threads - end.deaths() as u64;
        assert!(
            (returned..=threads).contains(&get(m, 0)),
            "{} updates",
            get(m, 0)
        );
    }
}

/// Updates are whole.
fn logged_tatas() -> Scenario {
    let inside = Inside::new();
    let body = move |id| {
        let inside = inside.clone();
        move |m: Scheduled| logged_update(m, id, Some(&inside))
    };
    members("logged tatas")
        .mortal("t0", body(0))
        .mortal("t1", body(1))
        .check(check_updates(2))
}

/// The same with three threads.
fn logged_tatas_of_three() -> Scenario {
    let inside = Inside::new();
    let body = move |id| {
        let inside = inside.clone();
        move |m: Scheduled| logged_update(m, id, Some(&inside))
    };
    members("logged tatas, three")
        .mortal("t0", body(0))
        .mortal("t1", body(1))
        .thread("t2", body(2))
        .check(check_updates(3))
}

/// One of two threads recovers the owner; the other one continues if the first dies.
fn two_recoverers() -> Scenario {
    let recover = |id| {
        move |m: Scheduled| {
            let member = pod(m).act_as(id);
            let outcome = pod(m).recoverers.recover(&member, 0).unwrap();
            if let Recovered::ByAnother(other) = outcome {
                assert_ne!(other.id, 0);
            }
            // The lock is available as soon as the recovery is over, and the committed update is
            // there.
            logged_update(m, id, None);
        }
    };
    members("two recoverers")
        .mortal("owner", |m| logged_update(m, 0, None))
        .mortal_after_death("r1", recover(1))
        .after_death("r2", recover(2))
        .check(|m, end| {
            recover_rest(m);
            assert_eq!(get(m, 0), get(m, 1));
            if end.deaths() > 0 {
                let returned = 3 - end.deaths() as u64;
                assert!((returned..=3).contains(&get(m, 0)), "{} updates", get(m, 0));
            }
        })
}

/// Exclusion holds, and the queue is repaired.
fn queue(name: &str, threads: u32, patience: Option<u64>) -> Scenario {
    let inside = Inside::new();
    let mut scenario = members(name);
    for id in 0..threads {
        let inside = inside.clone();
        let body = move |m: Scheduled| {
            let member = pod(m).act_as(id);
            let lock = QueueLock::new(m, LOCK);
            let recoverers = &pod(m).recoverers;
            let held = match patience.filter(|_| id == 1) {
                None => Some(lock.lock(&member, recoverers).unwrap()),
                Some(hints) => {
                    let patience = Duration::from_micros(hints);
                    lock.lock_for(&member, recoverers, patience).unwrap()
                }
            };
            if held.is_some() {
                pass(m, &inside, id);
                // Plain words: the next owner sees the last one's value.
                set(m, 0, get(m, 0) + 1);
            }
            drop(held);
        };
        scenario = if id < 2 {
            scenario.mortal(&format!("t{id}"), body)
        } else {
            scenario.thread(&format!("t{id}"), body)
        };
    }
    scenario.check(move |m, end| {
        recover_rest(m);
        let least = u64::from(threads) - end.deaths() as u64 - u64::from(patience.is_some());
        let most = u64::from(threads);
        assert!(
            (least..=most).contains(&get(m, 0)),
            "{} of {least} to {most}",
            get(m, 0)
        );
        let lock = QueueLock::new(m, LOCK);
        assert!(
            !lock.is_held(pod(m).logs),
            "no member holds the lock or waits for it"
        );
        let member = pod(m).act_as(3);
        assert!(
            lock.try_lock(&member, &pod(m).recoverers)
                .unwrap()
                .is_some()
        );
    })
}

/// Values are whole.
fn mutex() -> Scenario {
    let body = |id| {
        move |m: Scheduled| {
            let mutex = RecoverableMutex::<[u64; 2], _>::at(m, LOCK);
            let member = pod(m).act_as(id);
            let mut value = mutex.lock(&member).unwrap();
            assert_eq!(value[0], value[1], "half-done");
            *value = [value[0] + 1; 2];
        }
    };
    members("mutex")
        .mortal("t0", body(0))
        .mortal("t1", body(1))
        .thread("t2", body(2))
        .check(|m, end| {
            let member = pod(m).act_as(3);
            let value = *RecoverableMutex::<[u64; 2], _>::at(m, LOCK)
                .lock(&member)
                .unwrap();
            assert_eq!(value[0], value[1]);
            assert!((3 - end.deaths() as u64..=3).contains(&value[0]));
        })
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Bare,
    Logged,
    Queue,
    Mutex,
}

/// Runs `inside` while `id` holds the lock, and releases the lock if `inside` returns `true`.
fn hold(m: Scheduled, id: u32, kind: Kind, inside: impl FnOnce() -> bool) {
    fn then<G>(guard: G, inside: impl FnOnce() -> bool) {
        if !inside() {
            core::mem::forget(guard);
        }
    }
    let (member, recoverers) = (pod(m).act_as(id), &pod(m).recoverers);
    let (logged, queue) = (Tatas::new(m, LOCK), QueueLock::new(m, LOCK));
    let mutex = RecoverableMutex::<u64, _>::at(m, LOCK);
    match kind {
        Kind::Bare => then(BareTatas::new(m, LOCK).lock(&member).unwrap(), inside),
        Kind::Logged => then(logged.lock(&member, recoverers).unwrap(), inside),
        Kind::Queue => then(queue.lock(&member, recoverers).unwrap(), inside),
        Kind::Mutex => then(mutex.lock(&member).unwrap(), inside),
    }
}

/// The next owner frees the lock's memory, which then holds another object: neither the releaser
/// nor the recovery of the releaser writes there.
fn freed(name: &str, kind: Kind) -> Scenario {
    members(name)
        .mortal("owner", move |m| {
            hold(m, 0, kind, || {
                if kind == Kind::Queue {
                    m.store(pod(m).logs.of(0).node(0) + 24, 1u32, Ordering::Relaxed);
                } else {
                    m.store(LOCK + 8, 1u32, Ordering::Relaxed); // as a sleeper does
                }
                m.store(DATA, 1u64, Ordering::Release);
                true
            });
        })
        .thread("next owner", move |m| {
            while m.load::<u64>(DATA, Ordering::Acquire) == 0 && !is_dead(m, 0) {
                m.spin_hint();
            }
            hold(m, 1, kind, || {
                if m.load::<u64>(DATA, Ordering::Acquire) == 0 {
                    // A queue lock is not freed before a dead waiter is recovered.
                    return true;
                }
                m.store(DATA + 8, 1u64, Ordering::Relaxed);
                m.store(LOCK, REUSED, Ordering::Relaxed);
                // The word of the queue's repairer, or the sleepers' flag.
                match kind {
                    Kind::Queue => m.store(LOCK + 64, REUSED, Ordering::Relaxed),
                    _ => m.store(LOCK + 8, REUSED as u32, Ordering::Relaxed),
                }
                false
            });
        })
        .after_death("recoverer", |m| {
            pod(m).recoverers.recover(&pod(m).act_as(2), 0).unwrap();
        })
        .check(move |m, _| {
            if get(m, 1) == 1 {
                let beside = match kind {
                    Kind::Queue => m.load::<u64>(LOCK + 64, Ordering::Relaxed) as u32,
                    _ => m.load(LOCK + 8, Ordering::Relaxed),
                };
                let word: u64 = m.load(LOCK, Ordering::Relaxed);
                assert_eq!((word, beside), (REUSED, REUSED as u32));
            }
        })
}

/// The contents of the object that reuses a freed lock's memory.
const REUSED: u64 = 0x5EED_5EED_5EED_5EED;

/// An owner leaves a change half-done as `owner` does. The next two owners see the poison, or one
/// of them sees that the owner died, and repairs the data.
fn poisoned(name: &str, owner: fn(Scheduled)) -> Scenario {
    let next = |id| {
        move |m: Scheduled| {
            let member = pod(m).act_as(id);
            let held = BareTatas::new(m, LOCK).lock(&member).unwrap();
            if held.abandoned_by().is_some() {
                m.store(DATA, 0u64, Ordering::Relaxed);
            }
            let is_poisoned = held.poison().set_by() == Some(0);
            assert!(get(m, 0) == 0 || is_poisoned, "half-done, and not reported");
        }
    };
    members(name)
        .mortal("owner", owner)
        .thread("next owner", next(1))
        .thread("later owner", next(2))
        .check(|_, _| ())
}

/// Changes data under a bare lock, and panics.
fn panics(m: Scheduled) {
    struct OnPurpose;
    let member = pod(m).act_as(0);
    let ended = catch_unwind(AssertUnwindSafe(|| {
        let held = BareTatas::new(m, LOCK).lock(&member).unwrap();
        let _change = held.poison().on_panic();
        m.store(DATA, 1u64, Ordering::Relaxed);
        resume_unwind(Box::new(OnPurpose))
    }));
    match ended {
        Err(panic) if panic.is::<OnPurpose>() => {}
        // The engine ends a thread by a panic of its own.
        Err(panic) => resume_unwind(panic),
        Ok(()) => {}
    }
}

/// Broken: the lock is poisoned after its release.
fn poisons_late(m: Scheduled) {
    let member = pod(m).act_as(0);
    core::mem::forget(BareTatas::new(m, LOCK).lock(&member).unwrap());
    m.store(DATA, 1u64, Ordering::Relaxed);
    m.store(LOCK, 0u64, Ordering::Release);
    m.store(LOCK + 12, 1u32, Ordering::Relaxed);
}

/// Broken: a release with a relaxed store.
fn relaxed_unlock() -> Scenario {
    let body = |id| {
        move |m: Scheduled| {
            let member = pod(m).act_as(id);
            let held = BareTatas::new(m, LOCK).lock(&member).unwrap();
            assert_eq!(get(m, 0), get(m, 1), "half-done");
            two_steps(m);
            // In place of dropping the guard.
            m.store(LOCK, 0u64, Ordering::Relaxed);
            std::mem::forget(held);
        }
    };
    members("relaxed unlock")
        .thread("t0", body(0))
        .thread("t1", body(1))
}

/// Broken: a lock that is not listed in the log.
fn unlogged() -> Scenario {
    members("unlogged")
        .mortal("t0", |m| {
            let me = pod(m).act_as(0).instance().to_word();
            let order = (Ordering::AcqRel, Ordering::Relaxed);
            m.compare_exchange(LOCK, 0u64, me, order.0, order.1)
                .unwrap();
            set(m, 0, 1);
            set(m, 1, 1);
            m.store(LOCK, 0u64, Ordering::Release);
        })
        .check(check_updates(1))
}

/// Broken: an entry cleared before the release.
fn struck_early() -> Scenario {
    members("struck early")
        .mortal("t0", |m| {
            let member = pod(m).act_as(0);
            let held = Tatas::new(m, LOCK)
                .lock(&member, &pod(m).recoverers)
                .unwrap();
            m.store(pod(m).logs.at(0) + 0x200, 0u64, Ordering::Release);
            set(m, 0, 1);
            set(m, 1, 1);
            drop(held);
        })
        .check(check_updates(1))
}

/// Broken: two threads recover without a claim.
fn no_claim() -> Scenario {
    let recover = |id| {
        move |m: Scheduled| {
            let (dead, member) = (pod(m).logs.of(0).owner().unwrap(), pod(m).act_as(id));
            // A thread that is already recovering is overtaken: the claim is reset to the dead
            // member.
            m.store(pod(m).logs.at(0) + 0x40, dead.to_word(), Ordering::Release);
            pod(m).recoverers.recover(&member, 0).unwrap();
            logged_update(m, id, None);
        }
    };
    members("no claim")
        .mortal("owner", |m| logged_update(m, 0, None))
        .after_death("r1", recover(1))
        .after_death("r2", recover(2))
        .check(|m, end| {
            recover_rest(m);
            if end.deaths() > 0 {
                assert!(get(m, 0) >= 2, "an update is lost");
            }
        })
}

/// Broken: a queue that is not repaired.
fn no_mending() -> Scenario {
    members("no repair")
        .thread("holder", |m| {
            let member = pod(m).act_as(0);
            drop(
                QueueLock::new(m, LOCK)
                    .lock(&member, &pod(m).recoverers)
                    .unwrap(),
            );
        })
        .mortal("dies", |m| {
            let member = pod(m).act_as(1);
            let lock = QueueLock::new(m, LOCK);
            let held = lock.lock(&member, &pod(m).recoverers).unwrap();
            // Its log does not list the queue.
            m.store(pod(m).logs.at(1) + 0x200, 0u64, Ordering::Release);
            set(m, 0, 1);
            drop(held);
        })
        .check(|m, _| {
            recover_rest(m);
            assert!(
                !QueueLock::new(m, LOCK).is_held(pod(m).logs),
                "no thread passes it on"
            );
        })
}
