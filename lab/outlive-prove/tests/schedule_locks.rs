//! Small algorithms that the scheduled memory passes, and broken variants of them that it must
//! catch.

use outlive_memory::{Memory, Offset, Ordering, Ordering::*};
use outlive_prove::schedule::{self, Bounds, Ghost, Scenario, ScheduleReport, Scheduled};

const LOCK: Offset = Offset::new(0);
const A: Offset = Offset::new(64);
const B: Offset = Offset::new(72);
const GENERATIONS: Offset = Offset::new(1024);

outlive_memory::crash_points! {
    /// The points at which a locked increment may be cut short.
    enum IncrementPoint for "test.increment" {
        /// The lock is held, nothing is written.
        Locked,
        /// The first of the two words is written.
        Half,
        /// The lock is free again.
        Unlocked,
    }
}

/// The orderings and checks that make the lock right; each variant breaks one.
#[derive(Clone, Copy)]
struct Rules {
    unlock: Ordering,
    lock: Ordering,
    generation: Ordering,
    repair: bool,
    hint: bool,
}

const RIGHT: Rules = Rules {
    unlock: Release,
    lock: Acquire,
    generation: Acquire,
    repair: true,
    hint: true,
};

fn generation_of(id: u64) -> Offset {
    GENERATIONS + 8 * id
}

/// Takes the lock for `me` (not 0), from a dead owner if need be.
fn lock<M: Memory>(m: M, me: u64, rules: Rules) {
    loop {
        let word: u64 = m.load(LOCK, Relaxed);
        if word == 0 {
            if m.compare_exchange(LOCK, 0, me, rules.lock, Relaxed).is_ok() {
                return;
            }
        } else if m.load::<u64>(generation_of(word), rules.generation) != 0
            && m.compare_exchange(LOCK, word, me, rules.lock, Relaxed)
                .is_ok()
        {
            if rules.repair {
                m.store(B, m.load::<u64>(A, Relaxed), Relaxed);
            }
            return;
        }
        if rules.hint {
            m.spin_hint();
        }
    }
}

fn increment<M: Memory>(m: M, me: u64, rules: Rules) {
    lock(m, me, rules);
    m.crash_point(IncrementPoint::Locked);
    let (a, b): (u64, u64) = (m.load(A, Relaxed), m.load(B, Relaxed));
    assert_eq!(a, b, "the lock's owner sees a half-done update");
    m.store(A, a + 1, Relaxed);
    m.crash_point(IncrementPoint::Half);
    m.store(B, b + 1, Relaxed);
    m.store(LOCK, 0u64, rules.unlock);
    m.crash_point(IncrementPoint::Unlocked);
}

/// Threads that each increment once under the lock; the first `mortal` of them may die.
fn increments(threads: u64, mortal: u64, rules: Rules) -> Scenario<Scheduled> {
    let mut scenario = schedule::scenario("locked increments");
    for id in 1..=threads {
        let body = move |m| increment(m, id, rules);
        let name = format!("t{id}");
        scenario = if id <= mortal {
            scenario.mortal(&name, body)
        } else {
            scenario.thread(&name, body)
        };
    }
    scenario
        .on_death(|m, host| m.store(generation_of(host as u64 + 1), 1u64, Release))
        .check(move |m, end| {
            lock(m, threads + 1, RIGHT);
            let (a, b): (u64, u64) = (m.load(A, Relaxed), m.load(B, Relaxed));
            assert_eq!(a, b);
            let ended = threads - end.deaths() as u64;
            assert!(
                (ended..=threads).contains(&a),
                "{ended} ended, {a} were counted"
            );
        })
}

/// The failure comes back from its schedule, twice the same.
fn replays(scenario: &Scenario<Scheduled>, report: &ScheduleReport) {
    let failure = report.expect_failure();
    for _ in 0..2 {
        let again = scenario.replay(&Bounds::default(), &failure.schedule);
        let again = again.expect_failure();
        assert_eq!(
            (&again.message, &again.trace),
            (&failure.message, &failure.trace)
        );
    }
}

#[test]
fn a_lock_is_taken_from_its_dead_owner() {
    let report = increments(2, 2, RIGHT).explore(&Bounds::default().deaths(2));
    report.assert_proven();
    assert!(report.deaths > 0 && report.coverage.deaths_at(IncrementPoint::Half) > 0);
    increments(3, 1, RIGHT)
        .explore(&Bounds::default().preemptions(1))
        .assert_proven();
    increments(3, 3, RIGHT)
        .sample(&Bounds::default().deaths(2), 1, 2_000)
        .assert_passed();
}

#[test]
fn a_broken_lock_is_caught() {
    let broken = [
        (
            "an unlock that does not release",
            Rules {
                unlock: Relaxed,
                ..RIGHT
            },
            "half-done",
        ),
        (
            "a lock that does not acquire",
            Rules {
                lock: Relaxed,
                ..RIGHT
            },
            "half-done",
        ),
        (
            "a generation read without acquire",
            Rules {
                generation: Relaxed,
                ..RIGHT
            },
            "",
        ),
        (
            "a takeover without repair",
            Rules {
                repair: false,
                ..RIGHT
            },
            "half-done",
        ),
        (
            "a loop without a hint",
            Rules {
                hint: false,
                ..RIGHT
            },
            "no end after",
        ),
    ];
    for (what, rules, message) in broken {
        let scenario = increments(2, 1, rules);
        let bounds = Bounds::default().steps(2_000);
        let report = scenario.explore(&bounds);
        assert!(!report.passed(), "{what} went unnoticed: {report}");
        let failure = report.expect_failure();
        assert!(failure.message.contains(message), "{what}: {failure}");
        assert!(failure.trace.lines().count() > 3, "{failure}");
    }
    let scenario = increments(
        2,
        1,
        Rules {
            unlock: Relaxed,
            ..RIGHT
        },
    );
    replays(&scenario, &scenario.explore(&Bounds::default()));
    let drawn = scenario.sample(&Bounds::default(), 7, 100_000);
    replays(&scenario, &drawn);
    assert!(drawn.expect_failure().seed.is_some());
}

#[test]
fn a_death_that_nobody_tells_of_leaves_everyone_waiting() {
    let mut scenario = schedule::scenario("untold death").mortal("t1", |m| increment(m, 1, RIGHT));
    scenario = scenario.thread("t2", |m| increment(m, 2, RIGHT));
    let report = scenario.explore(&Bounds::default());
    let failure = report.expect_failure();
    assert!(
        failure.message.contains("no thread can continue: t2"),
        "{failure}"
    );
}

/// A manager that raises a generation before its owner is dead (the fence skipped).
#[test]
fn a_generation_raised_too_early_is_caught() {
    let scenario = increments(2, 0, RIGHT).thread("hasty manager", |m| {
        m.store(generation_of(1), 1u64, Release)
    });
    let report = scenario.check(|_, _| {}).explore(&Bounds::default());
    replays(&scenario_again(), &report);
    fn scenario_again() -> Scenario<Scheduled> {
        increments(2, 0, RIGHT)
            .thread("hasty manager", |m| {
                m.store(generation_of(1), 1u64, Release)
            })
            .check(|_, _| {})
    }
}

const LOG: Offset = Offset::new(128);
const TOTAL: Offset = Offset::new(192);

/// A thread logs an addition and makes it; if it dies, two survivors find its log.
fn recovery(claimed: bool) -> Scenario<Scheduled> {
    let redo = move |m: Scheduled| {
        if claimed {
            // The claim turns the log over to one of them.
            let claim = m.compare_exchange(LOG, 1u64, 2, Acquire, Relaxed);
            if claim.is_ok() {
                m.store(TOTAL, 7u64, Relaxed);
                m.store(LOG, 0u64, Release);
            }
        } else if m.load::<u64>(LOG, Acquire) == 1 {
            let total: u64 = m.load(TOTAL, Relaxed);
            m.store(TOTAL, total + 7, Relaxed);
            m.store(LOG, 0u64, Release);
        }
    };
    schedule::scenario("recovery")
        .mortal("worker", |m| {
            m.store(LOG, 1u64, Release);
            m.store(TOTAL, 7u64, Relaxed);
            m.store(LOG, 0u64, Release);
        })
        .after_death("r1", redo)
        .after_death("r2", redo)
        .check(move |m, _| {
            let total: u64 = m.load(TOTAL, Relaxed);
            assert!(
                total == 0 || total == 7,
                "an addition was made twice: {total}"
            );
            assert_eq!(m.load::<u64>(LOG, Relaxed), 0, "a log is left");
        })
}

#[test]
fn two_recoverers_need_a_claim() {
    recovery(true)
        .explore(&Bounds::default().deaths(1))
        .assert_proven();
    let report = recovery(false).explore(&Bounds::default());
    assert!(
        report.expect_failure().message.contains("made twice"),
        "{report}"
    );
}

const SEQUENCE: Offset = Offset::new(256);

fn seqlock(writer: Option<Ordering>, reader: Option<Ordering>) -> ScheduleReport {
    let fence = |m: Scheduled, order: Option<Ordering>| {
        if let Some(order) = order {
            m.fence(order);
        }
    };
    schedule::scenario("seqlock")
        .thread("writer", move |m| {
            m.store(SEQUENCE, 1u64, Relaxed);
            fence(m, writer);
            m.store(A, 5u64, Relaxed);
            m.store(B, 5u64, Relaxed);
            m.store(SEQUENCE, 2u64, Release);
        })
        .thread("reader", move |m| {
            let before: u64 = m.load(SEQUENCE, Acquire);
            let (a, b): (u64, u64) = (m.load(A, Relaxed), m.load(B, Relaxed));
            fence(m, reader);
            if before.is_multiple_of(2) && m.load::<u64>(SEQUENCE, Relaxed) == before {
                assert_eq!(a, b, "a torn read was taken for a complete one");
            }
        })
        .explore(&Bounds::exhaustive())
}

#[test]
fn a_seqlock_needs_both_fences() {
    seqlock(Some(Release), Some(Acquire)).assert_proven();
    for (writer, reader) in [(None, Some(Acquire)), (Some(Release), None)] {
        let report = seqlock(writer, reader);
        assert!(
            report.expect_failure().message.contains("torn read"),
            "{report}"
        );
    }
}

const READY: Offset = Offset::new(320);
const WAITING: Offset = Offset::new(384);
const WAKE: Offset = Offset::new(448);

fn sleep_and_wake(fence: Ordering) -> ScheduleReport {
    schedule::scenario("sleep and wake")
        .thread("sleeper", move |m| {
            m.store(WAITING, 1u64, Relaxed);
            m.fence(fence);
            if m.load::<u64>(READY, Relaxed) == 0 {
                while m.load::<u64>(WAKE, Acquire) == 0 {
                    m.spin_hint();
                }
            }
        })
        .thread("waker", move |m| {
            m.store(READY, 1u64, Relaxed);
            m.fence(fence);
            if m.load::<u64>(WAITING, Relaxed) == 1 {
                m.store(WAKE, 1u64, Release);
            }
        })
        .explore(&Bounds::exhaustive())
}

#[test]
fn a_lost_wake_up_is_caught() {
    sleep_and_wake(SeqCst).assert_proven();
    let report = sleep_and_wake(AcqRel);
    assert!(
        report
            .expect_failure()
            .message
            .contains("no thread can continue: sleeper"),
        "{report}"
    );
}

/// Two are never inside; the ghost knows which one is.
fn exclusion(checks_then_acts: bool) -> ScheduleReport {
    let inside: Ghost<u64> = Ghost::new();
    let mut scenario = schedule::scenario("exclusion");
    for id in 1..=2u64 {
        let inside = inside.clone();
        scenario = scenario.thread(&format!("t{id}"), move |m| {
            if checks_then_acts {
                while m.load::<u64>(LOCK, Acquire) != 0 {
                    m.spin_hint();
                }
                m.store(LOCK, id, Relaxed);
            } else {
                while m.exchange(LOCK, id, Acquire) != 0 {
                    m.spin_hint();
                }
            }
            inside.with(|inside| {
                *inside += 1;
                assert_eq!(*inside, 1, "two are inside");
            });
            inside.with(|inside| *inside -= 1);
            m.store(LOCK, 0u64, Release);
        });
    }
    scenario.explore(&Bounds::default())
}

#[test]
fn a_lock_that_checks_before_it_acts_is_caught() {
    exclusion(false).assert_proven();
    let report = exclusion(true);
    assert!(
        report.expect_failure().message.contains("two are inside"),
        "{report}"
    );
}

/// A loop that checks its other condition only now and then still ends.
#[test]
fn a_thread_that_counts_its_spins_goes_on() {
    schedule::scenario::<()>("counted spins")
        .thread("patient", |m| {
            for spins in 1u64.. {
                if m.load::<u64>(READY, Acquire) == 1
                    || spins.is_multiple_of(128) && m.load::<u64>(WAKE, Acquire) == 1
                {
                    break;
                }
                m.spin_hint();
            }
        })
        .thread("other", |m| m.store(WAKE, 1u64, Release))
        .explore(&Bounds::exhaustive())
        .assert_proven();
}

#[test]
fn a_word_is_accessed_at_one_size() {
    let report = schedule::scenario::<()>("mixed sizes")
        .thread("t", |m| {
            m.store(A, 1u64, Relaxed);
            m.load::<u32>(A, Relaxed);
        })
        .explore(&Bounds::default());
    assert!(
        report
            .expect_failure()
            .message
            .contains("must have the same size"),
        "{report}"
    );
    let report = schedule::scenario::<()>("out of range")
        .thread("t", |m| m.store(Offset::new(4096), 1u64, Relaxed))
        .explore(&Bounds::default());
    assert!(
        report.expect_failure().message.contains("outside a memory"),
        "{report}"
    );
}

/// A dead thread's destructors do not run, so they cannot unlock.
#[test]
fn the_dead_drop_nothing() {
    struct Unlock<M: Memory>(M);
    impl<M: Memory> Drop for Unlock<M> {
        fn drop(&mut self) {
            self.0.store(LOCK, 0u64, Release);
        }
    }
    schedule::scenario("guard")
        .mortal("t", |m| {
            m.store(LOCK, 1u64, Relaxed);
            let _guard = Unlock(m);
            m.store(A, 1u64, Relaxed);
            m.store(B, 1u64, Relaxed);
        })
        .check(|m, end| {
            let [lock, a, b] = [LOCK, A, B].map(|at| m.load::<u64>(at, Relaxed));
            assert!(a >= b && lock <= 1);
            // The lock is free if it was never taken or the guard was dropped by a thread that
            // lived.
            assert!(
                lock == 1 || a == 0 || (a, b) == (1, 1),
                "a dead thread released the lock"
            );
            assert!(end.died(0) || lock == 0);
        })
        .explore(&Bounds::default())
        .assert_proven();
}
