//! Memory whose hosts' caches die with them: lost stores, kept stores, and broken variants.

use outlive_memory::{Memory, Offset, Ordering::*};
use outlive_prove::explore::{self, CacheRules, Exploring, Tearing, Transfers, WriteBacks};
use outlive_prove::schedule::{Bounds, Scenario, ScheduleReport};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

const DATA: Offset = Offset::new(0);
const MORE: Offset = Offset::new(8);
const FAR: Offset = Offset::new(128);
const HEAD: Offset = Offset::new(256);
const LOCK: Offset = Offset::new(512);

/// Returns the values that `words` can have after the scenario, over all executions.
fn images<const N: usize>(
    scenario: Scenario<Exploring>,
    words: [Offset; N],
) -> (BTreeSet<[u64; N]>, ScheduleReport) {
    let seen: Arc<Mutex<BTreeSet<[u64; N]>>> = Arc::default();
    let seen_too = Arc::clone(&seen);
    let report = scenario
        .check(move |m, _| {
            let image = words.map(|at| m.load::<u64>(at, Relaxed));
            seen_too.lock().unwrap().insert(image);
        })
        .explore(&Bounds::default());
    report.assert_passed();
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    (seen, report)
}

fn two_stores_to_a_line(rules: CacheRules) -> BTreeSet<[u64; 2]> {
    let scenario = explore::scenario("two stores")
        .caches(rules)
        .mortal("writer", |m| {
            m.store(DATA, 1u64, Relaxed);
            m.store(MORE, 2u64, Relaxed);
            m.store(DATA, 3u64, Relaxed);
        });
    images(scenario, [DATA, MORE]).0
}

#[test]
fn a_dirty_line_is_torn_as_the_rules_say() {
    let words = two_stores_to_a_line(CacheRules::default());
    assert_eq!(
        words,
        BTreeSet::from([[0, 0], [1, 0], [3, 0], [0, 2], [1, 2], [3, 2]])
    );
    let lines = two_stores_to_a_line(CacheRules {
        tearing: Tearing::Lines,
        ..CacheRules::default()
    });
    assert_eq!(lines, BTreeSet::from([[0, 0], [1, 0], [1, 2], [3, 2]]));
}

#[test]
fn a_wide_word_is_torn_in_two() {
    let scenario = explore::scenario("wide").mortal("writer", |m| {
        m.store(DATA, 5u128 << 64 | 4, Relaxed);
    });
    let seen: Arc<Mutex<BTreeSet<u128>>> = Arc::default();
    let seen_too = Arc::clone(&seen);
    let scenario = scenario.check(move |m, _| {
        seen_too.lock().unwrap().insert(m.load(DATA, Relaxed));
    });
    scenario.explore(&Bounds::default()).assert_proven();
    assert_eq!(
        *seen.lock().unwrap(),
        BTreeSet::from([0, 4, 5 << 64, 5 << 64 | 4])
    );
}

#[test]
fn what_was_written_back_and_drained_stays() {
    let scenario = explore::scenario("persisted").mortal("writer", |m| {
        m.store(DATA, 1u64, Relaxed);
        m.write_back(DATA, 8);
        m.store(DATA, 2u64, Relaxed);
        m.drain();
        m.store(FAR, 1u64, Relaxed);
    });
    let (seen, report) = images(scenario, [DATA, FAR]);
    // Once FAR may be 1 the drain was made, and DATA is at least its value at the write-back.
    assert_eq!(
        seen,
        BTreeSet::from([[0, 0], [1, 0], [2, 0], [1, 1], [2, 1]])
    );
    assert!(
        report.complete && report.images >= 5 && report.deaths >= 5,
        "{report}"
    );
}

#[test]
fn the_living_lose_nothing() {
    let scenario = explore::scenario("living").thread("writer", |m| m.store(DATA, 1u64, Relaxed));
    let (seen, report) = images(
        scenario.mortal("other", |m| m.store(FAR, 1u64, Relaxed)),
        [DATA],
    );
    assert_eq!(seen, BTreeSet::from([[1]]));
    assert!(report.deaths > 0);
}

/// A lives and stores; B takes the line over and dies. Returns the possible values of A's word.
fn taken_over(rules: CacheRules, b_writes: bool) -> BTreeSet<[u64; 1]> {
    let scenario = explore::scenario("taken over")
        .caches(rules)
        .thread("a", |m| m.store(DATA, 1u64, Relaxed))
        .mortal("b", move |m| {
            if b_writes {
                m.store(MORE, 1u64, Relaxed);
            } else {
                m.load::<u64>(MORE, Relaxed);
            }
        });
    images(scenario, [DATA]).0
}

#[test]
fn a_line_that_moved_is_lost_with_its_last_host() {
    let through_memory = CacheRules {
        transfers: Transfers::ThroughMemory,
        ..CacheRules::default()
    };
    for b_writes in [false, true] {
        let lost = taken_over(CacheRules::default(), b_writes);
        assert_eq!(lost, BTreeSet::from([[0], [1]]), "writes: {b_writes}");
        assert_eq!(taken_over(through_memory, b_writes), BTreeSet::from([[1]]));
    }
    // The writer that dies takes the line's earlier owner's stores with it, not the other way
    // round.
    let scenario = explore::scenario("gone to another")
        .mortal("a", |m| {
            m.store(DATA, 1u64, Relaxed);
            m.exchange(HEAD, 1u64, Relaxed);
        })
        .thread("b", |m| {
            if m.load::<u64>(HEAD, Relaxed) == 1 {
                m.store(MORE, 1u64, Relaxed);
            }
        });
    let (seen, _) = images(scenario, [DATA, MORE]);
    assert!(seen.contains(&[0, 1]) && seen.contains(&[1, 1]), "{seen:?}");
}

/// A reader persists the value that it read before it builds on it. Returns the possible values of
/// DATA and of the reader's word.
fn helped(write_backs: WriteBacks, looks_again: bool) -> BTreeSet<[u64; 2]> {
    let rules = CacheRules {
        write_backs,
        ..CacheRules::default()
    };
    let scenario = explore::scenario("helped")
        .caches(rules)
        .mortal("writer", |m| m.store(DATA, 1u64, Relaxed))
        .thread("reader", move |m| {
            let seen = |m: Exploring| m.load::<u64>(DATA, Acquire) == 1;
            if seen(m) {
                m.persist(DATA, 8);
                if !looks_again || seen(m) {
                    m.store(FAR, 1u64, Relaxed);
                    m.persist(FAR, 8);
                }
            }
        });
    images(scenario, [DATA, FAR]).0
}

#[test]
fn a_reader_can_make_sure_of_what_it_read_if_it_looks_again() {
    let sure = helped(WriteBacks::AnyCache, true);
    assert_eq!(sure, BTreeSet::from([[0, 0], [1, 0], [1, 1]]));
    // The writer may die, and the line with it, between the load and the write-back.
    assert!(helped(WriteBacks::AnyCache, false).contains(&[0, 1]));
    // A write-back that does not reach the writer's cache makes sure of nothing.
    assert!(helped(WriteBacks::OwnCache, true).contains(&[0, 1]));
}

/// The ways to publish a node of two words on two lines; each broken variant omits one step.
#[derive(Clone, Copy, PartialEq)]
enum Publish {
    Right,
    BeforeWriteBack,
    WithoutDrain,
    OneFieldOnly,
    WithoutTheHead,
}

fn publication(how: Publish) -> ScheduleReport {
    let whole = |m: Exploring| {
        let [a, b] = [DATA, FAR].map(|at| m.load::<u64>(at, Relaxed));
        assert_eq!((a, b), (7, 9), "the head leads to a node that is not whole");
    };
    explore::scenario("publication")
        .mortal("writer", move |m| {
            m.store(DATA, 7u64, Relaxed);
            m.store(FAR, 9u64, Relaxed);
            if how == Publish::BeforeWriteBack {
                m.store(HEAD, 1u64, Release);
            }
            m.write_back(DATA, 8);
            if how != Publish::OneFieldOnly {
                m.write_back(FAR, 8);
            }
            if how != Publish::WithoutDrain {
                m.drain();
            }
            if how != Publish::BeforeWriteBack {
                m.store(HEAD, 1u64, Release);
            }
            if how != Publish::WithoutTheHead {
                m.persist(HEAD, 8);
            }
        })
        .thread("reader", move |m| {
            if m.load::<u64>(HEAD, Acquire) == 1 {
                whole(m);
            }
        })
        .check(move |m, end| {
            let published = m.load::<u64>(HEAD, Acquire) == 1;
            if published {
                whole(m);
            }
            assert!(
                published || end.result(0).is_none(),
                "a finished operation is lost"
            );
        })
        .explore(&Bounds::default())
}

#[test]
fn publication_needs_write_backs_of_all_and_a_drain_before() {
    publication(Publish::Right).assert_proven();
    let broken = [
        (Publish::BeforeWriteBack, "not whole"),
        (Publish::WithoutDrain, "not whole"),
        (Publish::OneFieldOnly, "not whole"),
        (Publish::WithoutTheHead, "is lost"),
    ];
    for (how, message) in broken {
        let report = publication(how);
        let failure = report.expect_failure();
        assert!(failure.message.contains(message), "{report}");
        assert!(failure.trace.contains("lost: "), "{report}");
    }
}

/// A lock held by a dead owner falls back to an earlier owner that lives. That owner has to release
/// a lock that names it and is not in its log (which here is the result of its thread).
fn fallen_lock(owner_lets_go: bool) -> ScheduleReport {
    let lock = |m: Exploring, me: u64| m.compare_exchange(LOCK, 0u64, me, Acquire, Relaxed).is_ok();
    explore::scenario("fallen lock")
        .thread("a", move |m| {
            if lock(m, 1) {
                m.store(LOCK, 0u64, Release);
            }
        })
        .mortal("b", move |m| {
            if lock(m, 2) {
                m.store(LOCK, 0u64, Release);
            }
        })
        .check(move |m, end| {
            let owner: u64 = m.load(LOCK, Relaxed);
            let dead = end.died(1) && owner == 2;
            let let_go = owner_lets_go && owner == 1;
            assert!(
                owner == 0 || dead || let_go,
                "{owner} lives and will never unlock"
            );
        })
        .explore(&Bounds::default())
}

#[test]
fn a_lock_falls_back_to_an_earlier_owner_who_lives() {
    fallen_lock(true).assert_proven();
    let report = fallen_lock(false);
    assert!(
        report
            .expect_failure()
            .message
            .contains("1 lives and will never unlock"),
        "{report}"
    );
}

#[test]
fn too_many_images_are_drawn_and_the_report_says_so() {
    let scenario = |images| {
        let rules = CacheRules {
            images,
            ..CacheRules::default()
        };
        explore::scenario::<()>("many")
            .caches(rules)
            .mortal("writer", |m| {
                m.copy_in(DATA, &[1; 64]);
            })
    };
    let all = scenario(256).explore(&Bounds::default());
    assert!(all.complete && all.images == 256, "{all}");
    let some = scenario(32).explore(&Bounds::default());
    assert!(!some.complete && (32..256).contains(&some.images), "{some}");
}

/// All threads of a host die together.
#[test]
fn a_host_dies_with_all_its_threads() {
    let report = explore::scenario("one host")
        .mortal("a", |m| m.store(DATA, 1u64, Relaxed))
        .mortal("b", |m| m.store(FAR, 1u64, Relaxed))
        .on_host(0)
        .on_death(|m, host| {
            assert_eq!(host, 0);
            m.store(HEAD, 1u64, Release);
            m.persist(HEAD, 8);
        })
        .check(|m, end| {
            assert_eq!(end.died(0), end.died(1));
            let lost = [DATA, FAR].map(|at| m.load::<u64>(at, Relaxed)) != [1, 1];
            assert!(!lost || m.load::<u64>(HEAD, Relaxed) == 1);
        })
        .explore(&Bounds::default().deaths(2));
    report.assert_proven();
    assert!(report.deaths > 0);
}
