//! Litmus tests of the scheduled memory's model: for each the exact set of outcomes that it shows.

use outlive_memory::{Memory, Offset, Ordering, Ordering::*};
use outlive_prove::schedule::{self, Bounds, Scenario, Scheduled};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

const X: Offset = Offset::new(0);
const Y: Offset = Offset::new(64);

type Out = Vec<u64>;

/// Returns every vector of results, the threads' results one after the other, followed by the final
/// X and Y if `finals`.
fn outcomes(scenario: Scenario<Scheduled, Out>, finals: bool) -> BTreeSet<Out> {
    let seen: Arc<Mutex<BTreeSet<Out>>> = Arc::default();
    let seen_too = Arc::clone(&seen);
    let report = scenario
        .check(move |m, end| {
            let mut all: Out = end.results().iter().flatten().flatten().copied().collect();
            if finals {
                all.extend([m.load::<u64>(X, Relaxed), m.load::<u64>(Y, Relaxed)]);
            }
            seen_too.lock().unwrap().insert(all);
        })
        .explore(&Bounds::exhaustive());
    report.assert_proven();
    std::mem::take(&mut *seen.lock().unwrap())
}

fn set<const N: usize>(outcomes: &[[u64; N]]) -> BTreeSet<Out> {
    outcomes.iter().map(|outcome| outcome.to_vec()).collect()
}

fn litmus(name: &str) -> Scenario<Scheduled, Out> {
    schedule::scenario(name)
}

fn message_passing(store: Ordering, load: Ordering) -> BTreeSet<Out> {
    let scenario = litmus("MP")
        .thread("writer", move |m| {
            m.store(X, 1u64, Relaxed);
            m.store(Y, 1u64, store);
            vec![]
        })
        .thread("reader", move |m| {
            let y = m.load(Y, load);
            vec![y, m.load(X, Relaxed)]
        });
    outcomes(scenario, false)
}

#[test]
fn message_passing_needs_release_and_acquire() {
    let strong = set(&[[0, 0], [0, 1], [1, 1]]);
    let weak = set(&[[0, 0], [0, 1], [1, 0], [1, 1]]);
    assert_eq!(message_passing(Release, Acquire), strong);
    assert_eq!(message_passing(SeqCst, SeqCst), strong);
    assert_eq!(message_passing(Relaxed, Acquire), weak);
    assert_eq!(message_passing(Release, Relaxed), weak);
    assert_eq!(message_passing(Relaxed, Relaxed), weak);
}

fn message_passing_by_fences(writer: Option<Ordering>, reader: Option<Ordering>) -> BTreeSet<Out> {
    let scenario = litmus("MP+fences")
        .thread("writer", move |m| {
            m.store(X, 1u64, Relaxed);
            if let Some(order) = writer {
                m.fence(order);
            }
            m.store(Y, 1u64, Relaxed);
            vec![]
        })
        .thread("reader", move |m| {
            let y = m.load(Y, Relaxed);
            if let Some(order) = reader {
                m.fence(order);
            }
            vec![y, m.load(X, Relaxed)]
        });
    outcomes(scenario, false)
}

#[test]
fn message_passing_by_fences_needs_both() {
    let strong = set(&[[0, 0], [0, 1], [1, 1]]);
    let weak = set(&[[0, 0], [0, 1], [1, 0], [1, 1]]);
    assert_eq!(
        message_passing_by_fences(Some(Release), Some(Acquire)),
        strong
    );
    assert_eq!(
        message_passing_by_fences(Some(SeqCst), Some(SeqCst)),
        strong
    );
    assert_eq!(message_passing_by_fences(None, Some(Acquire)), weak);
    assert_eq!(message_passing_by_fences(Some(Release), None), weak);
    assert_eq!(
        message_passing_by_fences(Some(Acquire), Some(Release)),
        weak
    );
}

fn store_buffering(order: (Ordering, Ordering), fence: Option<Ordering>) -> BTreeSet<Out> {
    let thread = move |mine: Offset, others: Offset| {
        move |m: Scheduled| {
            m.store(mine, 1u64, order.0);
            if let Some(order) = fence {
                m.fence(order);
            }
            vec![m.load(others, order.1)]
        }
    };
    outcomes(
        litmus("SB")
            .thread("a", thread(X, Y))
            .thread("b", thread(Y, X)),
        false,
    )
}

#[test]
fn store_buffering_is_seen_unless_all_is_sequentially_consistent() {
    let strong = set(&[[0, 1], [1, 0], [1, 1]]);
    let weak = set(&[[0, 0], [0, 1], [1, 0], [1, 1]]);
    assert_eq!(store_buffering((Relaxed, Relaxed), None), weak);
    assert_eq!(store_buffering((Release, Acquire), None), weak);
    assert_eq!(store_buffering((Release, SeqCst), None), weak);
    assert_eq!(store_buffering((SeqCst, Acquire), None), weak);
    assert_eq!(store_buffering((Relaxed, Relaxed), Some(AcqRel)), weak);
    assert_eq!(store_buffering((SeqCst, SeqCst), None), strong);
    assert_eq!(store_buffering((Relaxed, Relaxed), Some(SeqCst)), strong);
}

/// Needs a promise, so the model does not show it; the documentation says so.
#[test]
fn load_buffering_is_not_modelled() {
    let thread = |from: Offset, to: Offset| {
        move |m: Scheduled| {
            let seen: u64 = m.load(from, Relaxed);
            m.store(to, 1u64, Relaxed);
            vec![seen]
        }
    };
    let scenario = litmus("LB")
        .thread("a", thread(X, Y))
        .thread("b", thread(Y, X));
    assert_eq!(outcomes(scenario, false), set(&[[0, 0], [0, 1], [1, 0]]));
}

fn independent_reads(store: Ordering, load: Ordering, fence: Option<Ordering>) -> bool {
    let reader = move |first: Offset, second: Offset| {
        move |m: Scheduled| {
            let a: u64 = m.load(first, load);
            if let Some(order) = fence {
                m.fence(order);
            }
            vec![a, m.load(second, load)]
        }
    };
    let write = move |at: Offset| {
        move |m: Scheduled| {
            m.store(at, 1u64, store);
            vec![]
        }
    };
    let scenario = litmus("IRIW")
        .thread("x", write(X))
        .thread("y", write(Y))
        .thread("xy", reader(X, Y))
        .thread("yx", reader(Y, X));
    let seen = outcomes(scenario, false);
    // All but the one where the readers disagree about the order are always seen.
    assert!(seen.len() == 15 || seen.len() == 16, "{seen:?}");
    seen.contains(&vec![1, 0, 1, 0])
}

#[test]
fn readers_of_independent_writes_may_disagree_unless_sequentially_consistent() {
    assert!(independent_reads(Relaxed, Relaxed, None));
    assert!(independent_reads(Release, Acquire, None));
    assert!(!independent_reads(SeqCst, SeqCst, None));
    assert!(!independent_reads(Relaxed, Relaxed, Some(SeqCst)));
}

#[test]
fn a_word_alone_is_coherent() {
    // Two loads of one word never go backwards.
    let scenario = litmus("CoRR")
        .thread("writer", |m| {
            m.store(X, 1u64, Relaxed);
            m.store(X, 2u64, Relaxed);
            vec![]
        })
        .thread("reader", |m| {
            let first = m.load(X, Relaxed);
            vec![first, m.load(X, Relaxed)]
        });
    let expected = set(&[[0, 0], [0, 1], [0, 2], [1, 1], [1, 2], [2, 2]]);
    assert_eq!(outcomes(scenario, false), expected);

    // Two readers agree on the order of two writers.
    let write = |value: u64| {
        move |m: Scheduled| {
            m.store(X, value, Relaxed);
            vec![]
        }
    };
    let read = |m: Scheduled| {
        let first = m.load(X, Relaxed);
        vec![first, m.load(X, Relaxed)]
    };
    let scenario = (litmus("CoRR2").thread("1", write(1)).thread("2", write(2)))
        .thread("a", read)
        .thread("b", read);
    let seen = outcomes(scenario, false);
    assert!(seen.contains(&vec![1, 2, 1, 2]) && seen.contains(&vec![2, 1, 2, 1]));
    assert!(!seen.contains(&vec![1, 2, 2, 1]) && !seen.contains(&vec![2, 1, 1, 2]));

    // A thread's own store is never behind what it has read.
    let scenario = litmus("CoRW")
        .thread("a", |m| {
            let seen = m.load(X, Relaxed);
            m.store(X, 2u64, Relaxed);
            vec![seen, m.load(X, Relaxed)]
        })
        .thread("b", |m| {
            m.store(X, 1u64, Relaxed);
            vec![]
        });
    let expected = set(&[[0, 1, 1, 0], [0, 2, 1, 0], [0, 2, 2, 0], [1, 2, 2, 0]]);
    assert_eq!(outcomes(scenario, true), expected);
}

#[test]
fn stores_of_two_threads_may_be_ordered_crosswise() {
    let thread = |first: Offset, second: Offset| {
        move |m: Scheduled| {
            m.store(first, 1u64, Relaxed);
            m.store(second, 2u64, Relaxed);
            vec![]
        }
    };
    let scenario = litmus("2+2W")
        .thread("a", thread(X, Y))
        .thread("b", thread(Y, X));
    assert_eq!(
        outcomes(scenario, true),
        set(&[[1, 1], [1, 2], [2, 1], [2, 2]])
    );
}

fn release_sequence(middle: fn(Scheduled)) -> BTreeSet<Out> {
    let scenario = litmus("release sequence")
        .thread("writer", |m| {
            m.store(X, 1u64, Relaxed);
            m.store(Y, 1u64, Release);
            vec![]
        })
        .thread("middle", move |m| {
            middle(m);
            vec![]
        })
        .thread("reader", |m| {
            let y: u64 = m.load(Y, Acquire);
            vec![y, m.load(X, Relaxed)]
        });
    outcomes(scenario, false)
}

#[test]
fn a_release_sequence_goes_on_through_read_modify_writes_only() {
    let by_add = release_sequence(|m| {
        m.fetch_add(Y, 10u64, Relaxed);
    });
    let expected = set(&[[0, 0], [0, 1], [1, 1], [1, 0], [10, 0], [10, 1], [11, 1]]);
    // The plain 1 that replaced 10 is released; only 11 and 1 carry the writer's view.
    let mut without = expected;
    without.remove(&vec![1, 0]);
    assert_eq!(by_add, without);
    let by_store = release_sequence(|m| {
        if m.load::<u64>(Y, Relaxed) == 1 {
            m.store(Y, 11u64, Relaxed);
        }
    });
    assert_eq!(by_store, set(&[[0, 0], [0, 1], [1, 1], [11, 0], [11, 1]]));
}

#[test]
fn read_modify_writes_are_atomic_whatever_their_order() {
    let add = |m: Scheduled| vec![m.fetch_add(X, 1u64, Relaxed)];
    let scenario = litmus("adds")
        .thread("a", add)
        .thread("b", add)
        .thread("c", add);
    let seen = outcomes(scenario, true);
    assert_eq!(seen.len(), 6);
    assert!(seen.iter().all(|outcome| outcome[3] == 3));
}

#[test]
fn a_compare_that_fails_may_have_read_an_old_value() {
    let scenario = litmus("stale compare")
        .thread("a", |m| {
            m.store(X, 1u64, Relaxed);
            m.store(Y, 1u64, Relaxed);
            vec![]
        })
        .thread("b", |m| {
            let y: u64 = m.load(Y, Relaxed);
            let found = m.compare_exchange(X, 1u64, 2, AcqRel, Relaxed);
            vec![y, found.is_ok().into(), found.unwrap_or_else(|found| found)]
        });
    let expected = set(&[[0, 0, 0], [0, 1, 1], [1, 0, 0], [1, 1, 1]]);
    assert_eq!(outcomes(scenario, false), expected);
}
